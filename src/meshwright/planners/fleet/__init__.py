"""Policies of a fleet without learning: orders of the queue, how many devices each job gets, and where."""
