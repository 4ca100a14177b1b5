"""What happens to a network before PPO: values of states are learned."""
