"""Pipelines: the order of the passes on every stage, and the time that the order takes."""
