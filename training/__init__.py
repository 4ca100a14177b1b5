"""From a config to a run folder: PPO on many episodes at once, checkpoints, resume."""
