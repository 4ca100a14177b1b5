"""Comparing policies: a file for each world; `evaluate` reads the benchmark and says which."""
