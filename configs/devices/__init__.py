"""YAML files: devices."""
