"""YAML files: clusters."""
