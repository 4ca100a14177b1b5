"""YAML files: what kernels took on each device, as measured."""
