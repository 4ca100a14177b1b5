"""Turning a decision into a running job: it is handed to a scheduler, or a scheduler that asks is answered."""
