"""Stages and their replicas on devices far apart: what a grouping of devices costs in data and pipeline parallelism."""
