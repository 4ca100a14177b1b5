"""Policies of a fleet: imitation of a rule, then PPO, from a config to a run folder."""
