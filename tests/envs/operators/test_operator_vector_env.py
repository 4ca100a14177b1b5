"""`PlacementVectorEnv`: bit for bit what single environments show; its observation as a plain implementation finds it."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from meshwright.envs.operators.batch import PlacementBatch
from meshwright.envs.operators.env import OperatorPlacementEnv
from meshwright.envs.operators.vector_env import PlacementVectorEnv
from meshwright.errors import ConfigError
from meshwright.simulation.operators.generators import GraphDraw
from meshwright.simulation.operators.schedules import upward_order

from ..side_by_side import play_both
from .test_operator_env import SMALL, small

ID = "meshwright/OperatorPlacement-v0"


@pytest.mark.every(3)
@pytest.mark.parametrize("num_instances", [None, 3])
@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_it_shows_what_gymnasium_shows_of_single_environments(objective, mode, num_instances) -> None:
    benchmark = small(objective)
    ours = gymnasium.make_vec(ID, num_envs=3, benchmark=benchmark, num_instances=num_instances, autoreset_mode=mode)
    theirs = SyncVectorEnv([lambda: OperatorPlacementEnv(benchmark, num_instances=num_instances)] * 3, autoreset_mode=mode)
    assert play_both(ours, theirs, num_steps=40) >= 9


def test_one_instance_is_placed_again_and_again() -> None:
    instance = SMALL.instance("test", 4)
    theirs = SyncVectorEnv([lambda: OperatorPlacementEnv(small(), instance=instance)] * 2)
    assert play_both(PlacementVectorEnv(2, small(), instance=instance), theirs, num_steps=30) >= 4
    with pytest.raises(ConfigError, match="num_instances: must be at least 1"):
        PlacementVectorEnv(2, small(), num_instances=0)


def test_room_for_more_edges_changes_no_episode_under_way() -> None:
    few, many = (SMALL.model_copy(update={"instances": GraphDraw(num_ops=(10,), parents=p)}) for p in ((1, 1), (6, 9)))
    alone = PlacementBatch([few.instance("test", 0)], "throughput", 1)
    alone.begin(np.zeros(1, np.int64))
    wide = PlacementBatch.with_room(2, "throughput", 1, (10, 3))
    wide.put(0, alone.instances[0])
    wide.begin_with(0, 0)
    edges_before = wide.stacked.producer.shape[1]
    for step in range(10):
        action = alone.state.can_place[:, :].argmax(axis=1)
        assert alone.step(action) == wide.step(action)
        if step == 4:
            crowded = next(each for seed in range(50) if len((each := many.instance("test", seed)).edges) > 20)
            wide._widen(crowded)
            assert wide.stacked.producer.shape[1] >= 2 * edges_before
    assert wide.device_of(0).tolist() == alone.device_of(0).tolist()
    assert wide.state.value_s[0] == alone.state.value_s[0]


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_the_observation_is_what_a_plain_implementation_finds(objective) -> None:
    env = OperatorPlacementEnv(small(objective))
    rng = np.random.default_rng(0)
    for seed in range(4):
        seen, _ = env.reset(seed=seed)
        over = False
        while not over:
            seen, _, over, _, _ = env.step(int(rng.choice(np.flatnonzero(seen["action_mask"]))))
            plain = observation(env)
            for key, values in plain.items():
                np.testing.assert_allclose(seen[key], values, rtol=1e-6, atol=1e-7, err_msg=key)


def observation(env):
    batch, instance = env._batch, env.instance
    state, scale = batch.state, batch.stacked.scale_s[0]
    (most_ops, _), (most_devices, _) = env.observation_space["op_dynamic"].shape, env.observation_space["candidate"].shape
    n, m = instance.num_ops, instance.num_devices
    on = state.device_of[0][instance.group]
    op, device = np.zeros((most_ops, 3)), np.zeros((most_devices, 3))
    for v in range(n):
        if on[v] >= 0:
            op[v, :2] = [t / (t + scale) for t in (state.start_s[0, v], state.end_s[0, v])]
        read = [(instance.edge_bytes[at], on[source] >= 0) for at, (source, reader) in enumerate(instance.edges) if reader == v]
        if sum(size for size, _ in read) > 0:
            op[v, 2] = sum(size for size, is_known in read if is_known) / sum(size for size, _ in read)
    for j in range(m):
        ends = [state.busy_end_s[0, j, at] for at in range(state.num_busy[0, j])]
        free = ends[-1] if ends else 0.0
        held = state.held_bytes[0, j] + state.workspace_bytes[0, j]
        memory = instance.memory_bytes[j]
        left = 1.0 - held / memory if 0 < memory < np.inf else 1.0
        device[j] = [free / (free + scale), left, state.work_s[0, j] / (state.work_s[0, j] + scale)]
    placed = np.zeros(most_ops)
    placed[:n] = on + 1
    return {"placed": placed, "op_dynamic": op, "device_dynamic": device, "current": current(batch, instance)}


def current(batch, instance):
    """The op of highest upward rank whose group has no device yet; once all have one, any."""
    open_ops = [op for op in upward_order(instance) if batch.state.device_of[0][instance.group[op]] < 0]
    return open_ops[0] if open_ops else batch.lead[0]
