"""Adapters of libraries that learn or search: environments for Stable-Baselines3, sweeps by Optuna."""
