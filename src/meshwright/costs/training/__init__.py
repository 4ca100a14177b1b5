"""Closed forms of training strategies: a file for each family of kinds."""
