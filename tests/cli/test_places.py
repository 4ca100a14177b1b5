"""Laws of places: a command makes, changes and removes nothing outside what its options name, whatever its inputs are called."""

import json
import shlex

import pytest

from meshwright.costs.training_step.kernels import kernel_settings
from meshwright.evaluation.calibration import fit_measured, measure
from meshwright.evaluation.calibration.kernel_table import read
from meshwright.evaluation.validation import elastic
from meshwright.evaluation.validation.comparison import Comparison
from meshwright.jobs.graph import JobGraph
from meshwright.jobs.load import load_graph

from ..fuzz.costs_and_measurements import FLOWS, PACML, STEPS
from ..fuzz.inputs import valid
from ..simulation.operators.published_samples import PUBLISHED
from .conftest import HOSTILE, commands_with

pytestmark = pytest.mark.usefixtures("undrawn")

FOLDER = " -$(touch injected) \n"
"""Name of folders and files of inputs."""

EVALUATE = "evaluate --benchmark b.yaml --graphs profiles --seeds 1 --out out/run --set policies=[max] --set scenario.num_jobs="
JOB = f"--set graphs=profiles --cluster cluster.yaml --job {shlex.quote(FOLDER)}"
PLAYED = [
    EVALUATE + "60",
    "export out/run --format slurm --out out/run/export/slurm",
    EVALUATE + "2",  # removes what was exported
    "evaluate --summarise out --out out/summary --json out/summary.json",
]
PLANNED = [
    "plan --job 0.json --cluster cluster.yaml --json out/plan.json --trace out/trace.json",
    "export out/plan.json --format kubernetes --out out/kubernetes",
    "export out/plan.json --format chakra --out out/chakra",
    f"plan --search {JOB} --batch 4 --json out/layout.json --all out/all.csv --plot out/plot.svg",
    "export out/layout.json --format deepspeed --out out/deepspeed --json out/files.json",
    "plan --ops --job 0.json --cluster cluster.yaml --policy heft --json out/ops.json --trace out/ops-t.json --plot out/ops.svg",
    "plan --stages network.json --budget-s 0.05 --json out/arranged.json",
    "cluster from-topo {wiring} --out out/wired.yaml",
    "profile {model} --input 2x3 --out out/traced.json --json out/calls.json",
    "export out/ops.json --format tensorflow --out out/tensorflow",
    "verify-export out/layout.json {log} --format deepspeed --json out/verified.json",
    "list devices --json out/devices.json",
    "state add out/plan.json --state out/now.db",
    "state add out/plan.json --state out/now.json",
    "state prune --state out/now.db --keep-days 1",
    "state show --state out/now.db --cluster cluster.yaml --json out/state.json --html out/state.html",
    "submit train.py --job 0.json --cluster cluster.yaml --policy max --state out/a.db --to none --out out/job --json out/a.json",
    "history decisions --state out/a.db --json out/decisions.json",
    "serve hooks --server unix:/run/service --out out/hooks",
    "history replay --check --policy max --state out/now.db --cluster cluster.yaml --json out/check.json",
    "history calibration --state out/now.db --json out/calibration.json",
    f"estimate {JOB} --layout dp=2,global_batch=4,micro_batch=1 --json out/estimate.json",
    f"compare {JOB} dp=2,global_batch=4,micro_batch=1 dp=1,global_batch=4,micro_batch=1 --json out/compared.json",
]
MEASURED = [
    "dev validate flows {flows} --json out/flows.json",
    "dev validate pacml {pacml} --set graphs=pacml --json out/pacml.json",
    "dev validate elastic elastic --json out/elastic.json",
    "dev validate strategies --set 'only=[uneven networks]' --json out/strategies.json",
    "dev validate placements {placed} --set search_s=0.1 --json out/placed.json",
    "dev validate sharing --set sets=1 --set keep=out/sets --json out/sharing.json",
    "dev calibrate sharing --set sets=2 --set keep=out/fitted --json out/constants-of-sharing.json",
    "dev validate collectives {collectives} --json out/held.json",
    "dev validate step-times {steps} --json out/steps.json",
    "dev validate kernels {kernels} --json out/kernels.json --set plot=out/kernels.svg",
    "dev calibrate collectives {collectives} --set name=a-b.d --out out/system.yaml --json out/system.json",
    "dev calibrate kernels {kernels} --out out/constants.yaml --json out/constants.json",
    "dev calibrate measure --out out/measured.yaml --json out/measured.json",
]
WRITES = {"--html", "--json", "--trace", "--all", "--plot", "--out"}


