"""YAML files: types of jobs that share a cluster."""
