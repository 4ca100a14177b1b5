"""YAML files: fitted constants of measured collectives."""
