"""The kinds of benchmarks that a study holds."""
