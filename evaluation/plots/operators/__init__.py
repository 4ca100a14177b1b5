"""Placements of ops drawn: ops on their devices, and what planners reached in their time."""
