"""Benchmarks of the parts that have to be fast: ``make bench``."""
