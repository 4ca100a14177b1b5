"""Readers of job descriptions that other programs write."""
