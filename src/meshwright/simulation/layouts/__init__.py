"""Layouts as execution graphs: what every rank of a pipeline of sharded stages does in a step, task by task."""
