"""Laws of wrong YAML: an error in a config, benchmark or workload names file, line, key, value and nearest key.

A few of each, as a command prints them; the tests of the readers hold the others.
"""

import pytest


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("trian.yaml", "trian.yaml: no such file (got 'trian.yaml'); did you mean 'train.yaml'?"),
        ("linear", "CONFIG: no such training config and no such file (got 'linear'); did you mean 'preset:linear'?"),
        ("preset:quikstart", "CONFIG: no such training config (got 'preset:quikstart'); did you mean 'preset:quickstart'?"),
    ],
)
def test_a_config_that_is_not_there_is_told_with_the_nearest(refused, config, message):
    assert refused("train", config) == message


def test_train_wants_a_config_or_a_run(refused):
    assert refused("train").startswith("CONFIG: name a config, or a run folder with --resume; valid: preset:")


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        (
            "train.yaml",
            "total_steps: 32",
            "total_step: 32",
            "train.yaml:3: total_step: unknown key (got 'total_step'); did you mean 'total_steps'?",
        ),
        (
            "train.yaml",
            "benchmark: benchmark.yaml",
            "benchmark: preset:toys",
            "benchmark: unknown benchmark (got 'toys'); did you mean 'toy'?",
        ),
        (
            "benchmark.yaml",
            "[max, min]",
            "[maxx, min]",
            "policies of benchmark small: no such policy, run folder or file (got 'maxx'); did you mean 'max'?",
        ),
        ("benchmark.yaml", "[max, min]", "[]", "nothing to compare: name a policy, or give the benchmark a list of them"),
        (
            "benchmark.yaml",
            "workload: workload.yaml",
            "workload: preset:toys",
            "workload: no such workload (got 'preset:toys'); did you mean 'preset:toy'?",
        ),
        ("workload.yaml", "num_steps: 1000", f"num_steps: {10**20}", "workload.yaml:2: steps.num_steps: must be at most"),
        (
            "workload.yaml",
            "zoo:squeezenet",
            "zoo:squeznet",
            "workload.yaml: graphs: no such job in the zoo (got 'squeznet'); did you mean 'squeezenet'?",
        ),
    ],
)
def test_wrong_yaml_is_told_by_line_key_and_value(refused, spoil, name, old, new, message):
    spoil(name, old, new)
    command = ("train", "train.yaml") if name == "train.yaml" else ("evaluate", "--benchmark", "benchmark.yaml")
    assert refused(*command).removeprefix("./").startswith(message)


def test_more_steps_than_can_be_counted_are_refused(refused, spoil):
    spoil("workload.yaml", "{kind: fixed, num_steps: 1000}", "{kind: sequential_time, low_s: 9.9e+14, high_s: 1.0e+15}")
    message = refused("evaluate", "--benchmark", "benchmark.yaml")
    assert message.startswith("steps: a job would have more than 9007199254740992 steps (got ")


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ("bogus", "no such policy, run folder or file (got 'bogus'); valid: acceptable-jct, best-fixed, cheapest-feasible"),
        ("shipped:none", "no such shipped policy (got 'none'); valid: learned-shares"),
        ("python:json", "a policy of your own is spelled python:MODULE:NAME (got 'python:json')"),
        ("python:no_such_module_at_all:X", "python:no_such_module_at_all:X: no such module in this folder or on the Python path"),
        ("python:json:lods", "module json has no such callable (got 'lods'); did you mean 'loads'?"),
    ],
)
def test_a_policy_to_compare_is_told_with_the_nearest(refused, policy, message):
    assert refused("evaluate", policy, "--benchmark", "benchmark.yaml").startswith(message)
