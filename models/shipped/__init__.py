"""Trained policies that come with the package, and how each was trained."""
