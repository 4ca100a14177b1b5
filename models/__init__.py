"""Graph encoders and the policy network: the first floor with torch."""
