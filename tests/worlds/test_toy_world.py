"""A world of one file plugs in: environments, PPO, training, evaluation, report and export know nothing else of it.

So does one whose graph changes with every decision.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env

from meshwright.cli import run_command_line
from meshwright.errors import ConfigError
from meshwright.models.graph.saved_graph_policy import SavedGraphPolicy
from meshwright.training.hooks.callback import TrainingCallback, UpdateRecord
from meshwright.training.methods import load_config, train

CONFIG = """\
method: graph
name: toy
benchmark: {benchmark}
network: {{hidden: 16, heads: 2, rounds: 2}}
imitation: {{instances: 16, rounds: 1, steps: 24, minibatch: 8, validate_every_steps: 12}}
updates: 4
validate_every_updates: 2
ppo: {{num_envs: 16, group: 4, rollout_steps: 16, minibatch: 128, value: 0.5}}
"""


def test_its_environments_keep_the_contract(toy: Path) -> None:
    env = gymnasium.make("meshwright/World-v0", benchmark=str(toy), render_mode="ansi").unwrapped
    check_env(env)
    many = gymnasium.make_vec("meshwright/World-v0", num_envs=3, benchmark=str(toy))
    seen, _ = many.reset(seed=0)
    assert seen["nodes/job"].shape == (3, 8, 1)
    assert seen["ends/job-may_use-machine"].shape == (3, 2, 24)
    env.reset(seed=0)
    twin = pickle.loads(pickle.dumps(env))
    after, same = (each.step(1)[0] for each in (env, twin))
    assert all(np.array_equal(after[key], same[key]) for key in after)
    num_jobs = 7 if env.world.spec.changes else 8  # one has left the graph
    assert after["counts"].tolist() == [num_jobs, 3]
    assert (after["ends/job-may_use-machine"][0] >= 0).sum() == 3 * num_jobs


@pytest.mark.parametrize("toy", ["toy", pytest.param("changing", marks=pytest.mark.slow)], indirect=True)
@pytest.mark.usefixtures("undrawn")
def test_it_trains_evaluates_reports_and_exports(toy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = toy.parent
    (folder / "toy.yaml").write_text(CONFIG.format(benchmark=toy.name))
    run, results = folder / "run", folder / "results"
    assert run_command_line(["train", str(folder / "toy.yaml"), "--out", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "than longest-first of one round on " in shown
    assert SavedGraphPolicy.load(run).world == toy.stem.removesuffix("-8")
    policies = ["longest-first", "in-turns", f"network:{run}", f"{run}@search-0.1", f"{run}@sample-20", f"{run}@shuffled"]
    expected = ["--out", str(results), "--dump", str(folder / "dump"), "--seeds", "2"]
    for compared in (policies[:1], policies):  # the second one replaces what the first one wrote
        assert run_command_line(["evaluate", "--benchmark", str(toy), *compared, *expected]) == 0
    rows = {row["policy"]: row for row in json.loads((results / "results.json").read_text())["rows"]}
    means = {name: row["metrics"]["over_best_known"]["mean"] for name, row in rows.items()}
    assert means[f"{run}@search-0.1"] <= means[f"network:{run}"] < means["in-turns"]
    assert means[f"{run}@sample-20"] <= means[f"network:{run}"]
    assert toy.stem in (results / "report.html").read_text()
    made = json.loads((folder / "dump" / "instance-0" / "longest-first.json").read_text())
    assert sorted(set(made["machine_of"])) == [0, 1, 2]


@pytest.mark.parametrize("toy", [pytest.param("toy", marks=pytest.mark.slow), "changing"], indirect=True)
def test_it_trains_without_messages_and_to_the_same_weights_when_it_was_stopped(toy: Path) -> None:
    class StopsEarly(TrainingCallback):
        def on_update(self, record: UpdateRecord) -> bool:
            return record.step < 3

    text = CONFIG.format(benchmark=toy.name).replace("rounds: 2}", "rounds: 2, messages: false}").replace("steps: 24", "steps: 2")
    # Updates end within episodes; it is stopped between two validations.
    changes = ["ppo.rollout_steps=20", "ppo.minibatch=32", "ppo.num_envs=8", "updates=4", "imitation.instances=8"]
    (toy.parent / "toy.yaml").write_text(text)
    config = load_config(toy.parent / "toy.yaml", changes)
    if toy.stem == "changing-8":
        with pytest.raises(ConfigError, match=r"ppo.value: must be above 0 where graphs change"):
            train(load_config(toy.parent / "toy.yaml", [*changes, "ppo.value=0"]), toy.parent / "whole")
    whole = SavedGraphPolicy.load(train(config, toy.parent / "whole").policy)
    assert not whole.settings.messages
    train(config, toy.parent / "run", callbacks=[StopsEarly()])
    resumed = SavedGraphPolicy.load(train(config, toy.parent / "run", resume=True).policy)
    assert all(torch.equal(tensor, resumed.weights[name]) for name, tensor in whole.weights.items())
