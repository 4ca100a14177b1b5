"""Devices far slower than a policy met in training are left out where the others can take all ops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.evaluation.evaluate import evaluate
from meshwright.models.graph.graph_player import PlayMode
from meshwright.models.graph.saved_graph_policy import SavedGraphPolicy, load_graph_player
from meshwright.models.policy_files import policy_path
from meshwright.planners.operators.place import place
from meshwright.planners.operators.request import PlacementRequest
from meshwright.simulation.operators.generators import DeviceDraw, GraphDraw, draw_instance
from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.simulation.operators.placement import OperatorPlacement
from meshwright.worlds.operators.benchmark import load_placement_benchmark
from meshwright.worlds.operators.world import FamiliarPart, OperatorWorld, familiar_part, far_slower

from ...draws import draws

MOST_SLOWDOWN = np.exp(2.0)
SLOW_HOSTS = DeviceDraw(num_devices=(2, 4), num_hosts=(1, 2), host_slowdown=(21.0, 80.0))


def by_heft(instance: OperatorInstance) -> OperatorPlacement:
    return place(instance, "heft", PlacementRequest())


def drawn(seed: int, devices: DeviceDraw) -> OperatorInstance:
    return draw_instance(GraphDraw(kind="mixed", num_ops=(12, 30)), devices, "test", seed)


@given(st.integers(0, 10**6), st.sampled_from([0.0, 1.0, (0.0, 2.0)]), st.sampled_from([0, 2]))
@draws(30)
def test_no_drawn_device_is_slower_than_the_draw_says(seed: int, spread: float | tuple[float, ...], hosts: int) -> None:
    devices = DeviceDraw(num_devices=(2, 4), speed_spread=spread, num_hosts=(0, hosts), host_slowdown=(5.0, 9.0))
    assert not far_slower(drawn(seed, devices), devices.most_slowdown).any()


@pytest.mark.parametrize("how", ["greedy", "sample-2", "search-0.01"])
@pytest.mark.parametrize("devices", [SLOW_HOSTS, DeviceDraw(num_devices=(3,))])
def test_the_shipped_policy_is_no_worse_than_heft(devices: DeviceDraw, how: str) -> None:
    player, _ = load_graph_player("shipped:operators-latency", OperatorWorld("latency"))
    ruled = []
    for seed in range(8):
        instance, heft = drawn(seed, devices), by_heft(drawn(seed, devices))
        result = player.place(instance, PlayMode.from_text(how))
        assert result.value_s <= heft.value_s * (1 + 1e-12)
        ruled.append("heft's placement is better" in result.note)
        if how != "search-0.01":  # its moves may be to any device
            assert ("left out" in result.note) == (devices is SLOW_HOSTS)
            assert result.device_of.tolist() == heft.device_of.tolist() if ruled[-1] else not hosts_of(instance, result)
    assert how == "search-0.01" or 0 < sum(ruled) < 8


def hosts_of(instance: OperatorInstance, found: OperatorPlacement) -> int:
    return int(instance.is_host[found.device_of].sum())


def test_edges_dealt_out_anew_are_not_made_up_for_by_heft() -> None:
    player, mode = load_graph_player("shipped:operators-latency@shuffled", OperatorWorld("latency"))
    worse = 0
    for seed in range(6):
        instance = drawn(seed, SLOW_HOSTS)
        result = player.place(instance, mode, seed)
        assert not hosts_of(instance, result)
        assert "better" not in result.note
        worse += result.value_s > by_heft(instance).value_s
    assert worse


def test_ops_that_the_fast_devices_cannot_take_stay_where_heft_puts_them() -> None:
    times_s = np.array([[1.0, 1.0, 20.0]] * 6)
    times_s[0, :2] = np.inf
    for instance in (
        OperatorInstance.of_outputs("only there", times_s, [(0, 1), (1, 2)], [1.0] * 6),
        OperatorInstance.of_outputs(
            "memory", times_s[1:].copy(), [(0, 1), (1, 2)], [1.0] * 5, memory_bytes=[2.0, 2.0, 9.0], resident_bytes=1.0
        ),
    ):
        heft = by_heft(instance)
        part = familiar_part(instance, MOST_SLOWDOWN, by_heft)
        assert isinstance(part, FamiliarPart)
        assert part.devices.tolist() == [0, 1, 2]
        assert (np.isfinite(part.instance.times_s[:, 2]) == (heft.device_of == 2)).all()
        made = part.of_whole(by_heft(part.instance))
        assert made.value_s <= heft.value_s
        assert "heft puts there" in made.note


def test_where_no_device_is_far_slower_nothing_changes() -> None:
    assert familiar_part(instance := drawn(0, DeviceDraw(num_devices=(4,))), MOST_SLOWDOWN, by_heft).instance is instance


def test_hosts_are_left_out_where_none_were_met() -> None:
    instance = drawn(0, DeviceDraw(num_devices=(4,), num_hosts=(1,), host_slowdown=(1.0, 2.0)))
    assert familiar_part(instance, 100.0, by_heft).instance is instance
    assert not familiar_part(instance, 100.0, by_heft, met_hosts=False).instance.is_host.any()


def test_files_say_what_their_policies_met() -> None:
    saved = SavedGraphPolicy.load(policy_path("shipped:operators-latency", ".operators.pt", "ops"))
    assert saved.trained["most_slowdown"] == pytest.approx(MOST_SLOWDOWN)


def test_an_evaluation_says_on_how_many_instances_devices_were_left_out() -> None:
    changes = [
        "placement.instances.num_ops=[8]",
        "placement.devices.num_devices=[3]",
        "placement.devices.num_hosts=[1]",
        "placement.devices.host_slowdown=[21, 30]",
        "best_known_s=0.01",
        "policies=[heft]",
    ]
    benchmark = load_placement_benchmark("preset:latency-tight", changes=changes)
    results = evaluate(benchmark, ["shipped:operators-latency"], num_seeds=2).results
    assert any(each.startswith("shipped:operators-latency on ") and "left out" in each for each in results["remarks"])
