"""Tuning a linear scorer: the same numbers again, and after an interruption; what a run leaves, what it refuses."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from meshwright import files, settings
from meshwright.envs.ground import Ground
from meshwright.envs.playing import play_episode
from meshwright.errors import CheckpointError, ConfigError, PolicyError
from meshwright.models.policy_files import stage
from meshwright.planners.linear import FEATURES, LinearScorer, LinearWeights
from meshwright.training.linear.settings import LinearSettings
from meshwright.training.linear.tune import tune
from meshwright.training.settings import load_with_paths

from ..runs import APART, copied_at_each_update

SHIPPED = Path(__file__).parents[3] / "configs" / "train" / "linear.yaml"


class InterruptionError(Exception):
    """Stands in for whatever ends a run between two generations."""


def interrupted_at(generation):
    def progress(now):
        if now.generation >= generation:
            raise InterruptionError

    return progress


@pytest.fixture(scope="module", params=["cross-entropy", "cma-es"])
def linear(chosen, request):
    """A tiny tuning run."""
    sizes = {"generations": 6, "population": 8, "elite": 3, "num_episodes": 2}
    looks = {"validate_every_generations": 2, "num_validation_seeds": 2}
    return LinearSettings(name="tiny", benchmark=chosen.benchmark, seed=3, strategy=request.param, **sizes, **looks)


@pytest.fixture(scope="module")
def watched(linear, scenario, tmp_path_factory):
    """That run, never interrupted, and copies of the folder as it lay on the disk after each generation."""
    parent = tmp_path_factory.mktemp("whole")
    progress = copied_at_each_update(parent / "run", parent / "copies", counted_by="generation")
    tune(linear, parent / "run", scenario=scenario, command=["test"], progress=progress)
    return parent / "run", parent / "copies"


@pytest.fixture(scope="module")
def whole(watched):
    return watched[0]


@pytest.fixture
def killed_at(watched, tmp_path):
    """Makes the folder of a run that was killed after so many generations."""
    return lambda generation: shutil.copytree(watched[1] / str(generation), tmp_path / "run")


def content(path):
    """A JSON file without seconds."""
    data = json.loads(path.read_text())
    rows = data if isinstance(data, list) else data.get("curve", [])
    for row in rows:
        del row["elapsed_s"]
    return data if isinstance(data, list) else {key: value for key, value in data.items() if key not in APART}


def same_run(ours, theirs):
    for name in ("learning_curve.json", "policy.json", "checkpoint.json"):
        assert content(ours / name) == content(theirs / name)


def test_a_run_leaves_what_its_module_promises(whole):
    names = {"config.yaml", "command.txt", "versions.json", "checkpoint.json", "policy.json", "learning_curve.json"}
    assert {path.name for path in whole.iterdir()} == names


def test_the_curve_has_a_row_per_look(whole):
    curve = json.loads((whole / "learning_curve.json").read_text())
    # 8 sets of weights, 2 episodes of 30 jobs.
    assert [(row["generation"], row["steps"]) for row in curve] == [(0, 0), (2, 960), (4, 1920), (6, 2880)]
    assert curve[0]["training_blocking_rate"] is None
    assert all(0 <= row["training_blocking_rate"] <= 1 for row in curve[1:])


def test_changes_apply_to_the_benchmark(linear, tmp_path):
    fewer = linear.model_copy(update={"changes": ("scenario.num_jobs=20",), "generations": 2})
    curve = json.loads(tune(fewer, tmp_path / "run").learning_curve.read_text())
    assert [row["steps"] for row in curve] == [0, 2 * 8 * 2 * 20]


def test_the_kept_weights_are_the_best_mean_and_reach_its_figure(whole, linear, scenario):
    saved = LinearWeights.load(whole / "policy.json")
    curve = json.loads((whole / "learning_curve.json").read_text())
    best = min(curve, key=lambda row: row["validation_blocking_rate"])
    assert saved.trained == {
        "config": "tiny",
        "benchmark": linear.benchmark,
        "seed": 3,
        "generation": best["generation"],
        "validation_blocking_rate": best["validation_blocking_rate"],
        "stages": [stage("search", best["generation"], "generations", best["validation_blocking_rate"], of="31 weights")],
        "ground": [Ground.of("tiny", scenario).model_dump(mode="json")],
    }
    rates = [play_episode(LinearScorer("", saved, scenario), scenario, seed).blocking_rate(slice(4, 30)) for seed in (100, 101)]
    assert np.mean(rates) == best["validation_blocking_rate"]


def test_on_the_toy_tuning_comes_near_the_optimum(linear, tmp_path):
    # No job need be turned away there, yet every rule of thumb turns some away.
    more = linear.model_copy(update={"benchmark": "preset:toy", "generations": 12, "population": 24, "num_validation_seeds": 10})
    curve = json.loads(tune(more, tmp_path / "run").learning_curve.read_text())
    assert curve[0]["validation_blocking_rate"] > 0.08
    assert min(row["validation_blocking_rate"] for row in curve) < 0.02


def test_another_seed_gives_other_weights(linear, scenario, tmp_path, killed_at):
    with pytest.raises(InterruptionError):
        tune(linear.model_copy(update={"seed": 4}), tmp_path / "other", scenario=scenario, progress=interrupted_at(1))
    other, ours = (content(folder / "checkpoint.json") for folder in (tmp_path / "other", killed_at(1)))
    assert all(other[key] != ours[key] for key in ("mean", "costs") if key in ours)


def test_test_and_validation_episodes_are_no_training_episodes(linear, scenario, tmp_path, monkeypatch):
    from meshwright.planners.episode_player import LinearTrial

    met = {}
    whole_rates = LinearTrial.blocking_rates

    def noting(self, weights, rngs):
        states = [str(rng.bit_generator.state["state"]) for rng in rngs]
        met.setdefault(len(weights), set()).update(states)
        return whole_rates(self, weights, rngs)

    monkeypatch.setattr(LinearTrial, "blocking_rates", noting)
    tune(linear, tmp_path / "run", scenario=scenario)
    held_out = {str(np.random.default_rng(seed).bit_generator.state["state"]) for seed in range(200)}
    assert len(met[8]) == 6 * 2
    assert not met[8] & held_out
    assert met[1] == {str(np.random.default_rng(seed).bit_generator.state["state"]) for seed in (100, 101)}


@pytest.mark.parametrize("generation", [1, 2, 5, 6])
def test_a_run_goes_on_wherever_it_was_killed(whole, linear, scenario, killed_at, generation):
    folder = killed_at(generation)
    tune(linear, folder, scenario=scenario, resume=True)
    same_run(folder, whole)


def test_a_run_without_a_checkpoint_begins_anew(whole, linear, scenario, killed_at):
    """With the same seed it comes to the same weights, whatever was drawn meanwhile."""
    folder = killed_at(1)
    (folder / "checkpoint.json").unlink()
    np.random.default_rng().random()
    tune(linear, folder, scenario=scenario, resume=True)
    same_run(folder, whole)


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.99])
def test_a_truncated_checkpoint_is_told_and_nothing_changes(linear, scenario, killed_at, content_of, kept):
    folder = killed_at(2)
    checkpoint = folder / "checkpoint.json"
    checkpoint.write_bytes(checkpoint.read_bytes()[: int(kept * checkpoint.stat().st_size)])
    before = content_of(folder)
    with pytest.raises(CheckpointError, match=r"checkpoint\.json:\d+: not valid JSON"):
        tune(linear, folder, scenario=scenario, resume=True)
    assert content_of(folder) == before


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format_version": 9}, "is no checkpoint of version 2"),
        ({"key": "0" * 32}, "belongs to another config, workload or cluster"),
        ({"mean": "far", "costs": "high"}, "is damaged: it does not fit this run"),
        ({"mean": [0.0], "costs": [[1.0]]}, "is damaged: it does not fit this run"),
        ({"generation": 99}, "is damaged: it does not fit this run"),
        ({"curve": []}, "is damaged: it does not fit this run"),
        ({"best": {}}, "is damaged: it does not fit this run"),
        ({"elapsed_s": None}, "is damaged: it does not fit this run"),
        ({"elapsed_s": 1e30}, "is damaged: it does not fit this run"),
        ({"mean": [1e200] * len(FEATURES), "costs": [[1e200] * 4]}, "is damaged: it does not fit this run"),
        ({"digest": "0" * 32}, "is damaged: it is not as it was written"),
    ],
)
def test_a_checkpoint_of_another_kind_is_told(linear, scenario, killed_at, change, told):
    path = killed_at(1) / "checkpoint.json"
    data = json.loads(path.read_text()) | change
    digest = files.digest({key: value for key, value in data.items() if key != "digest"})
    path.write_text(json.dumps({**data, "digest": change.get("digest", digest)}))
    with pytest.raises(CheckpointError, match=told):
        tune(linear, path.parent, scenario=scenario, resume=True)


@pytest.mark.parametrize("change", [{"seed": 9}, {"generations": 7}, {"spread": 1.0}])
def test_another_config_is_refused_by_its_first_field(whole, linear, scenario, content_of, change):
    before = content_of(whole)
    (field,) = change
    with pytest.raises(CheckpointError, match=f"{field}: differs from the config that the run was begun with"):
        tune(linear.model_copy(update=change), whole, scenario=scenario, resume=True)
    assert content_of(whole) == before


def test_a_new_run_refuses_a_folder_that_holds_one_unless_told_to_overwrite(whole, linear, scenario, killed_at, content_of):
    before = content_of(whole)
    with pytest.raises(CheckpointError, match="exists already"):
        tune(linear, whole, scenario=scenario)
    assert content_of(whole) == before
    folder = killed_at(5)
    with pytest.raises(InterruptionError):
        tune(linear, folder, scenario=scenario, overwrite=True, progress=interrupted_at(1))
    assert json.loads((folder / "checkpoint.json").read_text())["generation"] == 1


def test_resuming_needs_a_run_folder(linear, scenario, tmp_path):
    with pytest.raises(CheckpointError, match="is no run folder"):
        tune(linear, tmp_path / "absent", scenario=scenario, resume=True)


def test_a_placement_rule_that_the_benchmark_lacks_is_refused_before_anything_is_written(linear, scenario, tmp_path):
    with pytest.raises(PolicyError, match=r"placement_rules: .* \(got 'aligned'\); valid: best-fit, first-fit"):
        tune(linear.model_copy(update={"placement_rules": ("aligned",)}), tmp_path / "run", scenario=scenario)
    assert not (tmp_path / "run").exists()


def test_the_shipped_config_is_whole_and_names_every_key():
    written = yaml.safe_load(SHIPPED.read_text())
    loaded = settings.load(LinearSettings, SHIPPED)
    assert set(written) == set(loaded.model_dump())
    assert loaded.name == SHIPPED.stem


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("generation=5", "generation: unknown key (got 'generation'); did you mean 'generations'?"),
        ("elite=48", "elite (48) must be less than population (48)"),
        ("population=1", "population"),
        ("spread=0", "spread"),
        ("method=lineal", "method: not a valid choice (got 'lineal')"),
        ("placement_rules=[]", "placement_rules"),
        ("name=../away", "name"),
    ],
)
def test_a_wrong_config_is_told_in_one_line(change, told):
    with pytest.raises(ConfigError, match=re.escape(told)) as caught:
        settings.load(LinearSettings, SHIPPED, changes=[change])
    assert "\n" not in str(caught.value)


def test_a_benchmark_is_looked_for_beside_the_config_unless_it_was_changed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "bench.yaml").write_text("name: x\n")
    text = re.sub("benchmark: .*", "benchmark: bench.yaml", SHIPPED.read_text())
    (tmp_path / "mine" / "linear.yaml").write_text(text)
    assert load_with_paths(LinearSettings, "mine/linear.yaml").benchmark == str((tmp_path / "mine" / "bench.yaml").resolve())
    assert load_with_paths(LinearSettings, "mine/linear.yaml", ["benchmark=bench.yaml"]).benchmark == "bench.yaml"
    assert load_with_paths(LinearSettings, "mine/linear.yaml", ["benchmark=preset:toy"]).benchmark == "preset:toy"
