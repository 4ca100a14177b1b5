"""Strategies of training: what all declare, how they are written, and jobs of two phases."""
