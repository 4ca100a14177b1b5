"""Laws of places: a command makes, changes and removes nothing outside what its options name, whatever its inputs are called."""

import json
import os
from pathlib import Path

import pytest

from meshwright.cli import run
from meshwright.jobs.graph import JobGraph
from meshwright.jobs.load import load_graph

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
FOLDER = " -$(touch injected) \n"


def tree(root, apart):
    """Every file, folder and link below a folder but one, with what it holds."""
    found = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if Path(folder) / name != apart]
        for path in (Path(folder) / name for name in (*folders, *names)):
            is_link, is_file = path.is_symlink(), path.is_file()
            found[str(path)] = os.readlink(path) if is_link else path.read_bytes() if is_file else None
    return found


@pytest.fixture
def sandbox(tmp_path, work):
    """The working folder with the inputs; what is written goes to ``out`` in it, beside it lies what must stay."""
    for folder in (work, work / "outside", work / "plans"):
        folder.mkdir(exist_ok=True)
        for name in ("precious", "precious.json"):
            (folder / name).write_text("years of work")
    (work / "link").symlink_to("outside")
    (work / "b.yaml").write_text((work / "benchmark.yaml").read_text().replace("workload.yaml", "w.yaml"))
    (work / "t.yaml").write_text((work / "train.yaml").read_text().replace("benchmark.yaml", "b.yaml"))
    return work


@pytest.fixture
def command(sandbox):
    """``command(*words)`` succeeds, and leaves everything outside ``out`` as it was."""

    def succeeds(*words):
        before = tree(sandbox, sandbox / "out")
        assert run([str(word) for word in words]) == 0, words
        assert tree(sandbox, sandbox / "out") == before

    return succeeds


@pytest.fixture
def named(sandbox):
    """Graphs of all names, a workload of them, and a profile in a folder of such a name."""
    data = load_graph(str(sandbox / "graph.txt")).to_data()
    for number, name in enumerate(HOSTILE):
        ops = {"op_names": [f"{name}{op}" for op in range(2)], "op_kinds": [name] * 2}
        JobGraph.from_data(data | {"name": name} | ops, file="graph").save(sandbox / f"{number}.json")
    (sandbox / "profiles" / FOLDER).mkdir(parents=True)
    (sandbox / "profiles" / FOLDER / "graph.txt").write_text((sandbox / "graph.txt").read_text())
    graphs = f"graphs: [{', '.join(f'{number}.json' for number in range(len(HOSTILE)))}]"
    workload = (sandbox / "workload.yaml").read_text().replace("graphs: [zoo:squeezenet, zoo:resnet18]", graphs)
    (sandbox / "w.yaml").write_text(workload)
    (sandbox / "out").mkdir()
    return sandbox / "out"


def test_evaluations_training_and_exports_stay_in_their_folders_whatever_graphs_are_called(command, named):
    """Each name that was played gets a plan of its own, under its own spelling."""
    command("train", "t.yaml", "--graphs", "profiles", "--out", named / "trained", "--json", named / "trained.json")
    played = ("evaluate", "max", "--benchmark", "b.yaml", "--graphs", "profiles", "--set", "scenario.num_jobs=60")
    command(*played, "--seeds", "1", "--out", named / "run")
    index = json.loads((named / "run" / "plans" / "index.json").read_text())
    placed = {name.split("-", 2)[2] for name in index["plans"]}
    assert placed <= {*HOSTILE, f"profile-{FOLDER}"}
    assert len(placed) > len(HOSTILE) / 2
    assert {*index["files"].values(), "index.json"} == {path.name for path in (named / "run" / "plans").iterdir()}
    exports = named / "run" / "export" / "slurm"
    command("export", named / "run", "--format", "slurm", "--out", exports)
    rows = json.loads((exports / "index.json").read_text())["plans"]
    assert [row["name"] for row in rows] == index["plans"]
    assert sorted(row["folder"] for row in rows) == sorted(path.parent.name for path in exports.glob("*/job.sbatch"))
    command(*played, "--set", "scenario.num_jobs=10", "--seeds", "1", "--out", named / "run")  # removes what was exported
    assert not exports.exists()
    command("summarise", named, "--out", named / "summary", "--json", named / "summary.json")


@pytest.mark.parametrize("job", [*(f"{number}.json" for number in range(0, len(HOSTILE), 8)), FOLDER])
def test_plans_and_estimates_stay_in_their_files_whatever_the_graph_is_called(command, named, job):
    where = ("--job", job, "--graphs", "profiles", "--cluster", "cluster.yaml")
    command("plan", *where, "--json", named / "plan.json", "--trace", named / "trace.json")
    layouts = ("--json", named / "layout.json", "--all", named / "all.csv", "--plot", named / "plot.svg")
    command("plan", "--search", *where, "--batch", "4", *layouts)
    for plan, target in (("plan.json", "kubernetes"), ("plan.json", "chakra"), ("layout.json", "deepspeed")):
        command("export", named / plan, "--format", target, "--out", named / target)
    command("estimate", *where, "--layout", "dp=2,global_batch=4,micro_batch=1", "--json", named / "estimate.json")
