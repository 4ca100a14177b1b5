"""Jobs of two phases: a plan for each of them, or one for both."""
