"""Measurements on a GPU: training steps of real models."""
