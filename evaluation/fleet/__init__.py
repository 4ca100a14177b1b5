"""Comparing policies of a fleet: policies by name, episodes with paired seeds, figures, bounds and the verdict."""
