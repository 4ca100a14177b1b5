"""Ops that the policy chooses, and refinement: as a plain implementation does it, with exact masks; what is refused."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, reject
from hypothesis import strategies as st

from meshwright.envs.operators.batch import PlacementBatch
from meshwright.envs.operators.benchmark import PlacementBenchmark, PlacementSettings, load_placement_benchmark
from meshwright.envs.operators.env import OperatorPlacementEnv
from meshwright.errors import ConfigError, GraphError, PolicyError
from meshwright.simulation.operators.generators import DeviceDraw, GraphDraw, draw_instance
from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.simulation.operators.placement import held_bytes, lower_bound

from ...oracles.operators.choices import PlainChoices
from ..side_by_side import play_both

ID = "meshwright/OperatorPlacement-v0"
SMALL = PlacementSettings(instances=GraphDraw(num_ops=(6, 10)), devices=DeviceDraw(num_devices=(2, 3)))
OBJECTIVES = ["latency", "throughput"]


def small(objective: str = "latency", order: str = "policy", refine_steps: int = 0) -> PlacementBenchmark:
    changed = {"objective": objective, "order": order, "refine_steps": refine_steps}
    return PlacementBenchmark(name="small", placement=SMALL.model_copy(update=changed))


def drawn(seed: int, kind: str, slack: float | None, is_grouped: bool) -> OperatorInstance:
    """A small instance; grouped, some ops must share a device."""
    devices = DeviceDraw(num_devices=(3,), memory_slack=slack)
    made = draw_instance(GraphDraw(kind=kind, num_ops=(9,), width=2), devices, "training", seed)
    if not is_grouped:
        return made
    of = np.random.default_rng(seed).integers(0, made.num_ops, made.num_ops)
    group = np.unique(np.where(of < 4, of, np.arange(made.num_ops) + 4), return_inverse=True)[1]
    first = {number: at for at, number in enumerate(dict.fromkeys(group.tolist()))}
    output = np.zeros(made.num_ops)
    output[made.edges[:, 0]] = made.edge_bytes
    try:
        return OperatorInstance.of_outputs(
            "grouped",
            made.times_s,
            made.edges,
            output,
            latency_s=made.latency_s,
            bandwidth_bytes_per_s=made.bandwidth_bytes_per_s,
            memory_bytes=1.4 * made.memory_bytes,
            resident_bytes=made.resident_bytes,
            workspace_bytes=0.3 * made.resident_bytes[::-1],
            group=[first[number] for number in group.tolist()],
        )
    except GraphError:  # a group that no device holds is no instance
        reject()


@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(["layered", "transformer", "chain"]),
    slack=st.sampled_from([None, 1.1, 1.3, 2.0]),
    is_grouped=st.booleans(),
    objective=st.sampled_from(OBJECTIVES),
    refine_steps=st.sampled_from([0, 3]),
)
def test_every_choice_is_as_a_plain_implementation_makes_it(seed, kind, slack, is_grouped, objective, refine_steps) -> None:
    instance = drawn(seed, kind, slack, is_grouped)
    batch = PlacementBatch([instance], objective, 1, order="policy", refine_steps=refine_steps)
    plain, rng = PlainChoices(instance, objective, refine_steps), np.random.default_rng(seed)
    batch.begin(np.zeros(1, np.int64))
    while batch.is_live[0]:
        possible = {*map(tuple, np.argwhere(batch.state.op_can[0]).tolist())}
        assert possible == plain.possible()
        op, device = sorted(possible)[rng.integers(len(possible))]
        fell_s = plain.choose(op, device)
        reward = batch.step(np.array([device]), np.array([op]))[0] + float(batch.is_dead[0])
        scale_s = max(lower_bound(instance, objective), 1e-30)
        assert reward == pytest.approx(fell_s / scale_s, rel=1e-9, abs=1e-9)
        assert batch.state.value_s[0] == pytest.approx(plain.value_s, rel=1e-9)
        if len(plain.device) < instance.num_groups or not refine_steps:
            ends = {each: batch.state.end_s[0, each] for each in plain.when}
            if objective == "latency":
                assert ends == pytest.approx({each: end for each, (_, end) in plain.when.items()})
    assert not plain.possible()
    assert batch.is_dead[0] == (not plain.is_placed)
    if plain.is_placed:
        assert batch.device_of(0).tolist() == plain.device_of().tolist()
        made = batch.placement(0, "mine")
        assert made.value_s == pytest.approx(plain.value_s, rel=1e-9)
        assert (held_bytes(instance, made.device_of) <= instance.memory_bytes * (1 + 1e-9)).all()


@given(seed=st.integers(0, 10_000), order=st.sampled_from(["upward-rank", "topological"]), objective=st.sampled_from(OBJECTIVES))
def test_ops_chosen_in_a_given_order_are_placed_as_in_that_order(seed: int, order: str, objective: str) -> None:
    instance, rng = drawn(seed, "layered", 1.3, False), np.random.default_rng(seed)
    given_order = PlacementBatch([instance], objective, 1, order=order)
    chosen = PlacementBatch([instance], objective, 1, order="policy")
    refined = PlacementBatch([instance], objective, 1, order=order, refine_steps=1)
    for batch in (given_order, chosen, refined):
        batch.begin(np.zeros(1, np.int64))
    while given_order.is_live[0]:
        op, m = int(given_order.lead[0]), instance.num_devices
        assert refined.state.is_open[0].nonzero()[0].tolist() == [op]
        for batch in (chosen, refined):
            assert batch.state.op_can[0, op].tolist() == given_order.state.can_place[0].tolist()
            assert batch.state.op_candidates[0, op].tolist() == given_order.state.candidates[0].tolist()
        device = int(rng.choice(np.flatnonzero(given_order.state.can_place[0, :m])))
        rewards = [batch.step(np.array([device]), np.array([op]))[0] for batch in (given_order, chosen, refined)]
        assert rewards[1:] == pytest.approx(rewards[:1] * 2, abs=1e-12)
    assert not chosen.is_live[0]
    assert refined.is_live[0]


def test_a_move_by_hand() -> None:
    """Two ops of 1 s one after the other, 1 GB between them at 1 GB/s: apart 3 s, together 2 s; device 1 is twice as fast."""
    instance = OperatorInstance.of_outputs(
        "two",
        np.array([[1.0, 0.5], [1.0, 0.5]]),
        [(0, 1)],
        [1e9, 0.0],
        bandwidth_bytes_per_s=1e9,
        memory_bytes=2.0,
        resident_bytes=1.0,
    )
    batch = PlacementBatch([instance], "latency", 1, order="policy", refine_steps=3)
    batch.begin(np.zeros(1, np.int64))
    assert batch.state.is_open[0].tolist() == [True, False]
    batch.step(np.array([0]), np.array([0]))
    batch.step(np.array([1]), np.array([1]))
    assert batch.state.value_s[0] == 2.5  # 0-1, over 1-2, 2-2.5
    assert batch.state.op_can[0].all()
    gain, slack = batch.state.op_features[0, :, 5], batch.state.op_features[0, :, 6]
    assert gain[0] == pytest.approx(0.5 / (0.5 + batch.stacked.feature_unit_s[0]))  # on device 1 it would end at 0.5
    assert slack.tolist() == [0.0, 0.0]
    assert batch.step(np.array([1]), np.array([0]))[0] == pytest.approx(1.5)  # both on device 1: 1 s, in bounds of 1 s
    assert batch.step(np.array([1]), np.array([0]))[0] == 0.0  # stays
    assert batch.is_live[0]
    assert batch.step(np.array([0]), np.array([1]))[0] == pytest.approx(-1.5)  # 0-0.5, over 0.5-1.5, 1.5-2.5
    assert not batch.is_live[0]
    assert batch.state.value_s[0] == 2.5


def test_slack_by_hand() -> None:
    """Ops of 1 s and 1 s one after the other on device 0, one of 3 s on device 1: the first may end a second later, not two."""
    instance = OperatorInstance.of_outputs("three", np.array([[1.0] * 2, [1.0] * 2, [3.0] * 2]), [], [0.0] * 3)
    batch = PlacementBatch([instance], "latency", 1, order="policy", refine_steps=1)
    batch.begin(np.zeros(1, np.int64))
    for op, device in ((0, 0), (1, 0), (2, 1)):
        batch.step(np.array([device]), np.array([op]))
    unit = batch.stacked.feature_unit_s[0]
    assert batch.state.op_features[0, :, 6] == pytest.approx([1 / (1 + unit), 1 / (1 + unit), 0.0])


def test_an_op_whose_producers_wait_or_that_no_device_holds_may_not_be_chosen() -> None:
    batch = PlacementBatch([drawn(0, "layered", 1.3, False)], "latency", 1, order="policy")
    batch.begin(np.zeros(1, np.int64))
    closed = int(np.flatnonzero(~batch.state.is_open[0])[0])
    for op, device in ((closed, 0), (-1, 0), (0, 3), (9, 0)):
        with pytest.raises(PolicyError, match="may not be chosen"):
            batch.step(np.array([device]), np.array([op]))


def test_an_episode_that_was_left_leaves_nothing_behind() -> None:
    large, little = (draw_instance(GraphDraw(num_ops=(n,)), DeviceDraw(num_devices=(3,)), "training", n) for n in (12, 4))
    used, fresh = (PlacementBatch([large, little], "latency", 1, order="policy", refine_steps=1) for _ in range(2))
    used.begin(np.zeros(1, np.int64))
    for _ in range(6):
        op = int(used.lead[0])
        used.step(np.array([used.state.op_can[0, op].argmax()]), np.array([op]))
    for batch in (used, fresh):
        batch.begin(np.ones(1, np.int64))
    for name in ("is_open", "op_can", "op_candidates", "op_features"):
        assert getattr(used.state, name).tolist() == getattr(fresh.state, name).tolist(), name


def test_where_no_op_fits_any_more_the_episode_ends() -> None:
    instance = OperatorInstance.of_outputs("full", np.ones((3, 2)), [], [0.0] * 3, memory_bytes=10.0, resident_bytes=6.0)
    batch = PlacementBatch([instance], "latency", 1, order="policy", refine_steps=2)
    batch.begin(np.zeros(1, np.int64))
    batch.step(np.array([0]), np.array([2]))
    assert batch.step(np.array([1]), np.array([0]))[0] == -1.0
    assert batch.is_dead[0]


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(("order", "refine_steps"), [("policy", 0), ("policy", 3), ("topological", 2), ("topological", 0)])
def test_gymnasium_accepts_it(objective: str, order: str, refine_steps: int) -> None:
    check_env(gymnasium.make(ID, benchmark=small(objective, order, refine_steps), render_mode="ansi").unwrapped)


@pytest.mark.every(3)
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize(("objective", "order", "refine_steps"), [("latency", "policy", 2), ("throughput", "upward-rank", 3)])
def test_side_by_side_is_as_one_by_one(objective, order, refine_steps, mode) -> None:
    benchmark = small(objective, order, refine_steps)
    ours = gymnasium.make_vec(ID, num_envs=3, benchmark=benchmark, num_instances=3, autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: OperatorPlacementEnv(benchmark, num_instances=3)] * 3, autoreset_mode=mode)
    assert play_both(ours, theirs, num_steps=40) >= 6


def test_an_episode_sums_to_its_value_and_its_actions_are_pairs() -> None:
    env, rng = OperatorPlacementEnv(small(refine_steps=4)), np.random.default_rng(0)
    assert env.action_space.n == 30
    for seed in range(4):
        seen, info = env.reset(seed=seed)
        total, over, refined = 0.0, False, []
        while not over:
            assert env.observation_space.contains(seen)
            assert (seen["action_mask"] > 0).tolist() == env.action_masks().tolist()
            action = int(rng.choice(np.flatnonzero(seen["action_mask"])))
            was, refined = seen["placed"][action // 3], [*refined, float(seen["refined"][0])]
            seen, reward, over, _, info = env.step(action)
            assert was == 0 or refined[-1] >= 0
            assert seen["placed"][action // 3] == 1 + action % 3
            total += float(reward)
        assert -total * info["bound_s"] == pytest.approx(info["value_s"])
        assert refined[-4:] == pytest.approx([0.0, 0.25, 0.5, 0.75])
        assert len(refined) == env.instance.num_ops + 4
    env.reset(seed=0)
    assert env.step(29)[4]["was_possible"] is False  # the last op waits for others


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("placement.order=random", "upward-rank"),
        ("placement.order=1", "order"),
        ("placement.refine_steps=-1", "0"),
        ("placement.refine_steps=10001", "10000"),
        ("placement.refine_steps=some", "refine_steps"),
        ("placement.refine=3", "refine_steps"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(change: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told) as found:
        load_placement_benchmark("preset:latency-tight", changes=[change])
    assert "\n" not in str(found.value)
