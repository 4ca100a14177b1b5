"""Ops of one training step placed on devices: the instance, what a placement costs, and random instances."""
