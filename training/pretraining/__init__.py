"""Training of a network before PPO: values of states are learned."""
