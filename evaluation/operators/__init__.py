"""Policies and planners of operator placement compared on the same instances."""
