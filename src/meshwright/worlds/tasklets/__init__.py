"""Distant devices fill the stages of a pipeline, one after another."""
