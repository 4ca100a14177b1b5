"""Environments as other libraries step them, timed."""
