"""Passes through the policy network on a CPU, there and back, without PyTorch's own differentiation."""
