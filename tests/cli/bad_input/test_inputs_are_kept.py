"""Laws of inputs: no output of a command is one of its inputs, however the two are spelled."""

import os
from pathlib import Path

import pytest

from meshwright import files
from meshwright.errors import InputFileError
from meshwright.inputs import declare, note, protected

from ..conftest import commands_with

TOLD = "would replace what the command reads; name another place"
# Words of each command, its inputs, of which some are named in others, and its options that name a file to write.
COMMANDS = {
    "train": (("train.yaml", "--out", "new"), ("train.yaml", "benchmark.yaml", "cluster.yaml", "workload.yaml"), ("--json",)),
    "train --sweep": (("sweep.yaml", "--out", "new"), ("sweep.yaml",), ("--json",)),
    "evaluate": (
        ("policy.json", "rollout(base.json)", "--benchmark", "benchmark.yaml"),
        ("policy.json", "base.json", "benchmark.yaml", "cluster.yaml", "workload.yaml"),
        ("--json",),
    ),
    "dev validate strategies": (
        ("--set", "only=[placed groups of the world]", "--set", "reference=reference"),
        ("reference/operators/tasklets/case4_worldwide_geo.json",),
        ("--json",),
    ),
    "profile": (("net.py:net", "--input", "2x3"), ("net.py",), ("--out", "--json")),
    "plan --stages": (("network.json",), ("network.json",), ("--json",)),
    "evaluate --summarise": (("done",), ("done/results.json",), ("--json",)),
    "plan": (("--job", "graph.txt", "--cluster", "cluster.yaml"), ("graph.txt", "cluster.yaml"), ("--json", "--trace")),
    "plan --search": (
        ("--job", "graph.txt", "--cluster", "cluster.yaml", "--batch", "4", "--set", "costs.yaml"),
        ("graph.txt", "cluster.yaml", "costs.yaml"),
        ("--json", "--all", "--plot"),
    ),
    "plan --ops": (
        ("--job", "graph.txt", "--cluster", "cluster.yaml"),
        ("graph.txt", "cluster.yaml"),
        ("--json", "--trace", "--plot"),
    ),
    "estimate": (
        ("--job", "graph.txt", "--cluster", "cluster.yaml", "--layout", "dp=2"),
        ("graph.txt", "cluster.yaml"),
        ("--json",),
    ),
    "cluster from-topo": (("topology.conf",), ("topology.conf",), ("--out",)),
    "compare": (("dp=2", "dp=1", "--job", "graph.txt", "--cluster", "cluster.yaml"), ("graph.txt", "cluster.yaml"), ("--json",)),
    "export": (("plan.json", "--format", "slurm", "--out", "new"), ("plan.json",), ("--json",)),
    "verify-export": (("plan.json", "log.txt", "--format", "slurm"), ("plan.json",), ("--json",)),
    "dev validate flows": (("flows.json",), ("flows.json",), ("--json",)),
    "dev validate pacml": (("pacml.json", "--set", "graphs=profiles"), ("pacml.json",), ("--json",)),
    "dev validate elastic": (("elastic",), ("elastic/applications/a/placements.csv",), ("--json",)),
    "dev validate placements": (("placed.json",), ("placed.json",), ("--json",)),
    "dev validate collectives": (("measured.csv",), ("measured.csv",), ("--json",)),
    "dev validate step-times": (("steps.json", "vtrain.csv"), ("steps.json",), ("--json",)),
    "dev validate kernels": (("kernels.yaml",), ("kernels.yaml",), ("--json", "--set plot")),
    "dev calibrate collectives": (("measured.csv",), ("measured.csv",), ("--out", "--json")),
    "state show": (("--state", "now.json"), ("now.json",), ("--json",)),
    "submit": (
        ("train.py", "--job", "graph.txt", "--cluster", "cluster.yaml", "--policy", "max", "--state", "new.db", "--to", "none"),
        ("graph.txt", "cluster.yaml"),
        ("--json",),
    ),
    "history decisions": (("--state", "now.db"), ("now.db",), ("--json",)),
    "history replay": (
        ("--state", "now.db", "--cluster", "cluster.yaml", "--policy", "policy.json"),
        ("now.db", "cluster.yaml", "policy.json"),
        ("--json",),
    ),
    "history calibration": (("--state", "now.db"), ("now.db",), ("--json",)),
    "dev calibrate kernels": (("kernels.yaml",), ("kernels.yaml",), ("--out", "--json")),
}
NO_INPUTS = {"list", "serve hooks"}
MODES = {"plan --search", "plan --stages", "plan --ops", "train --sweep", "evaluate --summarise"}
KINDS = "dev validate", "dev calibrate"
FILES = {"--json", "--trace", "--all", "--plot", "--out"}
"""Options that name what is written, a file or a folder."""


