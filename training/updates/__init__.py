"""The updates of PPO: gradients of minibatches, in this process or shared with others."""
