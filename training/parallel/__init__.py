"""PPO by several processes, each with a share of the environments and of every minibatch."""
