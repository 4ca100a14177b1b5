"""Laws of plans that were made for a framework: no launcher starts them without its arguments, or with ranks in another order."""

import ast
import re
import shlex
import subprocess

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import ExportError, MeshwrightError
from meshwright.export import ExportOptions, export, verify
from meshwright.export.frameworks.fronts import FRONTS
from meshwright.export.probe import Place
from meshwright.export.training import LAUNCHERS
from meshwright.plans import Layout, PlacementPlan
from meshwright.plans.compression import parse_compression
from meshwright.plans.frameworks.megatron_groups import DEFAULT_ORDER, MAPPED_ORDER, rank_coordinates
from meshwright.plans.frameworks.table import FRAMEWORKS

from ...schedulers.processes import require
from ..grids import plan_of

BATCH = {"micro_batch": 1, "global_batch": 8}
LAYOUTS = {
    "megatron": [{"tp": 2, "pp": 2, "dp": 2}, {"tp": 2, "cp": 2, "dp": 2, "zero": 1}, {"dp": 8, "ep": 2}, {"pp": 4, "dp": 2}],
    "torchtitan": [{"tp": 2, "sequence_parallel": True, "dp": 4, "zero": 3}, {"cp": 2, "pp": 2, "dp": 2, "zero": 2}],
    "deepspeed": [{"dp": 8, "zero": 3}, {"tp": 2, "dp": 4, "zero": 1}],
    "fsdp2": [{"dp": 8, "zero": 3, "framework": "fsdp2"}],
}
HOSTS = {f"gpu-{number:02d}" for number in range(10)}
VARIABLE = "CUDA_DEVICE_MAX_CONNECTIONS"
PAIRS = [(framework, launcher) for framework in FRAMEWORKS for launcher in LAUNCHERS]


def started(launcher, files):
    """The words of a rank, the variable's value among them, and host and device of each rank, read back from the files."""
    if launcher == "kubernetes":
        jobs = yaml.safe_load(files["jobset.yaml"])["spec"]["replicatedJobs"]
        pods = [job["template"]["spec"]["template"]["spec"] for job in jobs]
        (container,) = pods[0]["containers"]
        variables = {one["name"]: one.get("value") for one in container["env"]}
        hosts = [(HOSTS & set(re.findall(r"gpu-\d+", str(pod["affinity"])))).pop() for pod in pods]
        listed = [one for pod in pods for one in pod["containers"][0]["env"] if one["name"] == "CUDA_VISIBLE_DEVICES"]
        devices = [one["value"].split(",") for one in listed]
        return container["command"], variables.get(VARIABLE), pairs(hosts, devices)
    if launcher == "ray":
        tree = ast.parse(files["driver.py"])
        figures = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign)}
        words = ["/" + elt.args[1].value if isinstance(elt, ast.Call) else elt.value for elt in figures["COMMAND"].elts]
        ranks = [(host, device) for host, device, _ in ast.literal_eval(figures["RANKS"])]
        return words, dict(word.split("=", 1) for word in words if word.startswith(VARIABLE)).get(VARIABLE), ranks
    if launcher == "torchrun":
        rows = [line.split("\t", 1) for line in files["commands.txt"].splitlines() if not line.startswith("#")]
        results = [shlex.split(command) for _, command in rows]
        values = [dict(word.split("=", 1) for word in words[1:9] if "=" in word) for words in results]
        devices = [one["CUDA_VISIBLE_DEVICES"].split(",") for one in values]
        return results[0], values[0].get(VARIABLE), pairs([host for host, _ in rows], devices)
    script = files["job.sbatch" if launcher == "slurm" else "run.sh"]
    task = shlex.split(script[script.rindex("bash -c ") :])[2]
    runs = [line.split() for line in task.partition("END_OF_MAP\n")[2].partition("\nEND_OF_MAP")[0].splitlines()]
    value = re.search(rf"{VARIABLE}=(\S+)", task)
    words = shlex.split(task[task.rindex("\nexec ") :])
    return words, value and value[1], pairs([host for _, host, _ in runs], [devices.split(",") for _, _, devices in runs])


