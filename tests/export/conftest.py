"""Hand-made plans: nothing but a job's name and a rank map."""

from collections.abc import Callable, Sequence

import pytest

from meshwright.plans.document import PlacementPlan

MakePlan = Callable[..., PlacementPlan]


@pytest.fixture(scope="session")
def make_plan() -> MakePlan:
    """``make_plan(hosts, locals)``: one rank for each host named, on the device of the host given beside it."""

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
