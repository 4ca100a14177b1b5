"""Figures as SVG: their paper, their style, and a file for each kind."""
