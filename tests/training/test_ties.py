"""Where policies tie there is nothing to learn, and training says so before it begins."""

import pytest

from meshwright import cli
from meshwright.envs.benchmark import load_benchmark
from meshwright.errors import NothingToLearnError
from meshwright.planners.rules import rule_of_thumb
from meshwright.training import ties
from meshwright.training.linear.settings import LinearSettings
from meshwright.training.methods import train
from meshwright.training.ties import check_something_to_learn

# Without deadlines all jobs wait in the queue until they have a place.
IDLE = ("scenario.workload_changes.deadline={kind: none}", "scenario.queue_capacity=40")
# No number of ranks is fast enough for any job.
HOPELESS = ("scenario.workload_changes.deadline={kind: uniform, low: 0.001, high: 0.002}",)
# Jobs run on one device each, and more come than there is room for: all rules do the same, but which are turned away counts.
ADMISSION = (
    "scenario.max_degree=1",
    "scenario.workload_changes.arrivals={kind: poisson, mean_interarrival_s: 100.0}",
    "scenario.workload_changes.deadline={kind: none}",
)
SEEDS = (100, 101)


def built(chosen, changes):
    return load_benchmark(chosen.benchmark, changes=changes).build()


@pytest.mark.parametrize(("changes", "share"), [(IDLE, "0 %"), pytest.param(HOPELESS, "100 %", marks=pytest.mark.slow)])
def test_a_run_on_which_all_policies_tie_is_refused_before_anything_is_written(chosen, tmp_path, changes, share):
    tied = chosen.model_copy(update={"changes": changes})
    scenario = built(chosen, changes)
    with pytest.raises(NothingToLearnError) as error:
        train(tied, tmp_path / "run", scenario=scenario)
    assert str(error.value) == (
        "benchmark: gives nothing to learn: in each validation episode all rules of thumb and all numbers of ranks block equally "
        f"many jobs ({share}), and training keeps the policy that blocks fewest (got 'tiny')"
    )
    linear = LinearSettings(name="tiny", benchmark=chosen.benchmark, changes=changes, num_validation_seeds=2)
    with pytest.raises(NothingToLearnError):
        train(linear, tmp_path / "linear", scenario=scenario)
    assert not list(tmp_path.iterdir())


def test_the_command_line_tells_it_in_one_line_and_exits_with_1(config, tmp_path, capfd):
    changes = ",".join(f'"{change}"' for change in IDLE)
    assert cli.run_command_line(["train", str(config), "--set", f"changes=[{changes}]", "--out", str(tmp_path / "run")]) == 1
    output = capfd.readouterr()
    assert output.out == ""
    assert output.err.startswith("meshwright: error: benchmark: gives nothing to learn: ")
    assert output.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_a_benchmark_that_distinguishes_policies_is_learned_on(scenario):
    check_something_to_learn("tiny", scenario, SEEDS)


def test_whom_to_turn_away_is_learned_where_all_else_is_alike(chosen):
    crowded = built(chosen, ADMISSION)
    rules = {
        name: ties.play_episode(
            rule_of_thumb(name, degrees=(1,), placements=("first-fit", "best-fit")), crowded, 100
        ).blocking_rate()
        for name in ("max", "random", "fixed-1@best-fit")
    }
    assert len(set(rules.values())) == 1
    assert 0 < rules["max"] < 1
    check_something_to_learn("crowded", crowded, SEEDS)
