"""YAML files: benchmarks."""
