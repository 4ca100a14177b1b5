"""Planners that place ops on devices: exact ones, list schedulers, searches; one interface for all."""
