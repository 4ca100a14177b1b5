"""From a decision to a job that runs: hand it to a scheduler, and answer a scheduler that asks."""
