"""Benchmarks, statistics, figures, report."""
