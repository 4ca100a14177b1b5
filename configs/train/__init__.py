"""YAML files: train."""
