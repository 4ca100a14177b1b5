"""Hand-made plans, nothing but a job's name and a rank map; and for every target a plan that it can express."""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest

from meshwright.clusters.cluster import Cluster
from meshwright.errors import ExportError
from meshwright.export import export
from meshwright.jobs import load_graph
from meshwright.jobs.job import Job
from meshwright.plans import Layout, layout_plan, op_placement_plan, place
from meshwright.plans.document import PlacementPlan

from ..samples.sample_clusters import TWO_HOSTS

MakePlan = Callable[..., PlacementPlan]
PlanFor = Callable[[str], PlacementPlan]
Files = dict[str, str | bytes]


@pytest.fixture(scope="session")
def make_plan() -> MakePlan:
    """``make_plan(hosts, locals)``: one rank for each named host, on the local device at the same place in ``locals``."""

    def make(hosts: Sequence[str], local_ranks: Sequence[int] | None = None, job: str = "gpt") -> PlacementPlan:
        if local_ranks is None:
            local_ranks = [list(hosts[:rank]).count(host) for rank, host in enumerate(hosts)]
        ranks = [
            {"rank": rank, "host": host, "local_rank": local, "device": local}
            for rank, (host, local) in enumerate(zip(hosts, local_ranks, strict=True))
        ]
        return PlacementPlan.model_validate({"schema_version": 1, "job": {"name": job}, "ranks": ranks})

    return make


@pytest.fixture(scope="session")
def running_example(make_plan: MakePlan) -> PlacementPlan:
    """Two hosts, not in alphabetical order, devices of the first in reverse."""
    return make_plan(["gpu-07"] * 4 + ["gpu-03"] * 4, [3, 2, 1, 0, 0, 1, 2, 3])


def on_two_hosts(layout: str) -> PlacementPlan:
    """A transformer cut by a layout of eight ranks, with its job and its cluster."""
    cluster = Cluster.from_data(TWO_HOSTS)
    graph = load_graph("zoo:gpt2-small")
    cut = Layout.parse(layout, samples_per_step=graph.samples_per_step)
    return layout_plan(Job(graph, 100), cluster, cut, place(cluster, range(8)), why="a sample")


@pytest.fixture(scope="session")
def layout_example() -> PlacementPlan:
    """Two pipeline stages of two tensor-parallel pairs."""
    return on_two_hosts("tp=2,pp=2,dp=2,micro_batch=2")


def on_devices(job: str = "zoo:gpt2-small", num_devices: int = 2, first: int = 0) -> PlacementPlan:
    """A transformer whose layers are dealt to devices in order, equally many to each; what is before and behind to the ends."""
    graph = load_graph(job)
    layers = 1 + max(int(name[5:].split(".")[0]) for name in graph.op_names if name.startswith("layer"))
    at = [
        int(name[5:].split(".")[0]) * num_devices // layers
        if name.startswith("layer")
        else (num_devices - 1) * (name != "embedding")
        for name in graph.op_names
    ]
    device_of = first + np.array(at)
    cluster = Cluster.from_data(TWO_HOSTS)
    return op_placement_plan(Job(graph, 100), cluster, device_of, graph.order, "throughput", why="a sample")


@pytest.fixture(scope="session")
def op_example() -> PlacementPlan:
    """The layers of a transformer on two devices of one host."""
    return on_devices()


@pytest.fixture(scope="session")
def _sample_for(
    running_example: PlacementPlan, layout_example: PlacementPlan, op_example: PlacementPlan
) -> Callable[[str], tuple[PlacementPlan, Files]]:
    samples = [running_example, layout_example, on_two_hosts("tp=2,dp=4,micro_batch=2"), on_two_hosts("dp=8,micro_batch=2")]
    samples.append(op_example)

    @cache
    def choose(target: str) -> tuple[PlacementPlan, Files]:
        refused = []
        for plan in samples:
            try:
                return plan, export(plan, target)
            except ExportError as error:
                refused.append(str(error))
        raise AssertionError(f"{target} can express none of the samples: {refused}")

    return choose


@pytest.fixture(scope="session")
def plan_for(_sample_for: Callable[[str], tuple[PlacementPlan, Files]]) -> PlanFor:
    """``plan_for(target)``: the first of several plans that the target can express, the one by hand first."""
    return lambda target: _sample_for(target)[0]


@pytest.fixture(scope="session")
def exported(_sample_for: Callable[[str], tuple[PlacementPlan, Files]]) -> Callable[[str], Files]:
    """``exported(target)``: what the export of that plan writes."""
    return lambda target: dict(_sample_for(target)[1])
