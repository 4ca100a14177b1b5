"""YAML only: clusters, workloads, training runs, benchmarks and device types that ship with the package."""
