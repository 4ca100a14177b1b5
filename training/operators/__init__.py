"""Training of policies that place ops: PPO on whole placements, several of each instance."""
