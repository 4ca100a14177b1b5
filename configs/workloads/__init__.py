"""YAML files: workloads."""
