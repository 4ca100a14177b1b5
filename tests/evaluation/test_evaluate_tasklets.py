"""The evaluation of tasklets: ratios worked out anew, kinds of network, placements dumped, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from meshwright.cli import run_command_line
from meshwright.errors import PlanError
from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.sections import class_cells, paired_cells
from meshwright.evaluation.world_policies import world_policy
from meshwright.evaluation.worlds.registry import world_of
from meshwright.models.graph.graph_network import GraphNetwork
from meshwright.models.graph.hetero_gnn import GraphNetworkSettings
from meshwright.models.graph.saved_graph_policy import SavedGraphPolicy
from meshwright.worlds.benchmark import MOST_OVER
from meshwright.worlds.tasklets.world import TaskletWorld, load_tasklet_benchmark, load_tasklet_world

SMALL = ["tasklets.num_devices=[16]", "tasklets.num_stages=[4]", "best_known_s=0.02", "policies=[chain@0.01]"]


@pytest.fixture
def saved(tmp_path: Path) -> str:
    torch.manual_seed(0)
    path, network = tmp_path / "policy.pt", GraphNetwork(TaskletWorld.spec, GraphNetworkSettings(hidden=8, heads=1, rounds=1))
    for tensor in network.parameters():  # away from where training begins
        torch.nn.init.normal_(tensor, std=0.3)
    SavedGraphPolicy.from_network(network, {}).save(path)
    return str(path)


def test_figures_are_those_of_the_groupings(saved: str) -> None:
    choice = load_tasklet_world("preset:tasklets-64", SMALL)
    results = evaluate(choice, [saved, f"{saved}@sample-4", "structured@0.01"], num_seeds=6).results
    over = {row["policy"]: np.array(row["per_case"]["over_best_known"]) for row in results["rows"]}
    known = np.array(results["more"]["known_s"])
    player = world_policy(saved, choice)
    greedy = over[saved] * known
    assert greedy == pytest.approx([player.place(choice.instance("test", seed), seed).value_s for seed in range(6)])
    assert (over[f"{saved}@sample-4"] <= over[saved]).all()
    assert all((values >= 1.0).all() for values in over.values())
    head, cells = class_cells(results) or ([], [])
    of = dict(zip(head, next(row for row in cells if saved in row[0].split(", ")), strict=True))
    assert of["kind: spot"] == f"{over[saved][1::2].mean():.3f}"
    assert of["kind: uneven"] == f"{over[saved][0::2].mean():.3f}"
    assert paired_cells(results) is not None


def test_a_policy_whose_every_episode_is_a_dead_end_has_no_value(saved: str) -> None:
    class Dead(TaskletWorld):
        kind = "dead"

        def batch(self, *args, **more):
            batch = super().batch(*args, **more)
            batch.value = lambda e: float("inf")
            return batch

    world = Dead(load_tasklet_benchmark("preset:tasklets-64", changes=SMALL))
    results = evaluate(world, [saved], num_seeds=2).results
    of = {row["policy"]: row["metrics"]["without_value"]["mean"] for row in results["rows"]}
    assert of == {saved: 1.0, "chain@0.01": 0.0}
    assert world_of(world).validation({}, []).play(saved, [0, 1]) == [MOST_OVER] * 2
    world.benchmark = world.benchmark.model_copy(update={"policies": ()})
    with pytest.raises(PlanError, match=r"no policy that is compared places this instance; .*no episode"):
        evaluate(world, [saved], num_seeds=2)


def test_worlds_are_evaluated_by_their_kind() -> None:
    class Own(TaskletWorld):
        pass

    class Other(TaskletWorld):
        kind = "other"

    benchmark = load_tasklet_benchmark("preset:tasklets-64", changes=SMALL)
    names = [world_of(each).name for each in (benchmark, TaskletWorld(benchmark), Own(benchmark), Other(benchmark))]
    assert names == ["tasklets", "tasklets", "tasklets", "world"]


def test_arrange_asks_a_policy(saved: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world = load_tasklet_world("preset:tasklets-64", SMALL)
    network = world.instance("test", 0)
    figures = {
        "delay_ms": (1e3 * network.latency_s).tolist(),
        "bandwidth_gbps": (8e-9 * network.bandwidth_bytes_per_s).tolist(),
        "constants": {"stages_way": 4, "send_gradient_size_GB": 0.4, "send_activation_size_GB": 0.05},
    }
    (tmp_path / "network.json").write_text(json.dumps(figures))
    values = []
    for how in ("", "@sample-8", "@search-0.05"):
        made = tmp_path / "made.json"
        status = run_command_line(
            ["plan", "--stages", str(tmp_path / "network.json"), "--policy", saved + how, "--json", str(made)]
        )
        assert status == 0
        values.append(json.loads(made.read_text())["value_s"])
    assert max(values) == values[0]
    assert values[0] == pytest.approx(world_policy(saved, world).place(network, 0).value_s)
    capsys.readouterr()
    for solver in ("chains", "shipped:nothing", saved + "@often"):
        assert run_command_line(["plan", "--stages", str(tmp_path / "network.json"), "--policy", solver]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) <= 3
