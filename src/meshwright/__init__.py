"""meshwright decides how a distributed training job is cut, on which devices and in which rank order it runs.

The public names, each imported from its module when it is first used::

    load_graph, JobGraph, Job: a job.
    load_cluster, Cluster: its devices and links.
    PlacementPlan, load_plan, Layout: the decision.
    simulate: one training step of a partition on a placement.
    simulate_together, JobStep: steps of several jobs that share the cluster's links.
    estimate, compare, search_layouts: price one parallel layout or several side by side; find the best.
    load_benchmark, JobPartitioningEnv: many jobs that compete, as a Gymnasium environment.
    sb3_env: many episodes of any environment, as Stable-Baselines3 steps them.
    plan: one job, one cluster, the chosen plan.
    place: the ops of one job on devices.
    train, evaluate, export: learn a policy, compare policies, hand plans to schedulers.
    TrainingCallback: follows a training run and may stop it.
    verify: compare the output of a launched job with its plan.
    MeshwrightError: every error that a user can cause.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .clusters.cluster import Cluster as Cluster
    from .clusters.cluster import load_cluster as load_cluster
    from .envs.benchmark import load_benchmark as load_benchmark
    from .envs.job_partitioning import JobPartitioningEnv as JobPartitioningEnv
    from .errors import MeshwrightError as MeshwrightError
    from .evaluation.evaluate import evaluate as evaluate
    from .export import export as export
    from .export.verify import verify as verify
    from .jobs.graph import JobGraph as JobGraph
    from .jobs.job import Job as Job
    from .jobs.load import load_graph as load_graph
    from .planning.comparisons.compare import compare as compare
    from .planning.estimate import estimate as estimate
    from .planning.place import place as place
    from .planning.plan import plan as plan
    from .planning.search import search_layouts as search_layouts
    from .plans import Layout as Layout
    from .plans import PlacementPlan as PlacementPlan
    from .plans import load_plan as load_plan
    from .simulation.step.timeline import JobStep as JobStep
    from .simulation.step.timeline import simulate as simulate
    from .simulation.step.timeline import simulate_together as simulate_together
    from .training.hooks.callback import TrainingCallback as TrainingCallback
    from .training.libraries.sb3 import sb3_env as sb3_env
    from .training.methods import train as train

__version__ = "0.1.0"

_HOMES = {
    "load_graph": "jobs.load",
    "JobGraph": "jobs.graph",
    "Job": "jobs.job",
    "load_cluster": "clusters.cluster",
    "Cluster": "clusters.cluster",
    "PlacementPlan": "plans",
    "load_plan": "plans",
    "Layout": "plans",
    "simulate": "simulation.step.timeline",
    "simulate_together": "simulation.step.timeline",
    "JobStep": "simulation.step.timeline",
    "estimate": "planning.estimate",
    "compare": "planning.comparisons.compare",
    "search_layouts": "planning.search",
    "load_benchmark": "envs.benchmark",
    "JobPartitioningEnv": "envs.job_partitioning",
    "sb3_env": "training.libraries.sb3",
    "plan": "planning.plan",
    "place": "planning.place",
    "train": "training.methods",
    "TrainingCallback": "training.hooks.callback",
    "evaluate": "evaluation.evaluate",
    "export": "export",
    "verify": "export.verify",
    "MeshwrightError": "errors",
}

__all__ = list(_HOMES)  # in the order of the table above


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])


class _WhenGymnasiumComes:
    """Finds Gymnasium as it is found without this, and registers the environments once it has been imported.

    Its users expect the ids to be known whichever they import first; nobody else pays for the import of Gymnasium.
    """

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name != "gymnasium":
            return None
        sys.meta_path.remove(self)
        result = import_module("importlib.util").find_spec(name)
        if result is not None and result.loader is not None:
            execute = result.loader.exec_module

            def execute_and_register(module: object) -> None:
                del result.loader.exec_module
                execute(module)
                import_module(".envs", __name__)

            result.loader.exec_module = execute_and_register
        return result


if "gymnasium" in sys.modules:
    import_module(".envs", __name__)
else:
    sys.meta_path.insert(0, _WhenGymnasiumComes())
