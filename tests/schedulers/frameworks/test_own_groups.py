"""Thirty plans of four frameworks on launchers: the framework's own code makes the plan's groups of what each rank was given."""

import importlib.util
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.export import export, read_places, verify, write
from meshwright.export.probe import AXES
from meshwright.plans import Layout
from meshwright.plans.document import PlacementPlan

from ...export.frameworks.test_on_launchers import started
from ...export.grids import plan_of
from ...export.launchers.test_torchrun import launch_here
from ..processes import why_absent
from .own_groups import MEGATRON_LM

OWN = Path(__file__).with_name("own_groups.py")
RECORD = """
import json, os, sys
e = os.environ
device = e["CUDA_VISIBLE_DEVICES"].split(",")[int(e["LOCAL_RANK"])]
host = e.get("ON_HOST") or e.get("SLURMD_NODENAME") or os.uname().nodename
os.write(1, ("launched " + json.dumps([int(e["RANK"]), host, int(device), sys.argv[1:]]) + chr(10)).encode())
"""
GPUS = {"gpu-03": 4, "gpu-07": 4}
BATCH = {"micro_batch": 1, "global_batch": 8}
ASKED = {"mem": "100M", "cpus_per_task": 1, "gpu_bind": "none", "time": 5, "partition": "debug", "requeue": False, "env": "A=1"}
ASKED = {"slurm": {**ASKED, "account": "a", "qos": "high", "output": "slurm-%j.out", "srun": "--mpi=none --comment='a b'"}}
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
    """By name: each layout with ranks in its own order and another one, any where the framework numbers ranks itself."""
    rng = random.Random(1)
    for framework, all_degrees in DEGREES.items():
        for degrees in all_degrees:
            orders = {"own": None, "mixed": rng.sample(range(8), 8)}
            orders["turned"] = rng.sample(range(4, 8), 4) + rng.sample(range(4), 4)
            cuts = {"sequence_parallel": "tp" in degrees and framework != "deepspeed"}
            for name in {"deepspeed": ["own"], "fsdp2": ["own", "turned"]}.get(framework, ["own", "mixed"]):
                layout, order, moved = Layout(**BATCH, **MORE[framework], **cuts, **degrees), orders[name], {}
                if (framework, layout.pp, name) == ("megatron", 2, "mixed"):  # as --use-tp-pp-dp-mapping numbers them
                    order, moved = None, {f"rank{r}": layout.coordinates(r ^ 6).model_dump() for r in range(2, 6)}
                plan = plan_of(layout, order, **moved)
                text = plan.model_copy(update={"framework": framework}).model_dump_json(exclude_none=True)
                text = text.replace("gpu-09", "gpu-07").replace("gpu-08", "gpu-03")
                yield f"{framework} {' '.join(f'{axis}{degree}' for axis, degree in degrees.items())} {name}", text


PLANS = {name: PlacementPlan.model_validate_json(text) for name, text in plans()}
FEW = ("megatron tp2 pp2 dp2 mixed", "megatron tp2 dp4 ep2 own", "torchtitan tp2 dp4 mixed", "torchtitan tp2 pp2 dp2 own")
FEW = PLANS if os.environ.get("MESHWRIGHT_ALL_PLANS") else (*FEW, "deepspeed tp2 pp2 dp2 own", "fsdp2 dp8 shard_group4 turned")
"""For the launchers that take seconds a plan; all plans where ``MESHWRIGHT_ALL_PLANS`` is set."""


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


NEEDS = {"megatron": {"megatron-lm", "parsers"}, "torchtitan": {"torchtitan"}, "deepspeed": {"deepspeed", "parsers"}}


