"""Benchmarks, statistics, figures, the report."""
