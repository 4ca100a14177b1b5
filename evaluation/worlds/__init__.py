"""What `evaluate` plays: one adapter for each kind of benchmark, and their registry."""
