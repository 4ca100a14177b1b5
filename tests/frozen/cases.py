"""The commands whose outputs are frozen, by group; each costs seconds, the whole some minutes."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple


class Case(NamedTuple):
    """One command.

    Attributes:
        name: unique in its group.
        arguments: of ``meshwright``, without ``--json``; ``{folder}`` is replaced by the group's folder.
        keeps: file of the folder that its JSON is copied to, for later cases.
        written: folder whose files are recorded in place of the JSON.
        rows: whether each row of a table is recorded, or one digest of all.
    """

    name: str
    arguments: list[str]
    keeps: str = ""
    written: str = ""
    rows: bool = True


CLUSTERS = ("dgx-a100-8x8", "clos-64-4to1", "uneven-64")
TRANSFORMER = "tp=2,pp=2,dp=4,micro_batch=2,global_batch=64"
OPS = "pp=2,dp=4,micro_batch=4,global_batch=64"
JOBS = {
    "bert-large": TRANSFORMER,
    "gpt2-xl": "pp=2,dp=8,micro_batch=2,global_batch=64",
    "llama-7b": TRANSFORMER,
    "vgg16": OPS,
    "resnet50": OPS,
    "gnmt": OPS,
}
FRAMEWORKS = ("megatron", "torchtitan", "deepspeed", "fsdp2")
FORMATS = (
    "slurm",
    "kubernetes",
    "ray",
    "torchrun",
    "openmpi",
    "megatron",
    "torchtitan",
    "deepspeed",
    "device-map",
    "tensorflow",
    "chakra",
)

FLEET_RULES = (
    "sjf+backfill",
    "edf:least-device-seconds+backfill",
    "edf:goodput-shares+backfill",
    "fifo:fixed-4@spread",
    "random",
)
RULES = {
    "quickstart": [
        "random",
        "max",
        "min",
        "cheapest-feasible",
        "fastest-feasible",
        "acceptable-jct",
        "fixed-8@best-fit",
        "ladder-2-8",
    ],
    "menu-64": list(FLEET_RULES),
    "llm-256-elastic": ["sjf:goodput-shares", "fifo", "sjf:marginal-gain"],
    "latency-tight": ["heft", "m-etf", "m-sct", "multilevel", "fastest-device", "round-robin"],
    "throughput-tight": ["fastest-device", "round-robin"],
}


def searched(job: str, batch: int, cluster: str, *more: str, keeps: str = "") -> Case:
    """Search the layouts of one job on eight devices of a cluster."""
    name = " ".join((job, cluster, *more))
    head = ["plan", "--search", "--job", f"zoo:{job}", "--batch", str(batch), "--devices", "8", "--cluster", f"preset:{cluster}"]
    return Case(name, [*head, *more], keeps)


def estimates() -> Iterator[Case]:
    """Price one layout of six jobs on three clusters."""
    for cluster in CLUSTERS:
        for job, layout in JOBS.items():
            yield Case(
                f"{job} {cluster}", ["estimate", "--job", f"zoo:{job}", "--cluster", f"preset:{cluster}", "--layout", layout]
            )


def plans() -> Iterator[Case]:
    """Search two jobs on two clusters, and one for each framework."""
    for cluster in ("dgx-a100-8x8", "clos-64-4to1"):
        yield searched("bert-large", 64, cluster)
        yield searched("vgg16", 64, cluster)
    for framework in FRAMEWORKS:
        yield searched("bert-large", 64, "dgx-a100-8x8", "--for", framework)


def placements() -> Iterator[Case]:
    """Place the ops of two jobs by planners that draw nothing and have no clock."""
    for objective, planners in (("latency", ("heft", "m-etf", "m-sct", "multilevel")), ("throughput", ("multilevel",))):
        for job in ("gnmt", "vgg16"):
            for planner in planners:
                where = ["--job", f"zoo:{job}", "--cluster", "preset:host-8"]
                arguments = ["plan", "--ops", *where, "--objective", objective, "--policy", planner]
                yield Case(f"{job} {objective} {planner}", arguments)


def exports() -> Iterator[Case]:
    """Export four plans to every format; a format that cannot take one is recorded as refused."""
    yield searched("bert-large", 64, "dgx-a100-8x8", keeps="layout.json")
    yield searched("bert-large", 64, "dgx-a100-8x8", "--for", "deepspeed", keeps="deepspeed.json")
    yield Case("place", ["plan", "--ops", "--job", "zoo:vgg16", "--cluster", "preset:host-8", "--policy", "heft"], "ops.json")
    yield Case("rule", ["plan", "--job", "zoo:vgg16", "--cluster", "preset:ramp-4x4x2"], "rule.json")
    for plan in ("layout", "deepspeed", "ops", "rule"):
        for form in FORMATS:
            out = f"{plan}-{form}"
            yield Case(out, ["export", f"{{folder}}/{plan}.json", "--format", form, "--out", f"{{folder}}/{out}"], written=out)


def evaluations() -> Iterator[Case]:
    """Evaluate rules of each world on three seeds; of placed ops the placements, as their ratios hang on a clock."""
    for benchmark, rules in RULES.items():
        arguments = ["evaluate", *rules, "--benchmark", benchmark, "--seeds", "3", "--set", "policies=[]"]
        if benchmark.endswith("-tight"):
            dump = ["--set", "best_known_s=0.1", "--dump", f"{{folder}}/{benchmark}"]
            yield Case(benchmark, [*arguments, *dump], written=benchmark)
        else:
            yield Case(benchmark, arguments)
    if folder := reference():
        rules = ["tiresias", "optimus", "expected-remaining", "shortest-remaining"]
        data = ["--set", "policies=[]", "--set", f"elastic.data={folder / 'elastic'}"]
        yield Case("elastic", ["evaluate", *rules, "--benchmark", "elastic-published-1.0", "--seeds", "2", *data])


def validations() -> Iterator[Case]:
    """Hold the cost model and the simulators against published figures, where the reference data is."""
    yield Case("flows", ["dev", "validate", "flows", "tests/frozen/flows.json"], rows=False)
    yield Case("sharing", ["dev", "validate", "sharing", "--set", "sets=2"], rows=False)
    folder = reference()
    if folder is None:
        return
    published = folder / "published"
    kinds = {
        "step-times": [published / name for name in ("step_times.json", "step_times_h100.json", "vtrain_single_node.csv")],
        "collectives": [folder / "collectives" / "h100_sxm_nccl_perf.csv"],
        "kernels": ["h100"],
        "pacml": [folder / "pacml" / "reference.json", "--set", f"graphs={folder / 'pipedream'}"],
        "elastic": [folder / "elastic"],
        "strategies": ["--set", f"reference={folder}"],
    }
    for kind, inputs in kinds.items():
        yield Case(kind, ["dev", "validate", kind, *map(str, inputs)], rows=False)


def reference() -> Path | None:
    """Return the folder of reference data, where it is."""
    named = os.environ.get("MESHWRIGHT_REFERENCE")
    folder = Path(named) if named else Path(__file__).resolve().parents[3] / "shared" / "reference"
    return folder if (folder / "README.md").is_file() else None


CASES: dict[str, Callable[[], Iterator[Case]]] = {
    "estimate": estimates,
    "plan": plans,
    "place": placements,
    "export": exports,
    "evaluate": evaluations,
    "validate": validations,
}
NEED_REFERENCE = {"step-times", "collectives", "kernels", "pacml", "elastic", "strategies"}
"""Cases of any group that are left out where the reference data is absent."""
