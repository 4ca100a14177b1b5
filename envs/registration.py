"""Registers the environments with Gymnasium.

Called when `meshwright.envs` is imported. Importing `meshwright` does that as soon as Gymnasium is imported too, in either
order; so does the ``gymnasium.envs`` entry point where a loader of plugins reads it (Gymnasium itself stopped to with version
1.0). Without any import ``gymnasium.make("meshwright:meshwright/JobPartitioning-v0")`` names the module to be imported.
"""

from __future__ import annotations

import warnings
from typing import Any

from gymnasium.envs.registration import register as register_env
from gymnasium.envs.registration import registry

_ENVIRONMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "JobPartitioning-v0": ("job_partitioning:JobPartitioning", {}),
    "JobPartitioning-v1": ("fleet.env:Fleet", {}),
    "OperatorPlacement-v0": ("world_env:World", {"benchmark": "preset:latency-tight"}),
    "ElasticJobs-v0": ("elastic.env:Elastic", {}),
    "World-v0": ("world_env:World", {}),
}
"""Module of each environment with the name before ``Env`` and ``VectorEnv``, and arguments."""

IDS = tuple(f"meshwright/{name}" for name in _ENVIRONMENTS)


def register() -> None:
    """Register every environment of the project that is not registered yet.

    Gymnasium warns of an id whose version is not the highest one. Here v1 is another world than v0 and replaces it nowhere, so
    that this warning is left out.
    """
    warnings.filterwarnings("ignore", f".*The environment {IDS[0]} is out of date", DeprecationWarning)
    for name, (place, arguments) in zip(IDS, _ENVIRONMENTS.values(), strict=True):
        if name not in registry:
            where = f"meshwright.envs.{place}"
            register_env(id=name, entry_point=f"{where}Env", vector_entry_point=f"{where}VectorEnv", kwargs=dict(arguments))