@pytest.fixture(scope="module")
def own():
    """The process in which the frameworks make groups: one for all launchers, as it imports them all."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen([sys.executable, OWN], cwd=OWN.parent, **pipes) as running:
        yield running
        running.stdin.close()
        assert running.wait(60) == 0


def hold(own, launched):
    """Launched: of each plan its launcher and folder, and of each rank host, device and words. Absent frameworks are skipped."""
    modules = {"torchtitan": "torchtitan", "deepspeed": "deepspeed", "parsers": "hjson"}
    missing = {name for name, module in modules.items() if importlib.util.find_spec(module) is None}
    missing |= set() if Path(MEGATRON_LM, "megatron/training").is_dir() else {"megatron-lm"}
    for plan, launcher, folder, ranks in (one for one in launched if not missing & NEEDS.get(one[0].framework, set())):
        request = {
            **{"framework": plan.framework, "world": 8, "folder": str(folder), "words": [words for _, _, words in ranks]},
            **{"degrees": {axis: getattr(plan.layout(), axis) for axis in AXES}, "zero": plan.layout().zero},
        }
        own.stdin.write(json.dumps(request) + "\n")
        result = json.loads(next((line for line in own.stdout if line.startswith("made ")), "").removeprefix("made "))
        places, groups, printed = [(host, device) for host, device, _ in ranks], wanted(plan), []
        for rank, (place, made) in enumerate(zip(places, result, strict=True)):
            for axis, members in made.items():
                assert {places[other] for other in members} == groups[place][axis], (plan.framework, plan.layout(), place, axis)
            own_words = "".join(f" {axis}={members.index(rank)}" for axis, members in made.items())
            printed.append(f"meshwright-rank[rank={rank} world=8 host={place[0]} visible={place[1]}{own_words}]")
        verified = verify(plan, launcher, read_places("\n".join(printed)))
        assert verified.agrees, verified.first
        assert "coordinates" in verified.compared
    if missing:
        pytest.skip(f"groups not compared; {'; '.join(f'{name}: {why_absent(name)}' for name in sorted(missing))}")


@pytest.mark.scheduler("frameworks")
def test_the_words_of_every_launcher_make_the_planned_groups(own, tmp_path):
    assert len(PLANS) >= 30
    results, is_mapped = [], False
    for number, plan in enumerate(PLANS.values()):
        for launcher in ("torchrun", "kubernetes", "ray", "slurm", "openmpi"):
            folder = tmp_path / f"{launcher}-{number}"
            files = export(plan, launcher, {"script": "train.py"})
            write(files, folder)
            words, _, places = started(launcher, files)
            words = words[words.index("train.py") + 1 :]
            words = [str(folder / Path(word).name) if word.endswith((".toml", ".json")) else word for word in words]
            is_mapped |= "--use-tp-pp-dp-mapping" in words
            results.append((plan, launcher, folder, [(host, device, words) for host, device in places]))
    assert is_mapped
    hold(own, results)


def launched(launcher, running, plan, folder):
    """The status of a launched job and what it printed."""
    if launcher == "torchrun":
        ran = launch_here(plan, RECORD, folder)
        return ran.returncode, ran.stdout + ran.stderr
    folder.with_suffix(".py").write_text(RECORD)
    write(export(plan, launcher, {"command": f"{sys.executable} {folder}.py", **ASKED.get(launcher, {})}), folder)
    if launcher == "slurm":
        accepted = running.run("sbatch", "--test-only", "job.sbatch", cwd=folder)
        assert accepted.returncode == 0, accepted.stderr
        return running.submit(folder, "job.sbatch")
    ran = running.run(folder / "driver.py") if launcher == "ray" else running.run(folder / "run.sh", cwd=folder)
    return ran.returncode, ran.stdout + ran.stderr


LAUNCHERS = {
    **{"slurm": ("loopback_slurm", PLANS, {}), "openmpi": ("loopback_mpi", PLANS, {}), "ray": ("loopback_ray", FEW, {})},
    "torchrun": ("tmp_path", FEW, {"gpu-07": "localhost", "gpu-03": "127.0.0.1"}),  # agents look the first host up
}


@pytest.mark.parametrize("launcher", [pytest.param(name, marks=pytest.mark.scheduler(name)) for name in LAUNCHERS])
def test_launched_ranks_make_the_planned_groups(launcher, own, request, tmp_path):
    fixture, plans, names = LAUNCHERS[launcher]
    results = []
    for number, plan in enumerate(plans):
        folder, text = tmp_path / f"job-{number}", PLANS[plan].model_dump_json(exclude_none=True)
        for host, other in names.items():
            text = text.replace(host, other)
        plan = PlacementPlan.model_validate_json(text)
        status, printed = launched(launcher, request.getfixturevalue(fixture), plan, folder)
        assert status == 0, printed
        lines = sorted(json.loads(line.partition("launched ")[2]) for line in printed.splitlines() if "launched " in line)
        assert [rank for rank, *_ in lines] == list(range(8))
        results.append((plan, launcher, folder, [tuple(rest) for _, *rest in lines]))
    hold(own, results)
