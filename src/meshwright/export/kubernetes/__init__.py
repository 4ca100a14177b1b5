"""Kubernetes: the forms in which a plan is written for it."""
