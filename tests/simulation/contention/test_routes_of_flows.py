"""Where flows go decides which of them meet: collisions worked by hand, and what holds on whatever paths they take."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.routing import Routing
from meshwright.costs.settings import CostSettings
from meshwright.jobs import load_graph
from meshwright.plans.splitting.op_splits import uniform_splits
from meshwright.simulation.contention import concurrent_jobs
from meshwright.simulation.contention.placed_job import PlacedJob
from meshwright.simulation.decision_space.space import decision_space
from meshwright.simulation.step.messages import Messages
from meshwright.simulation.step.timeline import simulate

from ...draws import draws
from ...oracles import concurrent_reference
from ..execution_samples import clos, drawn_jobs, execution_of, sent

SCHEDULERS = [concurrent_jobs.schedule, concurrent_reference.schedule]

# Six hosts, three to a leaf, two spines: cards of 2 GB/s, uplinks of 3 x 2 / (1.5 x 2) = 2 GB/s. D-mod-2 sends what goes
# to hosts 3 and 5 through spine 1, what goes to host 4 through spine 0.
WIDE = {"num_hosts": 6, "hosts_per_leaf": 3, "num_spines": 2, "oversubscription": 1.5}
routings = st.one_of(st.just(Routing()), st.builds(Routing, st.just("ecmp"), st.integers(0, 99)), st.just(Routing("spread")))


def two_flows(routing):
    """4 GB from host 0 to 3 and from host 1 to 5."""
    phases = [sent(0, 2, 4e9), sent(1, 3, 4e9)]
    execution = execution_of([0.0] * 2, num_ranks=4, phases=phases, members=[(0, 2), (1, 3)])
    return PlacedJob(execution, np.array([0, 1, 3, 5]), routing=routing)


def is_parted(seed):
    routing, cluster = Routing("ecmp", seed), clos(**WIDE)
    return routing.number(cluster, 0, 3) != routing.number(cluster, 1, 5)


@pytest.mark.parametrize("schedule", SCHEDULERS)
def test_flows_that_collide_on_an_uplink_take_twice_as_long_until_a_hash_parts_them(schedule):
    def finishes(routing):
        ((_, finish_s),) = schedule([two_flows(routing)], clos(**WIDE))
        return finish_s.tolist()

    # one uplink of 2 GB/s for both: 1 GB/s each, 4 s; one for each: 2 s
    assert finishes(Routing()) == [4.0, 4.0]
    parted = next(seed for seed in range(99) if is_parted(seed))
    assert finishes(Routing("ecmp", parted)) == [2.0, 2.0]
    together_still = next(seed for seed in range(99) if not is_parted(seed))
    assert finishes(Routing("ecmp", together_still)) == [4.0, 4.0]
    # halves of both on each uplink: 4 GB there at 2 GB/s
    assert finishes(Routing("spread")) == [2.0, 2.0]


@pytest.mark.parametrize("schedule", SCHEDULERS)
def test_a_flow_that_is_spread_waits_for_its_last_part(schedule):
    # Host 0 sends 4 GB to host 3, half through each spine. Host 1 sends 2 GB to host 4 by D-mod-2 through spine 0, in a job
    # of its own: the uplink to spine 0 is shared, 1 GB/s each. Host 0's card of 2 GB/s carries 1 GB/s of either part. All
    # end at 2 s.
    spread = PlacedJob(
        execution_of([0.0], num_ranks=2, phases=[sent(0, 1, 4e9)], members=[(0, 1)]), np.array([0, 3]), routing=Routing("spread")
    )
    plain = PlacedJob(execution_of([0.0], num_ranks=2, phases=[sent(0, 1, 2e9)], members=[(0, 1)]), np.array([1, 4]))
    assert [finish_s.tolist() for _, finish_s in schedule([spread, plain], clos(**WIDE))] == [[2.0], [2.0]]


@draws(15)
@given(st.integers(0, 2**32), routings)
def test_the_kernel_does_what_its_reference_does_on_any_paths(seed, routing):
    jobs, cluster = drawn_jobs(seed)
    jobs = [replace(job, routing=routing) for job in jobs]
    for (start_s, finish_s), (begin_s, end_s) in zip(
        concurrent_jobs.schedule(jobs, cluster), concurrent_reference.schedule(jobs, cluster), strict=True
    ):
        assert start_s == pytest.approx(begin_s, rel=1e-9, abs=1e-9)
        assert finish_s == pytest.approx(end_s, rel=1e-9, abs=1e-9)


@draws(8)
@given(st.integers(0, 2**32), st.data())
def test_parts_hold_all_bytes_in_the_same_phases(seed, data):
    rng = np.random.default_rng(seed)
    messages = Messages.from_members([(0, 1), (), (1, 2)], [(*sent(0, 1, 3e9), *sent(1, 0, rng.random())), (), sent(2, 1, 5e9)])
    counts = np.array(data.draw(st.lists(st.integers(1, 5), min_size=3, max_size=3)))
    parts = messages.parted(counts)
    parts.check(3, 3)
    assert parts.num_flows == counts.sum()
    whole = np.add.reduceat(parts.flow_bytes, np.cumsum([0, *counts[:-1]]))
    assert whole == pytest.approx(messages.flow_bytes, rel=1e-12)
    assert parts.flow_task.tolist() == np.repeat(messages.flow_task, counts).tolist()
    assert parts.sender.tolist() == np.repeat(messages.sender, counts).tolist()


def test_blocks_of_one_class_take_equally_long_on_hashed_paths():
    cluster = clos(num_hosts=8, hosts_per_leaf=2, num_spines=2, oversubscription=2.0)
    costs = CostSettings(routing="ecmp", routing_seed=4, contention="fair", collectives="halving-doubling")
    hashed, plain = decision_space(cluster, 4, Routing.from_settings(costs)), decision_space(cluster, 4)
    assert len(hashed.representative) > len(plain.representative)
    assert hashed.digest != plain.digest
    graph = load_graph("zoo:alexnet")
    for number, block in enumerate(hashed.representative.tolist()):
        for other in np.flatnonzero(hashed.placement_class == number)[1:].tolist():
            steps = [
                simulate(graph, cluster, uniform_splits(graph, len(devices)), devices, costs).step_s
                for devices in (hashed.block(block), hashed.block(other))
            ]
            assert steps[0] == steps[1]
