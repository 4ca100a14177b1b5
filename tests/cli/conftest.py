"""A work folder with small good inputs, and the one rule for bad ones: `refused` runs a command that must be refused."""

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from meshwright.cli import run_command_line
from meshwright.cli.app import app
from meshwright.jobs.graph import JobGraph
from meshwright.jobs.load import load_graph

OP = (
    "node{} -- Linear(8, 8) -- forward_compute_time=10.0, backward_compute_time=20.0, "
    "activation_size=100.0, parameter_size=400.0\n"
)

GOOD = {
    "graph.txt": OP.format(1) + OP.format(2) + "\tnode1 -- node2\n",
    "cluster.yaml": """name: pair
device: a100
topology:
  kind: single-host
  num_devices: 2
  fabric: switch
  bandwidth_gbytes_per_s: 100.0
  latency_us: 1.0
""",
    "workload.yaml": """graphs: [zoo:squeezenet, zoo:resnet18]
steps: {kind: fixed, num_steps: 1000}
arrivals: {kind: fixed, interarrival_s: 20.0}
deadline: {kind: uniform, low: 0.3, high: 1.0, decimals: 2}
""",
    "benchmark.yaml": """name: small
scenario:
  cluster: cluster.yaml
  workload: workload.yaml
  num_jobs: 10
  max_degree: 2
policies: [max, min]
num_seeds: 2
num_validation_seeds: 2
""",
    "train.yaml": """name: small
benchmark: benchmark.yaml
total_steps: 32
validate_every_steps: 16
num_validation_seeds: 1
checkpoint_every_steps: 16
ppo: {num_envs: 2, rollout_steps: 8, minibatch: 8, epochs: 1}
network: {graph_hidden: 4, graph_embedding: 3, graph_rounds: 1, slot_hidden: 4, device_hidden: 3, hidden: 8}
""",
}

HOSTILE = [
    *("../" * depth + "outside/precious" for depth in range(1, 5)),
    *("/" + "../" * depth + "outside/precious" for depth in range(1, 5)),
    "meta-llama/Llama-2-7b",
    "a b",
    "a-b",
    "n" * 300,
    "n" * 301,
    ".",
    "..",
    ".hidden",
    "-rf",
    "$(touch injected)",
    "a\nb",
    "\0",
    "index",
    "模型",
]
"""Names of jobs that would do harm as paths, or as words of a shell."""


@dataclass(frozen=True)
class Told:
    """The output of a command."""

    status: int
    out: str
    err: str


Run = Callable[..., Told]
Refused = Callable[..., str]
Spoil = Callable[[str, str, str], str]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the good inputs."""
    for name, text in GOOD.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sandbox(work: Path) -> Path:
    """The working folder with the inputs; commands write to ``out`` in it, and the files next to ``out`` must stay."""
    for folder in (work, work / "outside", work / "plans", work / "out"):
        folder.mkdir(exist_ok=True)
    for folder in (work, work / "outside", work / "plans"):
        for name in ("precious", "precious.json"):
            (folder / name).write_text("years of work")
    (work / "link").symlink_to("outside")
    matrix = [[1.0, 2.0, 3.0, 4.0]] * 4
    constants = {"stages_way": 2, "send_gradient_size_GB": 1, "send_activation_size_GB": 1}
    network = {"delay_ms": matrix, "bandwidth_gbps": matrix, "constants": constants}
    (work / "network.json").write_text(json.dumps(network))
    return work


@pytest.fixture
def stays(sandbox: Path) -> Callable[..., None]:
    """``stays(*arguments)`` does what a command asks for, and leaves everything outside ``out`` as it was."""

    def command(*arguments: object) -> None:
        before = tree(sandbox, sandbox / "out")
        assert run_command_line([str(argument) for argument in arguments]) in (0, 1), arguments
        assert tree(sandbox, sandbox / "out") == before

    return command


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder of the small training config; one of its graphs is named like something outside of it."""
    folder = tmp_path_factory.mktemp("trained")
    for name, text in GOOD.items():
        text = text.replace("benchmark: benchmark.yaml", f"benchmark: {folder}/benchmark.yaml").replace("zoo:resnet18", "g.json")
        (folder / name).write_text(text)
    JobGraph.from_data(load_graph("zoo:resnet18").to_data() | {"name": HOSTILE[0]}, file="graph").save(folder / "g.json")
    before = tree(folder, folder / "run")
    assert run_command_line(["train", str(folder / "train.yaml"), "--out", str(folder / "run")]) == 0
    assert tree(folder, folder / "run") == before
    return folder / "run"


@pytest.fixture
def meshwright(work: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """``meshwright(*arguments)`` runs a command in the working folder, in this process."""

    def command(*arguments: object) -> Told:
        capsys.readouterr()
        status = run_command_line([str(argument) for argument in arguments])
        output = capsys.readouterr()
        return Told(status, output.out, output.err)

    return command


@pytest.fixture
def refused(work: Path, meshwright: Run) -> Refused:
    """``refused(*arguments)`` is the error of a command under the rule: one line, status 2, no file touched."""

    def command(*arguments: object) -> str:
        before = contents(work)
        result = meshwright(*arguments)
        assert result.status == 2
        assert result.out == ""
        assert result.err.startswith("meshwright: error: ")
        assert result.err.endswith("\n")
        assert result.err.count("\n") == 1
        assert contents(work) == before
        return result.err.removeprefix("meshwright: error: ").rstrip("\n")

    return command


@pytest.fixture
def spoil(work: Path) -> Spoil:
    """``spoil(name, old, new)`` replaces a text that occurs once in a good input, and returns the input's name."""

    def change(name: str, old: str, new: str) -> str:
        text = (work / name).read_text()
        assert text.count(old) == 1
        (work / name).write_text(text.replace(old, new))
        return name

    return change


def commands_with(options: set[str]) -> set[str]:
    """The words of every command that has one of some options."""

    def below(command: Any, words: tuple[str, ...]) -> Iterator[str]:
        if any(options & set(parameter.opts) for parameter in command.params):
            yield " ".join(words)
        for name, inner in getattr(command, "commands", {}).items():
            yield from below(inner, (*words, name))

    return set(below(get_command(app), ()))


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder below a folder, hidden ones too, with the bytes of the files."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in sorted(folder.rglob("*"))}


def tree(root: Path, apart: Path) -> dict[str, str | bytes | None]:
    """Every file, folder and link below a folder but one, with what it holds."""
    result: dict[str, str | bytes | None] = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if Path(folder) / name != apart]
        for path in (Path(folder) / name for name in (*folders, *names)):
            is_link, is_file = path.is_symlink(), path.is_file()
            result[str(path)] = os.readlink(path) if is_link else path.read_bytes() if is_file else None
    return result
