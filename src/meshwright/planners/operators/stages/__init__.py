"""Pipelines of stages between downsets of a graph: exact recurrences, and the integer program with which they are compared."""
