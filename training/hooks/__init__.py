"""Callbacks of a training run, and writers of its learning curve for other tools."""
