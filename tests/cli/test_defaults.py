"""The command line and the Python API share every default; the test walks all options of a command."""

import inspect
import json
from importlib import import_module

import pytest
import typer

from meshwright.cli import run_command_line
from meshwright.cli.app import app
from meshwright.cli.commands.planning.plan import TAKES
from meshwright.costs.settings import CostSettings
from meshwright.planners.layouts.request import SearchRequest
from meshwright.planning.estimate import estimate
from meshwright.planning.search import search_layouts

WRITES = {"--json": "writes", "--out": "writes", "--all": "writes", "--plot": "writes", "--trace": "writes"}
KEYS = {"--set": "keys"}
OF_MODES = {"--search", "--ops", "--stages", "--sweep", "--summarise", "--against"}

OPTIONS = {
    # For each command, what an option is called in Python, or in capitals why it has no counterpart there.
    "estimate": {"--state": "is_free", "--explain": "EXPLAIN", **KEYS, **WRITES},
    "plan": {"--policy": "policy_spec", "--steps": "num_steps", "--state": "free_at_s", **KEYS, **WRITES},
    "search": {"--steps": "num_steps", "--state": "is_free", "--for": "launcher", **KEYS, **WRITES},
    "evaluate": {
        "--benchmark": "BUILT BEFORE",
        "--seeds": "num_seeds",
        "--jobs": "workers",
        "--set": "BUILT BEFORE",
        "--graphs": "BUILT BEFORE",
        "--show": "OF OPERATORS",
        "--dump": "OF OPERATORS",
        **(WRITES | {"--trace": "BUILT BEFORE"}),
    },
    "place": {"--policy": "by", "--devices": "num_devices", "--batch": "batch_size", "--steps": "num_steps", **KEYS, **WRITES},
    "profile": {"--input": "inputs", "--batch": "batch_size", **KEYS, **WRITES},
    "train": {
        "--set": "BUILT BEFORE",
        "--graphs": "graphs_dir",
        **dict.fromkeys(("--seeds", "--jobs"), "SEVERAL RUNS"),
        "--minutes": "CONFIG",
        **{"--out": "folder", "--json": "writes"},
    },
    "export": {"--format": "target", "--set": "options", "--cluster": "CHECK", "--list": "LIST", **WRITES},
}
MODES = {"plan": "a policy", "search": "--search", "place": "--ops"}
"""Names of what `meshwright plan` does, by its mode."""
COUNTERPARTS = {
    "estimate": ("planning.estimate", "estimate"),
    "plan": ("planning.plan", "plan"),
    "search": ("planning.search", "search_layouts"),
    "evaluate": ("evaluation.evaluate", "evaluate"),
    "place": ("planning.place", "place"),
    "profile": ("profiling.profile", "profile"),
    "train": ("training.methods", "train"),
    "export": ("export", "export"),
}
FIRST = {
    "estimate": ["--job", "zoo:gpt2-small", "--cluster", "preset:host-8", "--layout", "micro_batch=1,global_batch=1"],
    "plan": ["--job", "zoo:alexnet", "--cluster", "preset:host-8"],
    "search": ["--search", "--job", "zoo:alexnet", "--cluster", "preset:host-8"],
    "evaluate": ["max", "--benchmark", "toy"],
    "place": ["--ops", "--job", "zoo:alexnet", "--cluster", "preset:host-8"],
    "profile": ["net.py:net"],
    "train": ["preset:toy"],
    "export": ["plan.json", "--format", "torchrun", "--out", "deploy"],
}
SHOWN = {"progress", "callbacks", "on_best", "scenario", "built", "command", "folder", "out"}
"""Parameters that a command adds: progress display, objects built before, and the record of its own words."""


class ReachedError(Exception):
    """The Python function was called."""


def counterpart(command):
    home, name = COUNTERPARTS[command]
    return getattr(import_module(f"meshwright.{home}"), name)


def options(command):
    """The spellings of its options; of `meshwright plan` those that the mode takes."""
    result = typer.main.get_command(app).commands["plan" if command in MODES else command]
    spelled = [max(param.opts, key=len) for param in result.params if param.param_type_name == "option"]
    taken = TAKES[MODES[command]] | {"--steps"} if command in MODES else set(spelled)
    return [option for option in spelled if option in taken and option not in OF_MODES]


def parameters(command):
    """Those of the Python function, and where it is given a request, its fields."""
    result = dict(inspect.signature(counterpart(command)).parameters)
    return result | (dict(inspect.signature(SearchRequest).parameters) if "request" in result else {})


@pytest.mark.parametrize("command", OPTIONS)
def test_every_option_is_a_parameter_in_python_or_says_why_not(command):
    names = set(parameters(command))
    for spelled in options(command):
        means = OPTIONS[command].get(spelled, spelled.removeprefix("--").replace("-", "_"))
        assert means in names or means.isupper() or means in ("writes", "keys"), spelled


