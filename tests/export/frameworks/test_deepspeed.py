"""DeepSpeed's files: the ranks that it will assign are the plan's, by its rules and by its own launcher where installed."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import load_cluster
from meshwright.errors import ExportError
from meshwright.export.frameworks.deepspeed import assigned_places
from meshwright.export.frameworks.fronts import FRONTS
from meshwright.export.options import ExportOptions
from meshwright.jobs.job import Job
from meshwright.jobs.zoo.catalogue import zoo_graph
from meshwright.plans import Layout, OpSplits, legality, op_split_plan, place, uniform_splits
from meshwright.plans.compression import Quantise, Sign
from meshwright.plans.document import PlacementPlan

from ...draws import draws
from .over_ssh import launched

FRONT = FRONTS["deepspeed"]
PACKAGE = importlib.util.find_spec("deepspeed")
SHOW = '[ "$MESHWRIGHT_HOST" = "$ON_HOST" ] && printf "%s\\0" "$@"'
EXAMPLE = Layout(tp=2, pp=2, dp=2, micro_batch=3, global_batch=24, zero=1, overlap_dp=True)


def plan_of(hosts, devices, layout=None, coordinates=None):
    """Ranks on hosts and devices in this order, by default a layout of nothing but replicas."""
    layout = Layout(dp=len(hosts), micro_batch=1, global_batch=len(hosts)) if layout is None else layout
    order = range(len(hosts)) if coordinates is None else coordinates
    ranks = [
        {"rank": r, "host": host, "local_rank": local, "device": local, "coordinates": layout.coordinates(own).model_dump()}
        for r, (host, local, own) in enumerate(zip(hosts, devices, order, strict=True))
    ]
    partition = {"kind": "layout", "layout": layout.model_dump()}
    plan = PlacementPlan.model_validate({"schema_version": 1, "job": {"name": "gpt"}, "ranks": ranks, "partition": partition})
    legality.check(plan)
    return plan


RUNNING = plan_of(["gpu-07"] * 4 + ["gpu-03"] * 4, [0, 1, 2, 3, 4, 5, 6, 7], EXAMPLE)


def lines(text):
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_hostfile_and_config_of_the_running_example():
    files = FRONT.render(RUNNING, ExportOptions())
    # the devices of gpu-03 reach up to 7, so it has 8 slots at least; four of them are included
    assert lines(files["hostfile"]) == ["gpu-07 slots=4", "gpu-03 slots=8"]
    assert "--include=gpu-07:0,1,2,3@gpu-03:4,5,6,7" in files["launch.sh"]
    config = json.loads(files["ds_config.json"])
    # 24 samples = 3 of a micro-batch x 4 micro-batches x 2 replicas
    assert {key: value for key, value in config.items() if key != "_not_guaranteed"} == {
        "train_batch_size": 24,
        "train_micro_batch_size_per_gpu": 3,
        "gradient_accumulation_steps": 4,
        "zero_optimization": {"stage": 1, "overlap_comm": True},
        "bf16": {"enabled": True},
        "data_types": {"grad_accum_dtype": "fp32"},
    }
    assert "# - Groups:" in files["hostfile"][:400]
    assert "# - Groups:" in files["launch.sh"][:400]
    assert config["_not_guaranteed"][0].startswith("Groups:")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"zero": 2}, {"bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}),
        ({"zero": 2, "fp32_gradients": False}, {"bf16": {"enabled": True}}),
        ({"zero": 2, "precision": "fp16"}, {"fp16": {"enabled": True}, "data_types": {"grad_accum_dtype": "fp32"}}),
        ({"zero": 2, "precision": "fp32"}, {}),
        # without ZeRO DeepSpeed refuses sums in another precision than that of the weights
        ({"precision": "fp16"}, {"fp16": {"enabled": True}}),
        ({}, {"bf16": {"enabled": True}}),
    ],
)
def test_precisions_are_those_of_the_layout(keys, message):
    layout = Layout(dp=2, micro_batch=1, global_batch=2, **keys)
    config = json.loads(FRONT.render(plan_of(["a", "a"], [0, 1], layout), ExportOptions())["ds_config.json"])
    assert {key: config[key] for key in ("bf16", "fp16", "data_types") if key in config} == message


@pytest.mark.parametrize(
    ("zero", "code", "message"),
    [
        (0, None, {"zero_optimization": {"stage": 0}}),
        (
            0,
            Sign(),
            {
                "zero_optimization": {"stage": 0},
                "optimizer": {
                    "type": "OneBitAdam",
                    "params": {"lr": 1e-4, "freeze_step": 1000, "cuda_aware": False, "comm_backend_name": "nccl"},
                },
            },
        ),
        (3, Quantise(bits=4), {"zero_optimization": {"stage": 3, "overlap_comm": False, "zero_quantized_gradients": True}}),
        (
            3,
            Quantise(bits=8, what="parameters"),
            {"zero_optimization": {"stage": 3, "overlap_comm": False, "zero_quantized_weights": True}},
        ),
    ],
)
def test_codes_are_those_of_an_optimizer_of_one_bit_or_of_zero_3(zero, code, message):
    layout = Layout(dp=2, micro_batch=1, global_batch=2, zero=zero)
    plan = plan_of(["a", "a"], [0, 1], layout).model_copy(update={"compression": code})
    config = json.loads(FRONT.render(plan, ExportOptions())["ds_config.json"])
    assert {key: config[key] for key in ("optimizer", "zero_optimization") if key in config} == message
    assert len(config["_not_guaranteed"]) == 7 + (code is not None)
    assert config["train_batch_size"] == 2


def test_an_offloaded_optimizer_is_told_to_zero():
    plan = plan_of(["a", "a"], [0, 1], Layout(dp=2, micro_batch=1, global_batch=2, zero=2, offload="optimizer"))
    config = json.loads(FRONT.render(plan, ExportOptions())["ds_config.json"])
    assert config["zero_optimization"]["offload_optimizer"] == {"device": "cpu", "pin_memory": True}
    whole = plan_of(["a", "a"], [0, 1], Layout(dp=2, micro_batch=1, global_batch=2, offload="optimizer"))
    with pytest.raises(ExportError, match=r"offload: DeepSpeed offloads what ZeRO shards"):
        FRONT.render(whole, ExportOptions())


def test_slots_state_the_hardware_of_a_known_cluster():
    cluster = load_cluster("preset:dgx-a100-8x8")
    graph = zoo_graph("resnet50")
    plan = op_split_plan(Job(graph, 1), cluster, uniform_splits(graph, 4), place(cluster, [9, 10, 0, 1]))
    files = FRONT.render(plan, ExportOptions())
    assert lines(files["hostfile"]) == [f"{plan.host_order[0]} slots=8", f"{plan.host_order[1]} slots=8"]
    config = json.loads(files["ds_config.json"])
    assert config["train_batch_size"] == graph.samples_per_step == 4 * config["train_micro_batch_size_per_gpu"]
    assert type(config["train_micro_batch_size_per_gpu"]) is int
    assert config["gradient_accumulation_steps"] == 1


@given(
    dp=st.integers(1, 5), micro=st.integers(1, 4), accumulation=st.integers(1, 5), pp=st.integers(1, 2), zero=st.integers(0, 3)
)
def test_batch_sizes_agree(dp, micro, accumulation, pp, zero):
    layout = Layout(pp=pp, dp=dp, micro_batch=micro, global_batch=micro * dp * accumulation, zero=zero if pp == 1 else zero % 2)
    plan = plan_of(["a"] * layout.world, range(layout.world), layout)
    config = json.loads(FRONT.render(plan, ExportOptions())["ds_config.json"])
    parts = config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"], dp
    assert config["train_batch_size"] == np.prod(parts) == layout.global_batch
    overlap = {"overlap_comm": layout.overlap_dp} if layout.zero else {}
    assert config["zero_optimization"] == {"stage": layout.zero, **overlap}


def test_devices_are_assigned_by_sorting_and_by_the_rank_modulo_the_processes_of_the_host():
    assert assigned_places({"b": [3, 1], "a": [2, 0]}) == [("b", 1), ("b", 3), ("a", 0), ("a", 2)]
    # ranks 2..4 of three processes: local ranks 2, 0, 1
    assert assigned_places({"b": [0, 1], "a": [4, 5, 6]}) == [("b", 0), ("b", 1), ("a", 6), ("a", 4), ("a", 5)]


def test_ranks_that_deepspeed_would_start_elsewhere_are_refused():
    with pytest.raises(ExportError, match=r"rank 1: DeepSpeed numbers ranks host by host .* start this one on b \(got 'a'\)"):
        FRONT.render(plan_of(["b", "a", "b", "a"], [0, 0, 1, 1]), ExportOptions())
    with pytest.raises(ExportError, match=r"rank 0: DeepSpeed sorts the devices .* would get device 1 \(got 3\)"):
        FRONT.render(plan_of(["b", "b", "a", "a"], [3, 1, 0, 1]), ExportOptions())
    with pytest.raises(ExportError, match=r"rank 2: .*would get device 2 \(got 0\)"):
        FRONT.render(plan_of(["b", "b", "a", "a", "a"], [0, 1, 0, 1, 2]), ExportOptions())
    FRONT.render(plan_of(["b", "b", "a", "a", "a"], [0, 1, 2, 0, 1]), ExportOptions())
    with pytest.raises(ExportError, match=r"rank 1: DeepSpeed's topology .* its place would be pp=0 dp=0 cp=0 ep=0 tp=1"):
        FRONT.render(plan_of(["a"] * 8, range(8), EXAMPLE, [0, 4, 1, 5, 2, 6, 3, 7]), ExportOptions())


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"schedule": "gpipe"}, r"partition.layout.schedule: DeepSpeed's pipeline runs 1f1b \(got 'gpipe'\)"),
        ({"zero": 2}, r"partition.layout.zero: DeepSpeed's pipeline goes with ZeRO stage 1 at most \(got 2\)"),
    ],
)
def test_layouts_that_deepspeed_does_not_have_are_refused(changed, message):
    with pytest.raises(ExportError, match=message):
        FRONT.render(plan_of(["a"] * 8, range(8), EXAMPLE.model_copy(update=changed)), ExportOptions())
    FRONT.render(plan_of(["a"] * 4, range(4), EXAMPLE.model_copy(update={"pp": 1, **changed})), ExportOptions())  # no pipeline


def test_a_schedule_that_it_lacks_is_told_before_ranks_in_another_order():
    eager = EXAMPLE.model_copy(update={"schedule": "eager-1f1b", "overlap_pp": True})
    with pytest.raises(
        ExportError, match=r"partition.layout.schedule: .* runs 1f1b; schedule=1f1b with overlap_pp=false is the nearest"
    ):
        FRONT.render(plan_of(["a"] * 8, range(8), eager, [0, 4, 1, 5, 2, 6, 3, 7]), ExportOptions())


def test_more_hosts_than_one_argument_holds_are_refused():
    hosts = [f"host-{number:055d}" for number in range(1_600)]  # 62 bytes each, and an @ between
    with pytest.raises(ExportError, match="ranks: 1600 hosts are too many for one --include"):
        FRONT.render(plan_of(hosts, [0] * 1_600), ExportOptions())


def test_plans_without_batch_sizes_are_refused(make_plan):
    with pytest.raises(ExportError, match="partition: has neither a layout nor op splits"):
        FRONT.render(make_plan(["a", "b"]), ExportOptions())
    cluster = load_cluster("preset:dgx-a100-8x8")
    graph = zoo_graph("resnet18")
    splits = np.full(graph.num_ops, 4)
    splits[3] = 2
    with pytest.raises(ExportError, match=r"partition.splits.3: DeepSpeed splits every op equally, here 4 ways \(got 2\)"):
        FRONT.render(op_split_plan(Job(graph, 1), cluster, OpSplits(splits), place(cluster, [0, 1, 2, 3])), ExportOptions())
    with pytest.raises(ExportError, match=rf"samples_per_step: is no multiple of 7 ranks \(got {graph.samples_per_step}\)"):
        FRONT.render(op_split_plan(Job(graph, 1), cluster, uniform_splits(graph, 7), place(cluster, range(7))), ExportOptions())
    plan = op_split_plan(Job(graph, 1), cluster, uniform_splits(graph, 2), place(cluster, range(2)))
    with pytest.raises(ExportError, match=r"job.graph: does not say how many samples"):
        FRONT.render(plan.model_copy(update={"job": plan.job.model_copy(update={"graph": None})}), ExportOptions())


def test_the_launcher_starts_deepspeed_on_every_host(tmp_path):
    started = launched(FRONT, "deepspeed", SHOW, RUNNING, tmp_path, script="train.py --data 'two words'", master_port=1234)
    out = tmp_path / "out"
    for host, node in (("gpu-07", 0), ("gpu-03", 1)):
        assert started[host] == [
            f"--hostfile={out}/hostfile",
            f"--node_rank={node}",
            "--include=gpu-07:0,1,2,3@gpu-03:4,5,6,7",
            "--no_ssh",
            "--master_addr=gpu-07",
            "--master_port=1234",
            *("train.py", "--data", "two words", "--deepspeed_config", f"{out}/ds_config.json"),
        ]


@pytest.fixture(scope="module")
def package() -> str:
    if PACKAGE is None or not PACKAGE.submodule_search_locations:
        pytest.skip("deepspeed is not installed (pip install --no-deps deepspeed)")
    return PACKAGE.submodule_search_locations[0]


def launched_by_deepspeed(package, plan, folder, **options):
    """Rank, host and device of each process that DeepSpeed's launcher starts, and the commands."""
    result, commands = {}, []
    for host, words in launched(FRONT, "deepspeed", SHOW, plan, folder, **options).items():
        ran = subprocess.run(
            [sys.executable, Path(__file__).with_name("deepspeed_launch.py"), package],
            input=json.dumps(words),
            env={**os.environ, "MESHWRIGHT_HOST": host, "CUDA_VISIBLE_DEVICES": "7"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.returncode == 0, ran.stderr
        for row in map(json.loads, ran.stdout.splitlines()):
            rank, local, world, visible, master, port, said, command = row
            assert (int(world), master, port, said) == (plan.num_ranks, plan.host_order[0], "29500", host)
            assert int(rank) not in result
            result[int(rank)] = (host, int(visible.split(",")[int(local)]))
            commands.append(command)
    return result, commands


@pytest.mark.scheduler("deepspeed")
@pytest.mark.parametrize(
    ("hosts", "devices"),
    [
        (["gpu-07"] * 4 + ["gpu-03"] * 4, [0, 1, 2, 3, 4, 5, 6, 7]),
        (["b", "b", "a", "a", "a"], [0, 1, 2, 0, 1]),
        (["n10", "n2", "n1"], [3, 0, 5]),
        (["only"] * 3, [1, 4, 6]),
    ],
)
def test_deepspeeds_own_launcher_assigns_the_planned_ranks(package, tmp_path, hosts, devices):
    plan = plan_of(hosts, devices)
    result, commands = launched_by_deepspeed(package, plan, tmp_path)
    assert result == {rank: (host, device) for rank, (host, device) in enumerate(zip(hosts, devices, strict=True))}
    for command in commands:
        assert command[1:3] == ["-u", "train.py"]
        assert command[-2:] == ["--deepspeed_config", f"{tmp_path}/out/ds_config.json"]


@pytest.mark.scheduler("deepspeed")
def test_deepspeeds_own_launcher_runs_a_command_as_it_is(package, tmp_path):
    _, commands = launched_by_deepspeed(package, plan_of(["a", "b"], [0, 0]), tmp_path, command="run -x 'two words'")
    assert commands == [["run", "-x", "two words"]] * 2
    (tmp_path / "again").mkdir()
    _, commands = launched_by_deepspeed(package, plan_of(["a", "b"], [0, 0]), tmp_path / "again", probe=True)
    assert commands[0][:3] == ["python", "-u", "-c"]


@pytest.mark.scheduler("deepspeed")
@draws(7)
@given(data=st.data(), counts=st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_our_rules_are_those_of_deepspeeds_launcher(package, tmp_path_factory, data, counts):
    hosts = {f"h{n}": data.draw(st.permutations(range(8)))[:count] for n, count in enumerate(counts)}
    names = data.draw(st.permutations(list(hosts)))
    hosts = {name: hosts[name] for name in names}
    places = assigned_places(hosts)
    plan = plan_of([host for host, _ in places], [device for _, device in places])
    result, _ = launched_by_deepspeed(package, plan, tmp_path_factory.mktemp("job"))
    assert [result[rank] for rank in range(len(places))] == places
