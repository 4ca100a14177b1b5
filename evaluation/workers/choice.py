"""The choice of workers by the options ``--jobs`` and ``--ray``."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from ...errors import ConfigError
from .processes import KeptProcesses, Processes
from .workers import Workers


def chosen_workers(jobs: int, ray: str | None, *, are_kept: bool = False) -> AbstractContextManager[Workers]:
    """Workers who are there as long as the context is.

    Args:
        jobs: processes of this machine.
        ray: a Ray cluster (see `ray_cluster.ray_workers`), or None.
        are_kept: whether processes stay from one call to the next.

    Raises:
        MeshwrightError: both are asked for, or one is spelled wrongly, before anything starts.
    """
    if ray is None:
        processes = Processes(jobs)
        return KeptProcesses(processes.number) if are_kept else nullcontext(processes)
    if jobs != 1:
        raise ConfigError("plays a task on each CPU of its nodes; leave out --jobs", field="--ray", value=ray)
    from .ray_cluster import ray_workers

    return ray_workers(ray)
