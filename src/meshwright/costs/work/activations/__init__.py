"""Activations that layers keep of a micro-batch from its forward pass to its backward pass."""
