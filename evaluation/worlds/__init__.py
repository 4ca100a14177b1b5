"""Benchmarks for `evaluate`: one adapter for each kind, and their registry."""