@pytest.mark.parametrize("command", OPTIONS)
def test_a_command_without_options_calls_python_with_its_defaults(command, monkeypatch, tmp_path):
    expected = inspect.signature(counterpart(command))
    called = {}

    def reached(*arguments, **keywords):
        called.update(expected.bind(*arguments, **keywords).arguments)
        raise ReachedError

    home, name = COUNTERPARTS[command]
    monkeypatch.setattr(f"meshwright.{home}.{name}", reached)
    monkeypatch.chdir(tmp_path)
    if command == "export":
        _plan(tmp_path / "plan.json")
    arguments = FIRST[command]
    with pytest.raises(ReachedError):
        run_command_line(["plan" if command in MODES else command, *arguments])
    if request := called.pop("request", None):
        called |= vars(request)
    optional = {key: p.default for key, p in parameters(command).items() if p.default is not inspect.Parameter.empty}
    for key, default in optional.items():
        if key in called and key not in SHOWN:
            assert _neutral(called[key]) == _neutral(default), key


def _neutral(value):
    """Nothing given is nothing given, however it is spelled; of choices of the cost model nothing may be set."""
    if value is None or value in ((), [], ["max"]):
        return None
    if hasattr(value, "model_fields_set"):
        return value if value.model_fields_set else None
    return value


def _plan(path):
    small = search_layouts("zoo:alexnet", "preset:host-8", devices="1")
    small.plan.save(path)


@pytest.mark.parametrize(
    ("words", "costs"),
    [
        ([], None),
        (["--set", "collectives=ring"], {"collectives": "ring"}),
        (["--set", "overlap_slowdown=1"], {"overlap_slowdown": 1.0}),
    ],
)
def test_the_command_and_python_price_alike_where_little_is_given(words, costs, tmp_path):
    # tensor and data parallelism that both hide something, where the old defaults were 1.3 % apart
    place = ("zoo:bert-large", "preset:dgx-a100-8x8", "tp=4,dp=2,micro_batch=8,global_batch=64")
    file = tmp_path / "estimate.json"
    job, cluster, layout = place
    given = ["--job", job, "--cluster", cluster, "--layout", layout, *words]
    assert run_command_line(["estimate", *given, "--json", str(file)]) == 0
    data = json.loads(file.read_text())
    result = estimate(*place, costs=None if costs is None else CostSettings(**costs))
    assert data["figures"][0]["value"] == result.step.step_s
    assert data["costs"] == {"collectives": "calibrated", "overlap_slowdown": 1.126} | (costs or {})
    assert data["layout"]["overlap_dp"] is True


def test_a_layout_that_a_search_finds_is_priced_alike_by_an_estimate_of_what_it_was_told(tmp_path):
    # 16 sequences on 8 devices; what is hidden is left open on both sides
    keys = "tp=2,dp=2,pp=2,micro_batch=1,zero=0,sequence_parallel=false,recompute=none"
    for schedule, message in (("1f1b", "pp=2"), ("interleaved", "pp=2,schedule=interleaved,virtual_stages=2")):
        keep = f"{keys},schedule={schedule}" + (",virtual_stages=2" if schedule == "interleaved" else "")
        result = search_layouts("zoo:gpt2-small", "preset:host-8", batch=16, keep=keep, order="tp-cp-dp-pp")
        text = f"tp=2,dp=2,{message},micro_batch=1,global_batch=16"
        priced = estimate("zoo:gpt2-small", "preset:host-8", text)
        assert priced.layout == result.best.layout
        assert priced.step.step_s == pytest.approx(result.best.step_s, rel=1e-12)
        assert (priced.layout.overlap_dp, priced.layout.overlap_pp) == (True, schedule == "interleaved")


def test_only_what_was_asked_for_is_told_to_change_nothing():
    # what is hidden unasked says nothing where there is nothing to hide; asked for, it does
    alone = "micro_batch=1,global_batch=1"
    assert estimate("zoo:gpt2-small", "preset:host-8", alone).remarks == ()
    (remark,) = estimate("zoo:gpt2-small", "preset:host-8", f"{alone},overlap_dp=true").remarks
    assert remark == "overlap_dp=true changes nothing: dp x cp is 1"


def test_what_was_taken_is_printed(capsys):
    assert run_command_line(["estimate", *FIRST["estimate"]]) == 0
    output = capsys.readouterr().out
    assert "priced with collectives=calibrated overlap_slowdown=1.126 overlap_tp=false overlap_pp=false overlap_dp=true" in output
    assert run_command_line(["plan", *FIRST["search"], "--devices", "2", "--set", "overlap_slowdown=1.5"]) == 0
    output = capsys.readouterr().out
    assert "priced with collectives=calibrated overlap_slowdown=1.5; unless --keep says otherwise" in output
