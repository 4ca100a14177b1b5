"""Registers the environments with Gymnasium; called through the ``gymnasium.envs`` entry point."""

from __future__ import annotations

from gymnasium.envs.registration import register as register_env

IDS = ("meshwright/JobPartitioning-v0",)


def register() -> None:
    """Register every environment of the project."""
    register_env(id=IDS[0], entry_point="meshwright.envs.job_partitioning:JobPartitioningEnv")
