"""Registers the environments with Gymnasium.

Called when `meshwright.envs` is imported. Importing both `meshwright` and Gymnasium, in either order, does that. So does the
``gymnasium.envs`` entry point where a loader of plugins reads it; Gymnasium itself reads none since version 1.0. Without any
import ``gymnasium.make("meshwright:meshwright/JobPartitioning-v0")`` names the module to be imported.
"""

from __future__ import annotations

import warnings
from typing import Any

from gymnasium.envs.registration import register as register_env
from gymnasium.envs.registration import registry

_ENVIRONMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "JobPartitioning-v0": ("meshwright.envs.job_partitioning:JobPartitioningEnv", {}),
    "JobPartitioning-v1": ("meshwright.envs.fleet.env:FleetEnv", {}),
    "OperatorPlacement-v0": ("meshwright.envs.world_env:WorldEnv", {"benchmark": "preset:latency-tight"}),
    "ElasticJobs-v0": ("meshwright.envs.world_env:WorldEnv", {"benchmark": "preset:elastic-published-1.0"}),
    "World-v0": ("meshwright.envs.world_env:WorldEnv", {}),
}
"""Class of each environment, and arguments; that of its vector environment ends with ``VectorEnv``."""

IDS = tuple(f"meshwright/{name}" for name in _ENVIRONMENTS)


def register() -> None:
    """Register every environment of the project that is not registered yet.

    Gymnasium warns of an id whose version is not the highest one. Here v1 is another world than v0 and replaces it nowhere, so
    that this warning is left out.
    """
    warnings.filterwarnings("ignore", f".*The environment {IDS[0]} is out of date", DeprecationWarning)
    for name, (single, arguments) in zip(IDS, _ENVIRONMENTS.values(), strict=True):
        if name not in registry:
            vector = f"{single.removesuffix('Env')}VectorEnv"
            register_env(id=name, entry_point=single, vector_entry_point=vector, kwargs=dict(arguments))
