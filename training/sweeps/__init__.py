"""Sweeps: many training runs with other values of some keys, chosen by Optuna."""
