"""What trainings of policies that place have in common: imitation of a search, then PPO on whole placements."""
