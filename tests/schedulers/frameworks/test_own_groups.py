"""Thirty plans of four frameworks on launchers: the framework's own code makes the plan's groups of what each rank was given."""

import importlib.util
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.export import export, write
from meshwright.export.probe import AXES
from meshwright.plans import Layout
from meshwright.plans.document import PlacementPlan

from ...export.frameworks.test_on_launchers import started
from ...export.grids import plan_of

OWN = Path(__file__).with_name("own_groups.py")
RECORD = """
import json, os, sys
e = os.environ
device = e["CUDA_VISIBLE_DEVICES"].split(",")[int(e["LOCAL_RANK"])]
host = e.get("SLURMD_NODENAME") or os.uname().nodename
os.write(1, ("launched " + json.dumps([int(e["RANK"]), host, int(device), sys.argv[1:]]) + chr(10)).encode())
"""
BATCH = {"micro_batch": 1, "global_batch": 8}
BOTH = {"tp": 2, "dp": 4, "ep": 2}
DEGREES = {
    "megatron": [{"tp": 2, "pp": 2, "dp": 2}, {"tp": 2, "cp": 2, "dp": 2}, {"dp": 8, "ep": 2}, {"pp": 4, "dp": 2}, BOTH],
    "torchtitan": [{"tp": 2, "dp": 4}, {"cp": 2, "pp": 2, "dp": 2}, {"dp": 8, "ep": 4}, {"tp": 2, "pp": 2, "dp": 2}, BOTH],
    "deepspeed": [{"dp": 8}, {"tp": 2, "dp": 4}, {"pp": 2, "dp": 4}, {"tp": 2, "pp": 2, "dp": 2}, {"tp": 4, "dp": 2}],
    "fsdp2": [{"dp": 8}, {"dp": 8, "shard_group": 4}, {"dp": 8, "shard_group": 2}],
}
MORE = {
    **{"megatron": {"zero": 1}, "torchtitan": {"zero": 2}, "deepspeed": {"zero": 1}},
    "fsdp2": {"zero": 3, "framework": "fsdp2"},
}


def plans():
    """Each layout with ranks in its own order and another one, which is any where the framework numbers ranks itself."""
    rng = random.Random(1)
    for framework, all_degrees in DEGREES.items():
        for degrees in all_degrees:
            orders = [None, rng.sample(range(8), 8), rng.sample(range(4, 8), 4) + rng.sample(range(4), 4)]
            cuts = {"sequence_parallel": "tp" in degrees and framework != "deepspeed"}
            for order in {"deepspeed": orders[:1], "fsdp2": orders[::2]}.get(framework, orders[:2]):
                plan = plan_of(Layout(**BATCH, **MORE[framework], **cuts, **degrees), order)
                text = plan.model_copy(update={"framework": framework}).model_dump_json(exclude_none=True)
                yield PlacementPlan.model_validate_json(text.replace("gpu-09", "gpu-07").replace("gpu-08", "gpu-03"))


PLANS = list(plans())


def wanted(plan):
    """Of each device those of its groups, by axis, as the plan has them."""
    layout, at = plan.layout(), {(rank.host, rank.local_rank): rank.coordinates for rank in plan.ranks}
    expert = {place: (one.dp * layout.cp + one.cp) // layout.ep for place, one in at.items()}
    keys = {
        axis: {place: [getattr(one, other) for other in ("pp", "dp", "cp", "tp") if other != axis] for place, one in at.items()}
        for axis in ("pp", "dp", "cp", "tp")
    }
    keys["ep"] = {place: [one.pp, one.tp, expert[place]] for place, one in at.items()}
    return {place: {axis: {p for p in at if key[p] == key[place]} for axis, key in keys.items()} for place in at}


def hold(launched):
    """Launched: of each plan its folder and of each rank host, device and words."""
    assert len(launched) >= 30
    missing = [
        name
        for name in ("megatron", "torchtitan", "deepspeed", "hjson", "einops", "cpuinfo")
        if importlib.util.find_spec(name) is None
    ]
    if missing or "MEGATRON_LM" not in os.environ:
        pytest.skip(f"not installed: {', '.join(missing) or 'Megatron-LM, where MEGATRON_LM names a checkout of core_v0.16.1'}")
    request = [
        {
            **{"framework": plan.framework, "world": 8, "folder": str(folder), "words": [words for _, _, words in ranks]},
            **{"degrees": {axis: getattr(plan.layout(), axis) for axis in AXES}, "zero": plan.layout().zero},
        }
        for plan, folder, ranks in launched
    ]
    ran = subprocess.run([sys.executable, OWN], input=json.dumps(request), capture_output=True, text=True, cwd=OWN.parent)
    assert ran.returncode == 0, ran.stderr[-3000:]
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("[")]
    for (plan, _, ranks), result in zip(launched, lines, strict=True):
        places, groups = [(host, device) for host, device, _ in ranks], wanted(plan)
        for place, made in zip(places, result, strict=True):
            for axis, members in made.items():
                assert {places[rank] for rank in members} == groups[place][axis], (plan.framework, plan.layout(), place, axis)


@pytest.mark.scheduler("frameworks")
def test_the_words_of_every_launcher_make_the_planned_groups(tmp_path):
    results = []
    for number, plan in enumerate(PLANS):
        for launcher in ("torchrun", "kubernetes", "ray", "slurm", "openmpi"):
            folder = tmp_path / f"{launcher}-{number}"
            files = export(plan, launcher, {"script": "train.py"})
            write(files, folder)
            words, _, places = started(launcher, files)
            own = words[words.index("train.py") + 1 :]
            own = [str(folder / Path(word).name) if word.endswith((".toml", ".json")) else word for word in own]
            results.append((plan, folder, [(host, device, own) for host, device in places]))
    hold(results)


@pytest.mark.scheduler("slurm")
def test_ranks_under_slurm_make_the_planned_groups(loopback_slurm, tmp_path):
    def submit(folder):
        accepted = loopback_slurm.run("sbatch", "--test-only", "job.sbatch", cwd=folder)
        assert accepted.returncode == 0, accepted.stderr
        return loopback_slurm.submit(folder, "job.sbatch")

    hold([launched(plan, "slurm", tmp_path / f"job-{number}", submit) for number, plan in enumerate(PLANS)])


@pytest.mark.scheduler("openmpi")
def test_ranks_under_open_mpi_make_the_planned_groups(loopback_mpi, tmp_path):
    def run(folder):
        ran = loopback_mpi.run(folder / "run.sh", cwd=folder)
        return ran.returncode, ran.stdout + ran.stderr

    hold([launched(plan, "openmpi", tmp_path / f"job-{number}", run) for number, plan in enumerate(PLANS)])


def launched(plan, launcher, folder, run):
    """The plan, its folder, and host, device and words of each rank that was started."""
    keys = {"mem": "100M", "cpus_per_task": 1, "gpu_bind": "none", "time": 5} if launcher == "slurm" else {}
    write(export(plan, launcher, {"command": f"{sys.executable} record.py", **keys}), folder)
    (folder / "record.py").write_text(RECORD)
    status, printed = run(folder)
    assert status == 0, printed
    lines = sorted(json.loads(line.partition("launched ")[2]) for line in printed.splitlines() if "launched " in line)
    assert [rank for rank, *_ in lines] == list(range(8))
    return plan, folder, [tuple(rest) for _, *rest in lines]
