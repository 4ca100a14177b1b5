"""Collectives as a library runs them: its tuner's choice, and measured curves, lines and tables."""
