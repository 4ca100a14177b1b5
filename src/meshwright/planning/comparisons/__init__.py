"""Comparisons of layouts: with the fastest of a search, without each of its mechanisms, and side by side."""
