"""Laws of a wrong command line: an impossible option, argument or number is reported as any other bad input."""

import pytest

PLAN = ("plan", "--job", "graph.txt", "--cluster", "cluster.yaml")
EVALUATE = ("evaluate", "--benchmark", "benchmark.yaml")

NAME = "at most 63 letters, digits, dots, underscores and hyphens, the first of them a letter or a digit"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plna",), "no such command (got 'plna'); did you mean 'plan'?"),
        (("profile",), "MODEL: is missing"),
        (("frobnicate",), "no such command (got 'frobnicate'); valid: cluster, compare, dev, estimate, evaluate, export, "),
        (("--jb",), "--jb: no such option; valid: --help, --version, -h"),
        (("plan", "--jbo", "x"), "--jbo: no such option; did you mean '--job'?"),
        (("plan", "--search", "--explain"), "--explain: no such option here; `meshwright estimate` has it"),
        (("plan", "--job", "graph.txt"), "--cluster: is missing: preset:NAME or a path to YAML"),
        (("plan", "--job"), "--job: wants a value"),
        (("train", "--overwrite=yes"), "--overwrite: takes no value"),
        ((*PLAN, "more"), "MATRIX: goes with --stages only"),
        (("list", "devices", "more"), "more arguments than the command takes (got 'more')"),
        ((*PLAN, "--steps", "many"), "--steps: must be a whole number (got 'many')"),
        ((*PLAN, "--deadline-s", "soon"), "--deadline-s: must be a number (got 'soon')"),
    ],
)
def test_words_that_are_no_command_or_option_are_told_with_the_nearest(refused, arguments, message):
    assert refused(*arguments).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((*PLAN, "--steps", "0"), "steps: must be 1 to 9007199254740992 (got 0)"),
        ((*PLAN, "--steps", "-3"), "steps: must be 1 to 9007199254740992 (got -3)"),
        ((*PLAN, "--steps", str(10**30)), f"steps: must be 1 to 9007199254740992 (got {10**30})"),
        ((*PLAN, "--deadline-s", "0"), "deadline_s: must be finite and positive (got '0.0')"),
        ((*PLAN, "--deadline-s", "-1"), "deadline_s: must be finite and positive (got '-1.0')"),
        ((*PLAN, "--deadline-s", "nan"), "deadline_s: must be finite and positive (got 'nan')"),
        ((*PLAN, "--deadline-s", "inf"), "deadline_s: must be finite and positive (got 'inf')"),
        ((*PLAN, "--set", "max_degree=0"), "max_degree: must be at least 1 (got 0)"),
        ((*PLAN, "--set", "max_degree=70000"), "max_degree: must be at most 65536 (got 70000)"),
        ((*EVALUATE, "--seeds", "0"), "seeds: must be 1 to 100 (got 0)"),
        ((*EVALUATE, "--seeds", "101"), "seeds: must be 1 to 100 (got 101)"),
        ((*EVALUATE, "--jobs", "0"), "jobs: must be 1 to 256 (got 0)"),
        ((*EVALUATE, "--jobs", "100000"), "jobs: must be 1 to 256 (got 100000)"),
    ],
)
def test_a_number_out_of_range_is_told_with_its_bounds(refused, arguments, message):
    assert refused(*arguments) == message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("seed", "--set: must read key=value (got 'seed')"),
        ("sed=1", "--set: sed: unknown key (got 'sed'); did you mean 'seed'?"),
        ("seed=[1", "--set: the value is not valid YAML (got 'seed=[1')"),
        ("ppo.minibatch=7", "--set: ppo: num_envs x rollout_steps (16) must be a multiple of minibatch (7)"),
        ("name.first=x", "--set: 'name' holds a value, not keys (got 'name.first=x')"),
        ("name=../x", f"--set: name: must be {NAME} (got '../x')"),
    ],
)
def test_a_wrong_change_is_blamed_on_its_option(refused, change, message):
    assert refused("train", "train.yaml", "--set", change) == message


def test_what_the_config_itself_gets_wrong_is_not_blamed_on_a_change(refused, spoil):
    spoil("train.yaml", "validate_every_steps: 16", "validate_every_steps: -16")
    message = "train.yaml:4: validate_every_steps: must be at least 1 (got -16)"
    assert refused("train", "train.yaml", "--set", "seed=3") == message


def test_evaluate_and_export_check_their_changes_too(refused, meshwright):
    assert refused("evaluate", "--benchmark", "benchmark.yaml", "--set", "num_seed=2").startswith(
        "--set: num_seed: unknown key (got 'num_seed'); did you mean 'num_seeds'?"
    )
    assert meshwright(*PLAN, "--json", "plan.json").status == 0
    export = ("export", "plan.json", "--format", "slurm", "--out", "out", "--set")
    assert refused(*export, "nme=x") == "--set: nme: unknown key (got 'nme'); did you mean 'name'?"
    assert refused(*export, "partition=$(rm -rf /)").startswith("--set: partition: a name of letters")
    assert refused(*export, "name").startswith("--set: must read key=value")
    assert refused(*export, "queue='").startswith("--set: queue: slurm does not read it, kubernetes reads it")
    assert refused(*export, "command='").startswith("--set: command: a quotation mark is not closed")
