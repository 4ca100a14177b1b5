"""Policies that place ops: renumbering changes nothing, the compiled decisions are torch's, and files keep what they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from meshwright.envs.operators.batch import PlacementBatch
from meshwright.errors import CheckpointError, PolicyError
from meshwright.models.graph.play_mode import PlayMode
from meshwright.models.operators.decoding import CompiledSteps
from meshwright.models.operators.graphs import OperatorGraphs, batch, features, hetero_data
from meshwright.models.operators.network import OperatorNetworkSettings
from meshwright.models.operators.player import OperatorPlayer
from meshwright.models.operators.playing import play
from meshwright.models.operators.policy import OperatorPolicy
from meshwright.models.operators.saved import SavedOperatorPolicy
from meshwright.models.tensor_file import load_tensors, save_tensors
from meshwright.planners.operators.place import place
from meshwright.planners.operators.request import PlacementRequest
from meshwright.simulation.operators.decisions.candidates import CANDIDATE_FEATURES
from meshwright.simulation.operators.generators import DeviceDraw, GraphDraw, draw_instance
from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.simulation.operators.placement import check

INSTANCES = [draw_instance(GraphDraw(num_ops=(10, 20)), DeviceDraw(num_devices=(2, 4)), "test", seed) for seed in range(4)]


def policy(**more: object) -> OperatorPolicy:
    torch.manual_seed(0)
    made = OperatorPolicy(OperatorNetworkSettings(hidden=16, rounds=2, **more))
    for tensor in made.parameters():  # away from where training begins
        torch.nn.init.normal_(tensor, std=0.3)
    return made.eval()


def permuted(instance: OperatorInstance, ops: np.ndarray, devices: np.ndarray) -> OperatorInstance:
    """The same with op ``ops[v]`` in place ``v`` and device ``devices[j]`` in place ``j``."""
    output = np.zeros(instance.num_ops)
    output[instance.edges[:, 0]] = instance.edge_bytes
    return OperatorInstance.of_outputs(
        "permuted",
        instance.times_s[np.ix_(ops, devices)],
        np.argsort(ops)[instance.edges],
        output[ops],
        latency_s=instance.latency_s[np.ix_(devices, devices)],
        bandwidth_bytes_per_s=instance.bandwidth_bytes_per_s[np.ix_(devices, devices)],
        memory_bytes=instance.memory_bytes[devices],
        resident_bytes=instance.resident_bytes[ops],
    )


def test_other_numbers_for_ops_and_devices_change_no_embedding() -> None:
    encoder, instance = policy().encoder, INSTANCES[0]
    rng = np.random.default_rng(0)
    ops, devices = rng.permutation(instance.num_ops), rng.permutation(instance.num_devices)
    with torch.no_grad():
        straight = [each[0].numpy() for each in encoder(batch([features(instance, "latency")]))]
        other = [each[0].numpy() for each in encoder(batch([features(permuted(instance, ops, devices), "latency")]))]
    for seen, expected in zip(other, (straight[0][ops], straight[1][devices], straight[2]), strict=True):
        assert seen == pytest.approx(expected, abs=1e-4)


def test_instances_side_by_side_are_placed_as_alone() -> None:
    made = policy()
    together = PlacementBatch(INSTANCES, "latency", len(INSTANCES))
    played = play(made, batch([features(each, "latency") for each in INSTANCES]), together, np.arange(len(INSTANCES)))
    for number, instance in enumerate(INSTANCES):
        alone = PlacementBatch([instance], "latency", 1)
        found = play(made, batch([features(instance, "latency")]), alone, np.zeros(1, np.int64))
        assert found.values[0] == pytest.approx(played.values[number], rel=1e-9)
        check(instance, together.device_of(number))


def test_compiled_decisions_are_those_of_torch() -> None:
    for without in ((), ("edges", "transfers", "devices"), ("against",)):
        made = policy(without=without)
        for instance in INSTANCES:
            graphs = batch([features(instance, "latency")])
            slow, fast = PlacementBatch([instance], "latency", 1), PlacementBatch([instance], "latency", 1)
            play(made, graphs, slow, np.zeros(1, np.int64))
            steps = CompiledSteps(made, graphs)
            steps.play(
                fast, np.full((instance.num_groups, instance.num_devices), 9.0, np.float32)
            )  # and a second time is as the first
            likely = steps.play(fast)
            assert fast.device_of(0).tolist() == slow.device_of(0).tolist()
            assert likely.sum(axis=1) == pytest.approx(np.ones(instance.num_ops))


@pytest.mark.parametrize("gone", [{"order": "policy"}, {"order": "topological"}, {"refine_steps": 3}])
def test_a_file_with_another_order_or_refinement_is_refused_in_one_line(tmp_path: Path, gone: dict[str, object]) -> None:
    SavedOperatorPolicy.of(policy(), "latency", {}).save(tmp_path / "policy.pt")
    save_tensors(tmp_path / "policy.pt", load_tensors(tmp_path / "policy.pt") | gone)
    with pytest.raises(CheckpointError, match=r"^\S*policy.pt: places ops in another order .* train it again$"):
        SavedOperatorPolicy.load(tmp_path)


def test_a_file_of_one_kind_of_policy_is_read_and_of_the_other_refused_in_one_line(tmp_path: Path) -> None:
    SavedOperatorPolicy.of(policy(), "latency", {}).save(tmp_path / "policy.pt")
    data = load_tensors(tmp_path / "policy.pt")
    save_tensors(tmp_path / "policy.pt", data | {"network": {**data["network"], "kind": "steps", "turns": 4}})
    assert SavedOperatorPolicy.load(tmp_path).settings == policy().settings
    save_tensors(tmp_path / "policy.pt", data | {"network": {**data["network"], "kind": "one-shot", "turns": 4}})
    with pytest.raises(
        CheckpointError, match=r"^\S*policy.pt: network.*: kind: policies that place all ops at once are gone; .*$"
    ):
        SavedOperatorPolicy.load(tmp_path)


def test_all_decisions_at_once_are_judged_as_one_by_one() -> None:
    made = policy()
    graphs, episodes = batch([features(each, "latency") for each in INSTANCES]), PlacementBatch(INSTANCES, "latency", 12)
    played = play(made, graphs, episodes, np.arange(4), samples=3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits, *_ = made.episode_logits(graphs, played)
    log_p = torch.log_softmax(logits, dim=2).gather(2, played.actions[..., None])[..., 0]
    assert torch.allclose(log_p[played.is_live], played.log_p[played.is_live], atol=1e-4)


def another_reader(graphs: OperatorGraphs) -> OperatorGraphs:
    """The same, but the reader of the last edge is another one."""
    ops = graphs.ops.clone()
    ops[0, INSTANCES[1].edges[-1, 1], :3] += 1.0
    return replace(graphs, ops=ops)


@pytest.mark.parametrize(
    ("without", "change"),
    [
        ("edges", lambda graphs: replace(graphs, producer=torch.roll(graphs.producer, 1))),
        ("against", another_reader),
        (
            "devices",
            lambda graphs: replace(
                graphs,
                links=graphs.links + 1,
                devices=torch.cat([graphs.devices[..., :2], graphs.devices[..., 2:5] + 1, graphs.devices[..., 5:]], dim=2),
            ),
        ),
    ],
)
def test_what_is_switched_off_is_not_read(without: str, change: Callable[[OperatorGraphs], OperatorGraphs]) -> None:
    """Without it the embeddings of ops that stand before the change stay as they are; with it they do not."""
    instance = INSTANCES[1]
    graphs = batch([features(instance, "latency")])
    first = instance.edges[-1, :1].tolist()  # its producer, which a change of it reaches against the edges alone
    for left_out, stays in (((without,), True), ((), False)):
        made = policy(without=left_out)
        if without == "against":  # totals of the graph tell of all ops: they are not what is switched off
            for layer in made.encoder.op_rounds:
                torch.nn.init.zeros_(layer.total.weight)
        with torch.no_grad():
            before, after = (made.encoder(each)[0][0] for each in (graphs, change(graphs)))
        rows = first if without == "against" else list(range(instance.num_ops))
        assert torch.allclose(before[rows], after[rows], atol=1e-6) is stays


def test_an_untrained_policy_places_like_the_rule() -> None:
    torch.manual_seed(1)
    player = OperatorPlayer(OperatorPolicy(OperatorNetworkSettings(hidden=16, rounds=1)), "latency", "untrained")
    ratios = [player.place(each, PlayMode()).value_s / place(each, "heft", PlacementRequest()).value_s for each in INSTANCES]
    assert np.mean(ratios) == pytest.approx(1.0, abs=0.1)


@pytest.mark.every(2)
def test_more_draws_and_a_search_are_never_worse() -> None:
    player = OperatorPlayer(policy(), "latency", "mine")
    for instance in INSTANCES[:2]:
        greedy, sampled, searched = (player.place(instance, PlayMode.of(how)) for how in ("greedy", "sample-8", "search-0.02"))
        assert sampled.value_s <= greedy.value_s + 1e-12
        assert searched.value_s <= greedy.value_s + 1e-12
        assert greedy.value_s == player.place(instance, PlayMode()).value_s


def test_a_saved_policy_is_the_same_and_a_spoilt_one_is_refused(tmp_path: Path) -> None:
    made = policy()
    SavedOperatorPolicy.of(made, "latency", {"seed": 0}).save(tmp_path / "policy.pt")
    again = SavedOperatorPolicy.load(tmp_path)
    assert again.objective == "latency"
    for name, tensor in again.policy().state_dict().items():
        assert torch.equal(tensor, made.state_dict()[name])
    (tmp_path / "policy.pt").write_bytes((tmp_path / "policy.pt").read_bytes()[:-200])
    with pytest.raises(CheckpointError):
        SavedOperatorPolicy.load(tmp_path)


@pytest.mark.parametrize("text", ["greed", "sample-0", "sample-x", "search-0", "search-", "greedy-1"])
def test_a_way_to_ask_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PolicyError, match="no way to ask"):
        PlayMode.of(text)


def test_the_graph_for_pyg_holds_every_edge() -> None:
    data = hetero_data(INSTANCES[0])
    assert data["op", "feeds", "op"].edge_index.T.tolist() == INSTANCES[0].edges.tolist()
    assert data["op"].x.shape == (INSTANCES[0].num_ops, 8)
    assert data["device", "link", "device"].edge_index.shape[1] == INSTANCES[0].num_devices * (INSTANCES[0].num_devices - 1)
    can_run = INSTANCES[0].can_run[INSTANCES[0].group]
    assert data["op", "runs_on", "device"].edge_index.T.tolist() == np.argwhere(can_run).tolist()
    assert data["op", "runs_on", "device"].edge_attr.shape == (can_run.sum(), 3)
    data.validate()


@pytest.mark.parametrize("times", [2, 10])
def test_features_are_the_same_in_a_graph_that_holds_the_same_graph_more_often(times: int) -> None:
    """Copies of a graph beside each other, on devices with as many times the memory: every op is told what it was told alone."""
    one = INSTANCES[0]
    n, outputs = one.num_ops, np.zeros(one.num_ops)
    outputs[one.edges[:, 0]] = one.edge_bytes
    many = OperatorInstance.of_outputs(
        "many",
        np.tile(one.times_s, (times, 1)),
        [(int(a) + copy * n, int(b) + copy * n) for copy in range(times) for a, b in one.edges],
        [float(each) for each in np.tile(outputs, times)],
        latency_s=one.latency_s,
        bandwidth_bytes_per_s=one.bandwidth_bytes_per_s,
        memory_bytes=times * one.memory_bytes,
        resident_bytes=np.tile(one.resident_bytes, times),
    )
    alone, told = features(one, "latency"), features(many, "latency")
    assert told.ops[:n] == pytest.approx(alone.ops, rel=1e-5)
    assert told.edges[: len(one.edges)] == pytest.approx(alone.edges, rel=1e-5)
    assert told.devices == pytest.approx(alone.devices, rel=1e-5)
    assert told.links == pytest.approx(alone.links, rel=1e-5)
    first, later = PlacementBatch([one], "latency", 1), PlacementBatch([many], "latency", 1)
    for each in (first, later):
        each.begin(np.zeros(1, np.int64))
    assert later.lead[0] % n == first.lead[0]
    kept = [
        CANDIDATE_FEATURES.index(name)
        for name in ("start_beyond_best", "end_beyond_best", "wait_for_inputs", "op_time", "growth")
    ]
    assert later.state.candidates[0][:, kept] == pytest.approx(first.state.candidates[0][:, kept], rel=1e-5)


def test_instances_at_the_edges_are_placed() -> None:
    """No time at all, memory of 0 for ops that hold nothing, packings that largest first does not find."""
    player = OperatorPlayer(policy(), "latency", "mine")
    nothing = OperatorInstance.of_outputs("nothing", np.zeros((3, 2)), [(0, 1), (1, 2)], [1.0] * 3, bandwidth_bytes_per_s=1e9)
    bare = OperatorInstance.of_outputs("bare", np.ones((3, 2)), [(0, 1)], [1.0] * 3, memory_bytes=[0.0, 1e9])
    roomy = OperatorInstance.of_outputs("roomy", np.ones((3, 2)), [(0, 1)], [1.0] * 3, memory_bytes=16e9)
    tight = OperatorInstance.of_outputs(
        "tight", np.ones((5, 2)), [], [0.0] * 5, memory_bytes=6.0, resident_bytes=[3.0, 3.0, 2.0, 2.0, 2.0]
    )
    for instance in (nothing, bare, roomy, tight):
        for how in ("greedy", "sample-4", "search-0.01"):
            check(instance, player.place(instance, PlayMode.of(how), seed=2**64).device_of)
