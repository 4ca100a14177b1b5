"""Strategies of training: what all declare, how they are spelled, and jobs of two phases."""
