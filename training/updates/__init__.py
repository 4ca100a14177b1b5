"""The updates of PPO: gradients of minibatches, and steps on all weights at once."""