def test_every_command_that_writes_is_held_to_the_law():
    held = {next((kind for kind in KINDS if words.startswith(kind)), words) for words in set(COMMANDS) - MODES}
    assert commands_with(FILES) == held | NO_INPUTS


@pytest.fixture
def inputs(work):
    """Write a meaningless file under the name of each input; only a reader would notice."""
    for name in {name for _, names, _ in COMMANDS.values() for name in names} | {"vtrain.csv", "log.txt"}:
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        if not (work / name).exists():
            (work / name).write_text("{}" if name.endswith(("json", "costs.yaml")) else "nothing")
    (work / "profiles" / "tiny").mkdir(parents=True)
    (work / "profiles" / "tiny" / "graph.txt").write_text((work / "graph.txt").read_text())
    return work


def endings(option):
    return {"--all": ".csv", "--plot": ".svg", "--set plot": ".svg"}.get(option, ".out")


def written_to(option, path):
    """The words that name a file to write, by an option or a key."""
    name, _, key = option.partition(" ")
    return (name, f"{key}={path}") if key else (name, path)


@pytest.mark.parametrize("words", COMMANDS)
def test_no_command_replaces_what_it_reads(refused, inputs, words):
    arguments, names, options = COMMANDS[words]
    for option in options:
        link, hard_link = f"link{endings(option)}", f"hard{endings(option)}"
        (inputs / link).symlink_to(names[0])
        spelled = [link] if endings(option) != ".out" else [link, names[0], f"./profiles/../{names[0]}", inputs / names[0]]
        for output in spelled:
            assert refused(*words.split(), *arguments, *written_to(option, output)).startswith(f"{option}: {TOLD} (got ")
        (inputs / link).unlink()
        for name in names:
            os.link(inputs / name, inputs / hard_link)
            assert refused(*words.split(), *arguments, *written_to(option, hard_link)).startswith(f"{option}: {TOLD} (got ")
            (inputs / hard_link).unlink()


def test_a_folder_that_is_replaced_holds_no_input(refused, meshwright, inputs):
    (inputs / "runs" / "small").mkdir(parents=True)
    for name in ("config.yaml", "command.txt", "versions.json"):  # by which train knows a run folder
        (inputs / "runs" / "small" / name).write_text((inputs / "train.yaml").read_text())
    again = ("train", "runs/small/config.yaml", "--overwrite")
    for out in (("--out", "runs/small"), (), ("--out", inputs / "runs" / "small")):  # by default it is runs/NAME
        assert refused(*again, *out) == f"--out: {TOLD} (got 'runs/small/config.yaml')"
    assert meshwright("plan", "--job", "graph.txt", "--cluster", "cluster.yaml", "--json", "plan.json").status == 0
    assert meshwright("export", "plan.json", "--format", "slurm", "--out", "deploy").status == 0
    (inputs / "plan.json").rename(inputs / "deploy" / "plan.json")
    export = ("export", "deploy/plan.json", "--format", "slurm", "--out")
    message = "deploy: the folder holds a file that no export wrote; choose another (got 'plan.json')"
    assert refused(*export, "deploy") == message
    assert refused(*export, "out", "--json", "deploy/plan.json") == f"--json: {TOLD} (got 'deploy/plan.json')"