def test_every_command_that_writes_is_played():
    """Training is in the fixture `trained` of these tests, and in those of tuning; sweeps, an extra, in those of sweeps."""
    lines = [*PLAYED, *PLANNED, *MEASURED]
    assert {words for words in commands_with(WRITES) if not any(f"{line} ".startswith(f"{words} ") for line in lines)} == {
        "train"
    }


@pytest.fixture
def command(sandbox, stays):
    """``command(line, **paths)`` succeeds, and leaves everything outside ``out`` as it was."""

    def succeeds(line, **paths):
        words = [paths[word[1:-1]] if word.startswith("{") else word for word in shlex.split(line)]
        stays(*words)
        assert all((sandbox / word).exists() for word in words if word.startswith("out/"))

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
    (sandbox / "b.yaml").write_text((sandbox / "benchmark.yaml").read_text().replace("workload.yaml", "w.yaml"))
    return sandbox / "out"


def test_evaluations_and_exports_stay_in_their_folders_whatever_graphs_are_called(command, named):
    """Each name that was played gets a plan of its own, under its own spelling."""
    evaluate, export, again, summarise = PLAYED
    command(evaluate)
    index = json.loads((named / "run" / "plans" / "index.json").read_text())
    placed = {name.split("-", 2)[2] for name in index["plans"]}
    assert placed <= {*HOSTILE, f"profile-{FOLDER}"}
    assert len(placed) > len(HOSTILE) / 2
    assert {*index["files"].values(), "index.json"} == {path.name for path in (named / "run" / "plans").iterdir()}
    command(export)
    exports = named / "run" / "export" / "slurm"
    rows = json.loads((exports / "index.json").read_text())["plans"]
    assert [row["name"] for row in rows] == index["plans"]
    assert sorted(row["folder"] for row in rows) == sorted(path.parent.name for path in exports.glob("*/job.sbatch"))
    command(again)
    assert not exports.exists()
    command(summarise)


def test_plans_and_estimates_stay_in_their_files_whatever_the_graph_is_called(command, named):
    (named.parent / FOLDER).write_text(valid("probed.txt"))
    (named.parent / (FOLDER + "net.py")).write_text("import torch\n\n\ndef net():\n    return torch.nn.Linear(3, 4)\n")
    (named.parent / (FOLDER + "topology.conf")).write_text("SwitchName=leaf Nodes=gpu-[1-4]\n")
    for line in PLANNED:
        command(line, log=FOLDER, model=FOLDER + "net.py:net", wiring=FOLDER + "topology.conf")
    for number in range(1, len(HOSTILE), 4):
        command(PLANNED[0].replace("0.json", f"{number}.json"))


def test_validations_and_calibrations_stay_in_their_files_whatever_their_inputs_are_called(command, sandbox, monkeypatch):
    """Results for the commands that need a GPU, the root user or seconds."""
    (sandbox / "pacml" / "one").mkdir(parents=True)
    (sandbox / "pacml" / "one" / "graph.txt").write_text(valid("profile.txt"))
    texts = {"kernels.yaml": valid("measured-kernels.yaml"), "collectives.csv": valid("nccl.csv")}
    texts |= {"placed.json": json.dumps(PUBLISHED)}
    texts |= {"flows.json": json.dumps(FLOWS), "pacml.json": json.dumps(PACML), "steps.json": json.dumps(STEPS)}
    paths = {name.partition(".")[0]: FOLDER + name for name in texts}
    for name, text in texts.items():
        (sandbox / (FOLDER + name)).write_text(text)
    measured = read(sandbox / paths["kernels"])
    monkeypatch.setattr(measure, "measure", lambda *_, **__: measured)
    monkeypatch.setattr(elastic, "validate", lambda *_: (Comparison(()), []))
    fitted = fit_measured.MeasuredCalibration(kernel_settings("h100"), kernel_settings("h100"), (), {}, {})
    monkeypatch.setattr(fit_measured, "calibrate", lambda *_, **__: fitted)
    for line in MEASURED:
        command(line, **paths)


def test_what_is_called_as_no_file_can_be_is_refused_where_a_file_gets_its_name(refused, sandbox):
    (sandbox / "nccl.csv").write_text(valid("nccl.csv"))
    for name in HOSTILE[:8]:
        assert "name" in refused("dev", "calibrate", "collectives", "nccl.csv", "--set", f"name={json.dumps(name)}")
