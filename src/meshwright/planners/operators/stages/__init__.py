"""Pipelines of stages between downsets of a graph: exact recurrences, and the integer program that they are held against."""
