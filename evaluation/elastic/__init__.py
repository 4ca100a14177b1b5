"""Schedulers of elastic jobs compared on published workloads: policies by name, figures, tables."""
