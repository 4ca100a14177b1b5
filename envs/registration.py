"""Registers the environments with Gymnasium.

Called when `meshwright.envs` is imported. Importing `meshwright` does that as soon as Gymnasium is imported too, in either
order; so does the ``gymnasium.envs`` entry point where a loader of plugins reads it (Gymnasium itself stopped to with version
1.0). Without any import ``gymnasium.make("meshwright:meshwright/JobPartitioning-v0")`` names the module to be imported.
"""

from __future__ import annotations

import warnings

from gymnasium.envs.registration import register as register_env
from gymnasium.envs.registration import registry

IDS = (
    "meshwright/JobPartitioning-v0",
    "meshwright/JobPartitioning-v1",
    "meshwright/OperatorPlacement-v0",
    "meshwright/ElasticJobs-v0",
    "meshwright/World-v0",
)


def register() -> None:
    """Register every environment of the project that is not registered yet.

    Gymnasium warns of an id whose version is not the highest one. Here v1 is another world than v0 and replaces it nowhere, so
    that this warning is left out.
    """
    warnings.filterwarnings("ignore", f".*The environment {IDS[0]} is out of date", DeprecationWarning)
    if IDS[0] not in registry:
        register_env(
            id=IDS[0],
            entry_point="meshwright.envs.job_partitioning:JobPartitioningEnv",
            vector_entry_point="meshwright.envs.job_partitioning_vector:JobPartitioningVectorEnv",
        )
    if IDS[1] not in registry:
        register_env(
            id=IDS[1],
            entry_point="meshwright.envs.fleet.env:FleetEnv",
            vector_entry_point="meshwright.envs.fleet.vector_env:FleetVectorEnv",
        )
    if IDS[2] not in registry:
        register_env(
            id=IDS[2],
            entry_point="meshwright.envs.world_env:WorldEnv",
            vector_entry_point="meshwright.envs.world_env:WorldVectorEnv",
            kwargs={"benchmark": "preset:latency-tight"},
        )
    if IDS[3] not in registry:
        register_env(id=IDS[3], entry_point="meshwright.envs.elastic.env:ElasticEnv")
    if IDS[4] not in registry:
        register_env(
            id=IDS[4],
            entry_point="meshwright.envs.world_env:WorldEnv",
            vector_entry_point="meshwright.envs.world_env:WorldVectorEnv",
        )
