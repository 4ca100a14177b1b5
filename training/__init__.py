"""Training a policy from a config into a run folder: PPO on many episodes at once, checkpoints, resume."""