def pairs(hosts, devices):
    return [(host, int(device)) for host, of_host in zip(hosts, devices, strict=True) for device in of_host]


def own_places(framework, layout, words):
    """Coordinates of each of the framework's own ranks."""
    if framework == "megatron":
        degrees = {
            axis: int(words[words.index(f"--{name}-parallel-size") + 1])
            for axis, name in (("tp", "tensor-model"), ("pp", "pipeline-model"), ("cp", "context"), ("ep", "expert-model"))
        }
        assert degrees == {axis: getattr(layout, axis) for axis in degrees}
        return rank_coordinates(layout, MAPPED_ORDER if "--use-tp-pp-dp-mapping" in words else DEFAULT_ORDER).tolist()
    return rank_coordinates(layout, DEFAULT_ORDER).tolist()


@pytest.mark.parametrize(("framework", "launcher"), PAIRS)
@settings(max_examples=6)
@given(data=st.data())
def test_a_plan_made_for_a_framework_leaves_with_its_arguments_and_its_groups(framework, launcher, data):
    layout = Layout(**data.draw(st.sampled_from(LAYOUTS[framework])), **BATCH)
    has_own_order = framework in ("megatron", "torchtitan")  # the others take the plan's
    plan = plan_of(layout, data.draw(st.none() | st.permutations(range(8))) if has_own_order else None)
    needs = FRONTS[framework].part(plan, ExportOptions())
    program = data.draw(st.sampled_from([{"script": "pretrain.py --lr 1"}, {"command": "python -m pretrain --lr 1"}]))
    files = export(plan.model_copy(update={"framework": framework}), launcher, program)
    words, value, places = started(launcher, files)
    at = len(words) - len(needs.arguments)
    assert words[at - 2 : at] == ["--lr", "1"]
    for word, expected in zip(words[at:], needs.arguments, strict=True):
        assert word == expected or word.endswith(f"/{expected}")
    assert value == ("1" if framework == "megatron" and layout.tp * layout.cp > 1 else None)
    assert needs.files.keys() <= files.keys()
    coordinates = {(rank.host, rank.local_rank): rank.coordinates for rank in plan.ranks}
    results = [[getattr(coordinates[place], axis) for axis in ("pp", "dp", "cp", "ep", "tp")] for place in places]
    assert results == own_places(framework, layout, words)


@pytest.mark.parametrize("framework", ["megatron", "torchtitan"])
def test_a_launched_job_is_held_against_the_ranks_of_the_framework(framework):
    layout = Layout(**LAYOUTS[framework][0], **BATCH)
    plan = plan_of(layout, [7, 6, 5, 4, 3, 2, 1, 0]).model_copy(update={"framework": framework})
    _, _, places = started("slurm", export(plan, "slurm"))
    lines = [Place(rank, host, 8, device) for rank, (host, device) in enumerate(places)]
    assert verify(plan, "slurm", lines).agrees
    assert not verify(plan.model_copy(update={"framework": None}), "slurm", lines).agrees


@pytest.mark.parametrize(
    ("framework", "changed", "problem"),
    [
        ("megatron", {"zero": 2}, "distributed optimizer is ZeRO stage 1"),
        ("torchtitan", {"zero": 1}, "torchtitan shards by FSDP2"),
        ("deepspeed", {"zero": 1, "shard_group": 2}, "shards over all replicas"),
        ("fsdp2", {"zero": 1}, "fully_shard is ZeRO stage 3"),
    ],
)
def test_a_pair_that_cannot_honour_the_plan_is_refused_with_the_reason(framework, changed, problem):
    plan = plan_of(Layout(dp=8, **BATCH, **changed)).model_copy(update={"framework": framework})
    for launcher in LAUNCHERS:
        with pytest.raises(ExportError, match=problem):
            export(plan, launcher)


