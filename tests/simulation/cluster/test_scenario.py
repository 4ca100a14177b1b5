"""Scenarios: settings, what they join, and their digests."""

import numpy as np
import pytest

from meshwright import settings
from meshwright.clusters.cluster import load_cluster
from meshwright.errors import ConfigError, InputFileError
from meshwright.simulation.cluster.scenario import ScenarioSettings, assemble, build_scenario

from ..samples import small_scenario, small_workload


def test_the_problem_joins_blocks_and_times(scenario):
    problem, space = scenario.problem, scenario.space
    assert problem.degrees.tolist() == [1, 2, 4, 6, 8]
    assert problem.num_candidates == 1 + 5 * 4
    for b in range(space.num_blocks):
        result = problem.neighbours[problem.neighbour_start[b] : problem.neighbour_start[b + 1]].tolist()
        assert result == space.neighbours.of(b).tolist()
    # every degree weighs 1 in all
    assert np.bincount(space.degree) * problem.weight == pytest.approx(np.ones(5), rel=1e-12)
    assert problem.sequential_step_s.tolist() == [graph.step_s for graph in scenario.workload.graphs]
    assert problem.horizon_s == 16 * 120.0


def test_candidates_are_the_rejection_and_each_rule_for_each_degree(scenario):
    rules = scenario.settings.placement_rules
    assert scenario.candidate_degree == (0, *(d for d in (1, 2, 4, 6, 8) for _ in rules))
    assert scenario.candidate_rule == ("", *(rules * 5))


def test_allowed_time_is_a_fraction_of_the_sequential_time(scenario):
    arrivals = scenario.workload.sample(np.random.default_rng(3), 31)
    episodes = scenario.new_episodes(1)
    scenario.reset(episodes, 0, arrivals)
    for k in range(31):
        job = arrivals.job(k, scenario.workload.graphs)
        assert episodes.allowed_s[0, k] == pytest.approx(job.deadline_s, rel=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {"num_jobs": 31},
        {"num_warmup_jobs": 1},
        {"max_degree": 4},
        {"placement_rules": ("best-fit", "first-fit", "aligned", "fastest")},
        {"costs": {"collectives": "ring"}},
        {"costs": {"contention": "independent"}},
        {"splitting": {"rule": "sip-ml"}},
        {"cluster": "preset:ramp-4x4x4"},
    ],
    ids=str,
)
def test_the_digest_tells_scenarios_apart(scenario, change):
    assert small_scenario(**change).digest != scenario.digest


def test_the_digest_does_not_depend_on_how_the_cluster_is_spelled(scenario):
    renamed = scenario.settings.model_copy(update={"cluster": "some/path.yaml", "workload": "other.yaml"})
    assert assemble(renamed, load_cluster("preset:ramp-4x4x2"), small_workload()).digest == scenario.digest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_jobs": 0}, r"num_jobs: .*\(got 0\)"),
        ({"num_jobs": 10, "num_warmup_jobs": 10}, r"num_warmup_jobs: must be less than num_jobs \(10\)"),
        ({"max_degree": 0}, r"max_degree: .*\(got 0\)"),
        ({"placement_rules": []}, r"placement_rules: must name at least one rule, each once"),
        ({"placement_rules": ["best-fit", "best-fit"]}, r"placement_rules: must name at least one rule, each once"),
        ({"placement_rules": ["bestfit"]}, r"placement_rules.0: .*did you mean 'best-fit'\?"),
        ({"max_degre": 4}, r"max_degre: .*did you mean 'max_degree'\?"),
        ({"splitting": {"rule": "unifrom"}}, r"splitting.rule: .*did you mean 'uniform'\?"),
        ({"splitting": {"quantum_us": 0}}, r"splitting.quantum_us: .*\(got 0\)"),
        ({"costs": {"collectives": "rings"}}, r"costs.collectives: .*did you mean 'ring'\?"),
    ],
    ids=str,
)
def test_a_bad_setting_is_refused_by_name(change, message):
    data = {"cluster": "preset:host-8", "workload": "preset:quickstart", "num_jobs": 10, **change}
    with pytest.raises(ConfigError, match=message):
        settings.build_settings(ScenarioSettings, data)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"cluster": "preset:host8"}, ConfigError, r"unknown preset \(got 'host8'\); did you mean 'host-8'\?"),
        ({"workload": "preset:quikstart"}, ConfigError, r"'preset:quikstart'.*did you mean 'preset:quickstart'\?"),
        ({"workload": "some/absent.yaml"}, InputFileError, r"some/absent.yaml: no such file"),
    ],
    ids=str,
)
def test_a_missing_part_is_named(change, error, message):
    data = {"cluster": "preset:host-8", "workload": "preset:quickstart", "num_jobs": 10, **change}
    with pytest.raises(error, match=message):
        build_scenario(settings.build_settings(ScenarioSettings, data))
