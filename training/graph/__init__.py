"""Training of graph policies on any world: imitation of a search, then PPO."""
