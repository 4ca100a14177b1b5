"""Laws of the program as a process: what it loads, how it stops, what it does with streams that fail it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("meshwright")
PLAN = ("plan", "--job", "graph.txt", "--cluster", "cluster.yaml")
QUICK = ("export", "--list", "--json")
"""Writes JSON and a text for people, as a plan does, and starts in a third of the time."""
HEAVY = {"numpy", "torch", "matplotlib", "plotly", "gymnasium", "numba", "scipy", "networkx", "pydantic", "rich", "typer"}


def process(*arguments, **options):
    """The finished process of a command."""
    command = [str(PROGRAM), *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, **options)


def test_help_loads_nothing_heavy_but_its_own_parser_and_that_of_plan_no_planners():
    runs = "assert run_command_line(['--help']) == 0", "assert run_command_line(['plan', '--help']) == 0"
    shown = f"print('LOADED', sorted({HEAVY} & set(sys.modules)))"
    code = "\n".join(("import sys", "from meshwright.cli import run_command_line", runs[0], shown, runs[1], shown))
    completed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    first, second = (line for line in completed.stdout.splitlines() if line.startswith("LOADED"))
    assert first == "LOADED ['typer']"
    assert "numba" not in second


@pytest.mark.parametrize("is_search", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_search_ends_with_all_of_its_output_and_frees_nothing(work, is_search):
    words = ("plan", "--search", "--job", "zoo:gpt2-small", "--batch", "8", "--cluster", "preset:host-8", "--json", "-")
    code = "import atexit, sys\nfrom meshwright.cli import main\natexit.register(print, 'freed', file=sys.stderr)\nmain()"
    command = [sys.executable, "-c", code, *(words if is_search else (*QUICK, "-"))]
    ran = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    assert json.loads(ran.stdout)
    assert ("freed" in ran.stderr) is not is_search


def test_a_refusal_is_one_line_on_standard_error_and_status_two(work):
    before = sorted(work.iterdir())
    result = process(*PLAN, "--json", "missing/plan.json")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "meshwright: error: --json: no such folder (got 'missing')\n"
    assert sorted(work.iterdir()) == before


def test_json_is_all_that_stands_on_standard_output_and_a_terminal_that_knows_only_ascii_gets_it_and_the_table(work):
    (work / "gräph").mkdir()
    (work / "graph.txt").rename(work / "gräph" / "graph.txt")
    result = process(
        "plan", "--job", "gräph", "--cluster", "cluster.yaml", "--json", "-", env=os.environ | {"PYTHONIOENCODING": "ascii"}
    )
    assert result.returncode == 0
    plan = json.loads(result.stdout)
    assert (plan["schema_version"], plan["job"]["name"]) == (3, "gräph")
    assert r"Candidates for gr\xe4ph" in result.stderr


def test_names_that_no_terminal_and_no_system_takes_are_told_in_one_line(refused):
    message = refused("plan", "--job", "far/\x1b[31mred\n\x07.txt", "--cluster", "cluster.yaml")
    assert "\x1b" not in message
    assert "\x07" not in message
    assert refused("plan", "--job", "x" * 5000, "--cluster", "cluster.yaml").startswith("xxx")


@pytest.mark.parametrize("command", [pytest.param(("--help",), marks=pytest.mark.slow), (*QUICK, "-")])
def test_a_reader_that_stops_reading_causes_no_complaint(work, command):
    reads, writes = os.pipe()
    os.close(reads)
    with (work / "complaints").open("w") as complaints:
        # What goes to people goes to the same reader, where JSON goes to standard output.
        streams = {"stdout": writes, "stderr": writes if "-" in command else complaints}
        completed = subprocess.run([str(PROGRAM), *command], check=False, timeout=120, **streams)
    os.close(writes)
    assert (completed.returncode, (work / "complaints").read_text()) == (141, "")


@pytest.mark.parametrize("command", [pytest.param(("--version",), marks=pytest.mark.slow), (*QUICK, "-")])
def test_a_full_disk_is_told_in_one_line(command):
    with Path("/dev/full").open("w") as full:
        completed = subprocess.run(
            [str(PROGRAM), *command], check=False, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120
        )
    assert completed.returncode == 2
    assert completed.stderr == "meshwright: error: the system refuses: No space left on device\n"


def test_closed_streams_do_no_harm(work):
    script = f"{PROGRAM} {' '.join(QUICK)} formats.json >&- 2>&-; echo $?; {PROGRAM} bogus >&- 2>&-; echo $?"
    completed = subprocess.run(["bash", "-c", script], check=False, capture_output=True, text=True, timeout=120)
    assert (completed.stdout, completed.stderr) == ("0\n2\n", "")
    assert "slurm" in json.loads((work / "formats.json").read_text())


def interrupted(work, *arguments, sign):
    """The process of a command whose whole group got Ctrl-C, as from a terminal, once a text stood in its output."""
    (work / "slow.py").write_text(SLOW)
    command = [str(PROGRAM), *arguments]
    begun = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": str(work)},
        # A test run in the background of a shell ignores SIGINT, and what it starts would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 200  # the first of all runs compiles, which takes minutes on a busy machine
    while not any(work.glob(sign)) and begun.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    if not any(work.glob(sign)):
        begun.kill()
        raise AssertionError(f"it never began: {begun.communicate()}")
    os.killpg(begun.pid, signal.SIGINT)
    out, err = begun.communicate(timeout=60)
    return begun.returncode, out, err


SLOW = """import os, time
from pathlib import Path

class Sleeper:
    def __init__(self, scenario):
        self.name = "sleeper"
    def reset(self, seed):
        pass
    def choose(self, decision, observation):
        # Not earlier: an interrupt in the middle of a load of compiled code is reported by the library that loads it.
        Path(f"began-{os.getpid()}").touch()
        time.sleep(600)
        return 0
"""


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_an_interrupt_ends_an_evaluation_at_once_in_one_line(work, jobs):
    command = ("evaluate", "python:slow:Sleeper", "--benchmark", "benchmark.yaml", "--jobs", jobs, "--json", "results.json")
    status, out, err = interrupted(work, *command, sign="began-*")
    assert (status, out, err) == (130, "", "meshwright: interrupted\n")
    assert not (work / "results.json").exists()


@pytest.mark.slow
def test_an_interrupted_training_leaves_a_run_that_goes_on(work):
    command = ("train", "train.yaml", "--out", "run", "--set", "total_steps=400000")
    status, out, err = interrupted(work, *command, sign="run/checkpoint.pt")
    assert (status, err) == (130, "meshwright: interrupted; to resume: meshwright train --resume run\n")
    assert out.splitlines()[-1].startswith("interrupted after ")
    names = {path.name for path in (work / "run").iterdir()}
    assert names >= {"config.yaml", "command.txt", "versions.json", "checkpoint.pt", "policy.pt"}
    assert not any(name.startswith(".") for name in names)
