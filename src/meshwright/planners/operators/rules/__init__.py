"""Rules that place ops one after another: list schedulers, and the memory that they keep for what is still to come."""
