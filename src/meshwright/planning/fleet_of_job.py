"""The fleet in which one job is planned: that of a policy's benchmark with the job in it, or one of the job alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .. import settings
from ..clusters.cluster import Cluster
from ..envs.fleet.benchmark import FleetBenchmark, load_fleet_benchmark
from ..envs.fleet.settings import FleetSettings
from ..errors import PlanError
from ..jobs.load import JobSource
from ..models.fleet.saved import SavedFleetNetwork
from ..planners.menu.job_types import job_type
from ..planners.menu.settings import JobTypeSettings, load_job_types
from ..plans.frameworks.defaults import LauncherName
from ..plans.rank_order import ORDERS


def trained_on(saved: SavedFleetNetwork) -> FleetBenchmark:
    """Return the benchmark on which a policy was trained.

    Raises:
        PlanError: its jobs are cut op by op.
    """
    benchmark = load_fleet_benchmark(str(saved.trained["benchmark"]), changes=list(saved.trained.get("changes", ())))
    if benchmark.fleet.splits is not None:
        raise PlanError("a policy of a fleet of splits has no menu of layouts for a job", field="--policy")
    return benchmark


def job_of_fleet(
    trained: FleetBenchmark | None, job: str, batch: int | None, sequence_length: int | None
) -> tuple[JobTypeSettings, Sequence[JobTypeSettings]]:
    """Return a job as a type of jobs, and the types of the policy's benchmark.

    Args:
        trained: the benchmark of a policy; None: there is none.
        job: ``zoo:NAME`` or a path.
        batch: samples of a step; by default those of the fleet's type with this job.
        sequence_length: tokens of a sequence.

    Raises:
        PlanError: no batch.
        MeshwrightError: the job is missing or wrong.
    """
    types: Sequence[JobTypeSettings] = ()
    if trained is not None:
        job_types = trained.fleet.job_types
        types = load_job_types(job_types) if isinstance(job_types, str) else job_types
    JobSource(job).shape()  # a missing one is refused by its own name first
    target = batch or next((one.global_batch for one in types if one.job == job), None)
    if target is None:
        knows = "" if trained is None else f"; the policy's benchmark {trained.name} has no such job"
        raise PlanError(f"say how many samples a step has{knows}", field="--batch")
    name = job.removeprefix("zoo:") if job.startswith("zoo:") else Path(job).parent.name or Path(job).stem
    data = {"name": name, "job": job, "global_batch": target, "sequence_length": sequence_length}
    return settings.build_settings(JobTypeSettings, data), types


def fleet_of_job(
    trained: FleetSettings | None,
    job_type_settings: JobTypeSettings,
    types: Sequence[JobTypeSettings],
    cluster: Cluster,
    devices: int | None,
    max_devices: int | None,
    framework: LauncherName | None = None,
) -> tuple[FleetSettings, int]:
    """Return a fleet's settings on a cluster, and the number of the job's type in it.

    Where the policy's fleet has the job the menu is the same; otherwise it is one of this job alone.

    Args:
        trained: the fleet of a policy; None: one of the job alone.
        job_type_settings: the job.
        types: of the fleet.
        cluster: where.
        devices: the only number of devices to try.
        max_devices: most devices to try.
        framework: what is to run the layouts; all that `plan --search` tries for it is on the menu.

    Raises:
        PlanError: numbers of devices that cannot be, or a framework with a policy whose menu is its own.
    """
    if framework is not None and trained is not None:
        raise PlanError("goes with menu:RULE; a trained policy has its benchmark's menu", field="framework", value=framework)
    every = tuple(1 << power for power in range(cluster.num_devices.bit_length())) if trained is None else trained.menu.degrees
    most = min(cluster.num_devices, max_devices or cluster.num_devices)
    degrees = tuple(degree for degree in every if degree <= most)
    if devices is not None and devices not in degrees:
        problem = f"on {cluster.name} the policy gives one of these numbers: {', '.join(map(str, degrees))}"
        raise PlanError(problem, field="devices", value=devices)
    degrees = degrees if devices is None else (devices,)
    if trained is None:
        menu: dict[str, object] = {"degrees": degrees, "is_whole": True}
        menu |= {} if framework is None else {"framework": framework, "orders": ORDERS}
        alone = {"job_types": (job_type_settings,), "menu": menu, "requested": dict.fromkeys(degrees, 1.0)}
        usual = {"load": 1.0, "duration": {"median_s": 3600, "sigma": 0, "most_s": 3600}}
        counts = {"num_jobs": 1, "queue_capacity": 1, "visible_jobs": 1}
        return settings.build_settings(FleetSettings, {"cluster": cluster.name, **alone, **usual, **counts}), 0
    digests = [job_type(one).digest for one in types]
    own = job_type(job_type_settings).digest
    changes = {
        "cluster": cluster.name,
        "job_types": types if own in digests else (job_type_settings,),
        "weights": None,
        "may_refuse": False,
        "menu": trained.menu.model_copy(update={"degrees": degrees}),
        "requested": {degree: often for degree, often in trained.requested.items() if degree in degrees} or {degrees[0]: 1.0},
    }
    return trained.model_copy(update=changes), digests.index(own) if own in digests else 0
