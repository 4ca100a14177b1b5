"""Graph encoders and the policy network."""
