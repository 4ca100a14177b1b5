"""Laws of the forms of a placement's value: the default is the planner's own, sharing links shortens nothing."""

from __future__ import annotations

import numpy as np
import pytest

from meshwright.planners.operators.place import place
from meshwright.planners.operators.request import PlacementRequest
from meshwright.simulation.operators.forms import form_value_s
from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.simulation.operators.placement import lower_bound, placed
from meshwright.worlds.operators.benchmark import load_placement_benchmark


def two_devices(times_s, edges, output_bytes) -> OperatorInstance:
    """Links of 1 GB/s."""
    return OperatorInstance.of_outputs("two", np.array([times_s, times_s]).T, edges, output_bytes, bandwidth_bytes_per_s=1e9)


def test_the_fork_worked_by_hand_shares_no_link():
    # a ends 1, c starts 2, ends 5, its output arrives 6, d 6-7; one message each way, so none waits for another.
    fork = two_devices([1.0, 3.0, 3.0, 1.0], [(0, 1), (0, 2), (1, 3), (2, 3)], [1e9] * 4)
    made = placed(fork, np.array([0, 0, 1, 0]), "latency", "given")
    assert form_value_s(fork, made, "independent") == made.value_s == pytest.approx(7.0)
    assert form_value_s(fork, made, "fair") == pytest.approx(7.0)


def test_two_messages_share_the_link_worked_by_hand():
    # a sends 1-2 and b from 1.5. Alone b arrives 2.5 and d ends 3.5; sharing, a arrives 2.5, b has half a GB left: 3, d ends 4.
    instance = two_devices([1.0, 0.5, 1.0], [(0, 2), (1, 2)], [1e9] * 3)
    made = placed(instance, np.array([0, 0, 1]), "latency", "given", order=np.arange(3))
    assert made.value_s == pytest.approx(3.5)
    assert form_value_s(instance, made, "fair") == pytest.approx(4.0)


@pytest.mark.parametrize("seed", range(6))
def test_sharing_links_shortens_nothing_and_no_form_is_below_its_bound(seed):
    latency = load_placement_benchmark("preset:latency-tight").placement.instance("test", seed)
    made = place(latency, "heft", PlacementRequest())
    assert form_value_s(latency, made, "independent") == made.value_s
    assert form_value_s(latency, made, "fair") >= made.value_s * (1 - 1e-9)
    throughput = load_placement_benchmark("preset:throughput-tight").placement.instance("test", seed)
    made = place(throughput, "multilevel", PlacementRequest("throughput"))
    assert form_value_s(throughput, made, "max-load") == made.value_s
    assert form_value_s(throughput, made, "simulated") >= lower_bound(throughput, "throughput") * (1 - 1e-9)


def test_a_chain_that_runs_worked_by_hand():
    # Cut in the middle one micro-batch takes 2 + 1 + 2 s, and two are under way: one every 2.5 s.
    chain = two_devices([1.0] * 4, [(0, 1), (1, 2), (2, 3)], [1e9] * 4)
    made = placed(chain, np.array([0, 0, 1, 1]), "throughput", "given", order=np.arange(4))
    assert made.value_s == pytest.approx(3.0)
    assert form_value_s(chain, made, "simulated") == pytest.approx(2.5)
