"""Placing ops one after another: the partial schedule is that of the whole placement, and memory never ends in a dead end."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from meshwright.errors import ConfigError, PolicyError
from meshwright.simulation.operators.decisions.memory import needed_bytes, pack
from meshwright.simulation.operators.generators import DeviceDraw, GraphDraw, draw_graph, draw_instance
from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.simulation.operators.placement import check, held_bytes, loads_s, lower_bound, value
from meshwright.simulation.operators.schedules import arrays, critical_path_s, insert_in_order, upward_order
from meshwright.worlds.operators.episodes import OperatorEpisodes

from ...worlds.operators.played import episodes_on, next_op

GB = 1e9
SMALL = GraphDraw(num_ops=(12,))


def draws(tight: bool = True) -> DeviceDraw:
    return DeviceDraw(num_devices=(3,), memory_slack=1.3 if tight else None)


def play(batch: OperatorEpisodes, rng: np.random.Generator) -> float:
    total = 0.0
    while batch.is_live[0]:
        allowed = np.flatnonzero(batch.state.can_place[0])
        total += batch.step(np.array([rng.choice(allowed)]))[0]
    return total


@given(seed=st.integers(0, 10_000), kind=st.sampled_from(["layered", "series-parallel", "transformer", "chain"]))
def test_a_finished_episode_is_worth_its_placement(seed: int, kind: str) -> None:
    instance = draw_instance(GraphDraw(kind=kind, num_ops=(12,), width=3), draws(), "training", seed)
    rng = np.random.default_rng(seed)
    latency, throughput = (episodes_on(instance, objective) for objective in ("latency", "throughput"))
    total = play(latency, rng)
    assert not latency.is_dead[0]
    device_of = latency.device_of(0)
    check(instance, device_of)
    _, end_s = insert_in_order(arrays(instance), device_of, upward_order(instance))
    assert latency.state.end_s[0, : instance.num_ops] == pytest.approx(end_s, rel=1e-12)
    assert latency.state.value_s[0] == pytest.approx(value(instance, device_of, "latency"), rel=1e-12)
    assert latency.state.value_s[0] <= end_s.max()
    assert -total * lower_bound(instance, "latency") == pytest.approx(latency.state.value_s[0], rel=1e-9)
    total = play(throughput, rng)
    device_of = throughput.device_of(0)
    assert throughput.state.load_s[0] == pytest.approx(loads_s(instance, device_of), rel=1e-9)
    assert -total * lower_bound(instance, "throughput") == pytest.approx(value(instance, device_of, "throughput"), rel=1e-9)


@given(seed=st.integers(0, 10_000), slack=st.floats(1.05, 2.0))
def test_where_a_packing_fits_no_sequence_of_allowed_devices_ends_early(seed: int, slack: float) -> None:
    instance = draw_instance(SMALL, DeviceDraw(num_devices=(4,), memory_slack=slack), "training", seed)
    batch, rng = episodes_on(instance, "latency"), np.random.default_rng(seed)
    while batch.is_live[0]:
        of, kept = (batch.stacked, batch.state, 0), batch.state.packing.copy()
        group = batch.stacked.decided[0, batch.state.num_decided[0]]
        needed = needed_bytes(*of, group)
        for device in range(4):  # a trial that ends early says what one of all groups says
            assert pack(*of, group, device, needed) == pack(*of, group, device, np.empty(0))
        batch.state.packing[:] = kept
        batch.step(np.array([rng.choice(np.flatnonzero(batch.state.can_place[0]))]))
    assert not batch.is_dead[0]
    assert (held_bytes(instance, batch.device_of(0)) <= instance.memory_bytes).all()


def test_groups_share_a_device_and_their_later_ops_wait() -> None:
    # a (1 s) -> b (2 s) -> its backward b' (2 s) -> a' (1 s); a with a', b with b'.
    instance = OperatorInstance.of_outputs(
        "training",
        np.array([[1.0, 1.0], [2.0, 2.0], [2.0, 2.0], [1.0, 1.0]]),
        [(0, 1), (1, 2), (2, 3)],
        [GB] * 4,
        bandwidth_bytes_per_s=GB,
        group=[0, 1, 1, 0],
    )
    batch = episodes_on(instance, "latency")
    assert next_op(batch) == 0
    batch.step(np.array([0]))
    assert (next_op(batch), batch.state.value_s[0]) == (1, 1.0)  # the backward op of a has its device and waits for b
    batch.step(np.array([1]))
    # a 0-1, over 1-2, b 2-4, b' 4-6, back 6-7, a' 7-8
    assert batch.state.value_s[0] == 8.0
    assert batch.device_of(0).tolist() == [0, 1, 1, 0]


def test_a_dead_end_is_told_and_costs_one_more() -> None:
    # Three ops of 6 GB on two devices of 10: the third finds no room.
    instance = OperatorInstance.of_outputs("full", np.ones((3, 2)), [], [0.0] * 3, memory_bytes=10 * GB, resident_bytes=6 * GB)
    batch = episodes_on(instance, "latency")
    batch.step(np.array([0]))
    reward = batch.step(np.array([1]))[0]
    assert batch.is_dead[0]
    assert not batch.is_live[0]
    assert reward == -1.0  # the second op runs beside the first, so the value does not grow


def test_a_device_that_may_not_be_chosen_is_refused() -> None:
    batch = episodes_on(draw_instance(SMALL, draws(), "test", 0), "latency")
    for device in (-1, 3):
        with pytest.raises(PolicyError, match="may not have"):
            batch.step(np.array([device]))


def test_instances_of_splits_and_seeds_differ_and_repeat() -> None:
    of = ((split, seed) for split in ("test", "validation", "training") for seed in range(3))
    result = {each: draw_instance(SMALL, draws(), *each).digest for each in of}
    assert len(set(result.values())) == 9
    assert draw_instance(SMALL, draws(), "test", 1).digest == result["test", 1]


@given(num_ops=st.integers(2, 60), seed=st.integers(0, 10_000))
def test_a_chain_has_as_many_ops_as_wanted_and_forks_into_two_at_most(num_ops: int, seed: int) -> None:
    draw = GraphDraw(kind="chain", num_ops=(num_ops,))
    edges = draw_graph(draw, np.random.default_rng(seed)).edges
    assert num_ops == draw.most_ops == edges.max() + 1
    assert (edges[:, 0] < edges[:, 1]).all()
    assert set(edges[:, 1].tolist()) == set(range(1, num_ops))
    assert np.bincount(edges[:, 0]).max() <= 2
    assert np.bincount(edges[:, 1]).max() <= 2
    assert len({*map(tuple, edges.tolist())}) == len(edges)


def test_a_mixture_has_every_kind_and_layered_graphs_most_often() -> None:
    draw = GraphDraw(kind="mixed", num_ops=(10,), width=2)
    drawn = [draw_graph(draw, np.random.default_rng(seed)) for seed in range(200)]
    kinds = [each.name.rpartition("-")[0] for each in drawn]
    assert set(kinds) == {"layered", "series-parallel", "transformer", "chain"}
    assert 80 <= kinds.count("layered") <= 120
    assert max(len(each.op_s) for each in drawn) <= draw.most_ops


def test_communication_is_as_large_as_asked_for() -> None:
    for ratio in (1.0, 4.0):
        devices = DeviceDraw(num_devices=(4,), communication_to_computation=(ratio, ratio), memory_slack=None)
        instance = draw_instance(GraphDraw(num_ops=(60,)), devices, "test", 3)
        apart = ~np.eye(4, dtype=bool)
        output = np.zeros(60)
        output[instance.edges[:, 0]] = instance.edge_bytes
        sent = output[output > 0].mean() * (1 / instance.bandwidth_bytes_per_s[apart]).mean() + 5e-6
        assert sent / instance.times_s.mean() == pytest.approx(ratio, rel=0.35)  # outputs that nobody reads count in the draw


def test_memory_is_of_one_of_the_slacks_and_a_single_one_draws_as_alone() -> None:
    of = [draw_instance(SMALL, DeviceDraw(num_devices=(3,), memory_slack=(1.2, 2.0, None)), "test", seed) for seed in range(30)]
    result = {round(float(each.memory_bytes.sum() / each.resident_bytes.sum()), 6) for each in of}
    assert result == {1.2, 2.0, np.inf}
    alone, single = (draw_instance(SMALL, DeviceDraw(num_devices=(3,), memory_slack=each), "test", 0) for each in (1.5, (1.5,)))
    assert alone.digest == single.digest
    for wrong in ((), (0.5,), 0.5, "much"):
        with pytest.raises(ValidationError, match="memory_slack"):
            DeviceDraw(memory_slack=wrong)


def test_too_tight_a_memory_is_told() -> None:
    with pytest.raises(ConfigError, match=r"memory_slack.*1\.0"):
        draw_instance(GraphDraw(num_ops=(30,), memory_sigma=1.0), DeviceDraw(num_devices=(8,), memory_slack=1.0), "test", 0)


def test_the_bound_is_below_every_value() -> None:
    rng = np.random.default_rng(0)
    for seed in range(5):
        instance = draw_instance(SMALL, draws(tight=False), "test", seed)
        assert lower_bound(instance, "latency") >= critical_path_s(instance)
        for objective in ("latency", "throughput"):
            device_of = rng.integers(3, size=12)
            assert value(instance, device_of, objective) >= lower_bound(instance, objective)


@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(["layered", "transformer"]),
    objective=st.sampled_from(["latency", "throughput"]),
)
def test_the_op_that_is_shown_is_the_one_that_gets_the_device(seed: int, kind: str, objective: str) -> None:
    instance = draw_instance(GraphDraw(kind=kind, num_ops=(12,), width=3), draws(), "training", seed)
    batch, rng = episodes_on(instance, objective), np.random.default_rng(seed)
    while batch.is_live[0]:
        op, before = next_op(batch), batch.state.device_of[0][instance.group].copy()
        for device in np.flatnonzero(batch.state.can_place[0]):
            assert batch.state.candidates[0, device, 4] > 0.0
            length = instance.times_s[op, device]
            unit_s = batch.stacked.feature_unit_s[0]
            assert batch.state.candidates[0, device, 4] == pytest.approx(length / (length + unit_s), rel=1e-5)
        device = int(rng.choice(np.flatnonzero(batch.state.can_place[0])))
        batch.step(np.array([device]))
        changed = np.flatnonzero(batch.state.device_of[0][instance.group] != before)
        assert op in changed
        assert (instance.group[changed] == instance.group[op]).all()
        assert batch.state.device_of[0][instance.group[op]] == device


def test_room_by_hand() -> None:
    """Three ops of 4, 2 and 2 GB on devices of 8 and 4 GB; the first goes to device 0."""
    instance = OperatorInstance.of_outputs(
        "three",
        np.ones((3, 2)),
        [(0, 1), (1, 2)],
        [0.0, 0.0, 0.0],
        memory_bytes=np.array([8 * GB, 4 * GB]),
        resident_bytes=np.array([4 * GB, 2 * GB, 2 * GB]),
    )
    batch = episodes_on(instance, "latency")
    room = batch.state.candidates[0, :, 13:]
    assert room[0] == pytest.approx([8 / 16, 8 / 12, 4 / 8, 8 / 12])
    assert room[1] == pytest.approx([4 / 12, 4 / 12, 4 / 4, 8 / 12])
    batch.step(np.array([0]))
    assert room[0] == pytest.approx([4 / 8, 4 / 8, 2 / 4, 4 / 8])
    assert room[1] == pytest.approx([4 / 8, 4 / 8, 2 / 4, 4 / 8])


def test_without_limits_room_is_the_same_everywhere() -> None:
    instance = draw_instance(SMALL, draws(tight=False), "training", 0)
    batch = episodes_on(instance, "latency")
    assert batch.state.candidates[0, :, 13:] == pytest.approx(np.array([[1.0, 1 / 3, 0.0, 0.0]] * 3))
