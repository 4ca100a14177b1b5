"""What a GPU shows: training steps of real models, and the updates of PPO on it."""
