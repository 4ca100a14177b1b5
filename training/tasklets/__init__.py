"""Training of policies that fill stages with distant devices: imitation of a search, then PPO on whole groupings."""
