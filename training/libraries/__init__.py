"""The environments in other libraries of learning: RLlib, TorchRL, Tianshou; a module for each, which alone imports it."""