@pytest.mark.scheduler("shellcheck")
def test_shellcheck_is_silent_about_every_script(layout_example, plan_for, tmp_path):
    require("shellcheck", "shellcheck")
    plans = {name: plan_of(Layout(**layouts[0], **BATCH)) for name, layouts in LAYOUTS.items()}
    request = [(layout_example, "kubernetes", {"kubernetes": "kueue"}), (layout_example, "slurm", {"sharing": "devices"})]
    request += [(layout_example, "slurm", {"container": "a#b", "mounts": "/a:/b"})]
    for more in ({}, {"probe": True}, {"command": "a 'b c'", "env": "A='b c'"}):
        request += [(plan_for(target), target, more) for target in ("megatron", "torchtitan", "deepspeed", "openmpi")]
        for launcher in ("torchrun", "slurm", "openmpi"):  # Ray's driver and a plain JobSet have no script
            request += [(plan, launcher, more, name) for framework, plan in plans.items() for name in (framework, None)]
    for number, one in enumerate(request):
        texts = [str(text) for text in export(*one).values()]
        scripts = [text for text in texts if text.startswith("#!/bin/bash")]
        inside = re.findall(r"- sh\n +- -c\n +- (.+)", "".join(texts))  # Kubernetes writes "$$" for "$"
        assert (len(scripts), len(inside)) == (1, int("kubernetes" in one))
        for kind, script in enumerate(scripts + ["#!/bin/sh\n" + line.replace("$$", "$") for line in inside]):
            (tmp_path / f"{number}-{kind}").write_text(script)
    ran = subprocess.run(["shellcheck", *tmp_path.iterdir()], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "")


def test_a_framework_that_sums_gradients_as_they_are_carries_no_code():
    code = parse_compression("kind=low-rank,rank=4")[0]
    plan = plan_of(Layout(dp=8, **BATCH)).model_copy(update={"framework": "megatron", "compression": code})
    with pytest.raises(ExportError, match="megatron sends gradients as they are"):
        export(plan, "slurm")


def test_the_framework_of_a_plan_is_saved_and_absent_from_others(tmp_path):
    plan = plan_of(Layout(dp=8, **BATCH))
    assert "framework" not in plan.model_dump(exclude_none=True)
    plan.model_copy(update={"framework": "megatron"}).save(tmp_path / "plan.json")
    assert PlacementPlan.model_validate_json((tmp_path / "plan.json").read_text()).framework == "megatron"


@pytest.mark.parametrize(("framework", "launcher"), PAIRS)
def test_a_framework_that_is_asked_for_is_as_if_the_plan_were_made_for_it(framework, launcher):
    plan = plan_of(Layout(**LAYOUTS[framework][0], **BATCH))
    request = export(plan, launcher, framework=framework)
    assert request == export(plan.model_copy(update={"framework": framework}), launcher) != export(plan, launcher)
    assert export(plan, launcher, framework="none") == export(plan, launcher)


@pytest.mark.parametrize(
    ("target", "framework", "problem"),
    [
        ("slurm", "none", "the plan was searched for megatron, without whose arguments its ranks would not run it"),
        ("slurm", "megatron-lm", "did you mean 'megatron'"),
        ("slurm", "nemo", "valid: deepspeed, fsdp2, megatron, none, torchtitan"),
        ("slurm", "fsdp2", "fully_shard cuts by data alone"),
        ("deepspeed", "megatron", "the format deepspeed is DeepSpeed over ssh; a framework is started by torchrun, slurm"),
        ("chakra", "torchtitan", "the format chakra starts no ranks; a framework is started by torchrun, slurm"),
    ],
)
def test_a_framework_that_a_format_or_a_plan_cannot_have_is_refused(target, framework, problem):
    plan = plan_of(Layout(tp=2, dp=4, **BATCH)).model_copy(update={"framework": "megatron"})
    with pytest.raises(MeshwrightError, match=problem):
        export(plan, target, framework=framework)
    with pytest.raises(MeshwrightError, match=problem):
        verify(plan, target, [], framework)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_plan_without_a_layout_is_told_what_makes_one(running_example, framework):
    with pytest.raises(ExportError, match=r"`meshwright plan --search --for|so its batch sizes are unknown"):
        export(running_example, "slurm", framework=framework)
