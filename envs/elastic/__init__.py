"""Elastic jobs with measured speeds as an environment, and the benchmarks of the published workloads."""