def test_a_result_in_a_folder_replaces_no_input_and_follows_no_link(refused, inputs):
    evaluate = ("evaluate", "--benchmark", "old/results.json", "--out", "old")
    (inputs / "old").mkdir()
    (inputs / "old" / "results.json").write_text((inputs / "benchmark.yaml").read_text())
    assert refused(*evaluate) == f"--out: {TOLD} (got 'old/results.json')"
    (inputs / "old" / "results.csv").symlink_to(inputs / "graph.txt")
    evaluate = ("evaluate", "--benchmark", "benchmark.yaml", "--out", "old")
    message = "--out: holds a link of the name of a result; remove it, or name what it leads to"
    assert refused(*evaluate).startswith(message)
    (inputs / "done" / "summary.html").symlink_to(inputs / "graph.txt")
    (inputs / "done" / "results.json").write_text("{}")
    assert refused("evaluate", "--summarise", "done", "--out", "done").startswith(message)


def test_a_run_that_goes_on_or_is_reported_keeps_its_files(refused, inputs):
    (inputs / "run").mkdir()
    (inputs / "run" / "versions.json").write_text("{}")
    (inputs / "run" / "policy.json").write_text("{}")  # the others are not there yet
    os.link(inputs / "run" / "policy.json", inputs / "hard.json")
    (inputs / "link").symlink_to("run")
    for name in ("run/policy.pt", "link/checkpoint.pt", "run/policy.json", "hard.json", "run/learning_curve.json"):
        message = f"--json: is the file of --resume too (got '{name}')"
        assert refused("train", "--resume", "run", "--json", name) == message
    evaluate = ("evaluate", "--benchmark", "benchmark.yaml", "--out", "run", "--json", "run/versions.json")
    (inputs / "run" / "config.yaml").write_text("")
    assert refused(*evaluate).startswith(f"--json: {TOLD} (got ")


def test_what_is_read_to_be_written_anew_is_held_against_other_outputs_only(tmp_path):
    (tmp_path / "a").write_text("")
    with protected():
        declare("--resume", tmp_path / "a", is_update=True)
        note(tmp_path / "a")
        with pytest.raises(InputFileError, match="--json: is the file of --resume too"):
            declare("--json", tmp_path / "a")


def test_two_options_name_two_files(refused, inputs):
    plan = ("plan", "--job", "graph.txt", "--cluster", "cluster.yaml")
    (inputs / "deploy").mkdir()
    (inputs / "one.svg").write_text("")
    os.link(inputs / "one.svg", inputs / "other.json")
    assert refused(*plan, "--json", "x.json", "--trace", "./x.json") == "--trace: is the file of --json too (got 'x.json')"
    search = (*plan, "--search", "--batch", "4", "--json", "other.json")
    assert refused(*search, "--plot", "one.svg") == "--plot: is the file of --json too (got 'one.svg')"
    export = ("export", "plan.json", "--format", "slurm", "--out", "deploy")
    assert refused(*export, "--json", "deploy/x.json") == "--out: would replace the file of --json (got 'deploy')"


@pytest.mark.parametrize("is_read_first", [True, False])
def test_whichever_comes_second_is_refused(tmp_path, is_read_first):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_text("")
    (tmp_path / "link").symlink_to("folder")
    steps = [lambda: note(tmp_path / "folder" / "a"), lambda: declare("--json", tmp_path / "link" / "a")]
    whole = [lambda: note(tmp_path / "link" / "a"), lambda: declare("--out", tmp_path / "folder", is_folder=True)]
    for first, second in (steps, whole) if is_read_first else (steps[::-1], whole[::-1]):
        with protected():
            first()
            with pytest.raises(InputFileError, match=TOLD):
                second()
        first(), second()  # nobody asked for it outside


def test_what_a_command_wrote_it_may_read(tmp_path):
    with protected():
        declare("--json", tmp_path / "a.json")
        declare("--out", tmp_path / "out", is_folder=True)
        files.write_json(tmp_path / "a.json", 1)
        with files.atomic_folder(tmp_path / "out") as folder:
            files.write_json(folder / "b.json", 2)
        assert (files.read_json(tmp_path / "a.json"), files.read_json(tmp_path / "out" / "b.json")) == (1, 2)


def test_what_nothing_replaces_is_read_and_written(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with protected():
        for path in (Path("/dev/null"), tmp_path / "pipe", tmp_path / "absent"):
            note(path)
            declare("--json", path)
            note(path)
