"""YAML files: what kernels reach on each device, as calibrated."""
