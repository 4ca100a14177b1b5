"""The environments in other libraries of learning: RLlib, TorchRL, Tianshou. Each module imports its own library, nothing else does."""
