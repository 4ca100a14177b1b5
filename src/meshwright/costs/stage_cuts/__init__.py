"""Cuts of the ops of a job graph into pipeline stages, for the shortest step among the cuts that fit."""
