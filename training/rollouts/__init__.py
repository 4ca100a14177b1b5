"""Decisions between two updates, collected by groups of environments wherever there are workers."""
