"""mesh.py: the planned grid and split points, up to four processes that build the mesh and run the pipeline.

The launch itself is `test_torchrun`'s; here its two agents run on this machine with gloo in place of GPUs.
"""

import itertools
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import load_cluster
from meshwright.costs.process_groups.rank_groups import stage_groups
from meshwright.export import export
from meshwright.jobs.graph import JobGraph
from meshwright.jobs.job import Job
from meshwright.plans import Layout, PlacementPlan, layout_plan, place

from ..launchers.test_torchrun import launch_here

AXES = ("pp", "dp", "cp", "ep", "tp")

PROGRAM = """
import os
import torch
import torch.distributed as dist
from torch.distributed.pipelining import ScheduleGPipe, pipeline
import mesh

dist.init_process_group("gloo")
rank = dist.get_rank()
planned = mesh.device_mesh("cpu")
place = mesh.coordinates(rank)
assert list(planned.get_coordinate()) == [place[name] for name in mesh.DIM_NAMES]
sums = []
for name in mesh.DIM_NAMES:
    total = torch.tensor([10**rank])
    dist.all_reduce(total, group=planned.get_group(name))
    sums.append(total.item())


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(6, 8)
        self.layer0 = torch.nn.Linear(8, 8)
        self.layer1 = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 3)

    def forward(self, x):
        return self.head(torch.relu(self.layer1(torch.relu(self.layer0(self.embed(x))))))


torch.manual_seed(0)
model, x = Net(), torch.randn(4, 6)
with torch.no_grad():
    wanted = model(x)
pipe = pipeline(model, mb_args=(x[:2],), split_spec=mesh.split_points({"first layer": "layer1"}))
held = sorted({name.split(".")[0] for name, _ in pipe.get_stage_module(place["pp"]).named_parameters()})
stage = pipe.build_stage(place["pp"], torch.device("cpu"), group=planned.get_group("pp"))
with torch.no_grad():
    schedule = ScheduleGPipe(stage, n_microbatches=2)
    found = schedule.step(x) if place["pp"] == 0 else schedule.step()
same = "" if place["pp"] == 0 else torch.allclose(found, wanted)
os.write(1, f"{rank} {os.environ['ON_HOST']} {place['pp']}{place['dp']} {sums} {held} {same}{chr(10)}".encode())
dist.destroy_process_group()
"""

TWO_STAGES = (
    {"stage": 0, "ranks": [0, 1], "num_ops": 2, "ops": ["embed", "layer0"]},
    {"stage": 1, "ranks": [2, 3], "num_ops": 2, "ops": ["first layer", "head"]},
)


@pytest.fixture(scope="module")
def grid_plan(make_plan):
    """``grid_plan(places, stages, hosts)``: a rank, on a host of its own if none is named, for each (pp, dp, cp, ep, tp)."""

    def make(places, stages=(), hosts=None) -> PlacementPlan:
        hosts = hosts or ["localhost", "gpu-09", "gpu-03", "gpu-10", *(f"h{i}" for i in range(len(places)))]
        data = make_plan(hosts[: len(places)]).model_dump(mode="json", exclude_none=True)
        for rank, at in zip(data["ranks"], places, strict=True):
            rank["coordinates"] = dict(zip(AXES, at, strict=True))
        return PlacementPlan.model_validate(data | {"stages": list(stages)})

    return make


@pytest.mark.scheduler("torchrun")
def test_four_processes_build_the_planned_mesh_and_run_the_split_model(grid_plan, tmp_path):
    # Within stage 0 the replicas are swapped: rank 0 is the second one.
    places = [(0, 1, 0, 0, 0), (0, 0, 0, 0, 0), (1, 0, 0, 0, 0), (1, 1, 0, 0, 0)]
    plan = grid_plan(places, TWO_STAGES, ["localhost", "localhost", "gpu-03", "gpu-03"])
    ran = launch_here(plan, PROGRAM, tmp_path)
    assert ran.returncode == 0, ran.stderr
    # Each rank gives 10^rank. Pipelines are ranks 0, 3 and ranks 1, 2; replicas of a stage ranks 0, 1 and ranks 2, 3.
    front, back = "['embed', 'layer0']", "['head', 'layer1']"
    assert sorted(ran.stdout.splitlines()) == [
        f"0 localhost 01 [1001, 11, 1, 1] {front} ",
        f"1 localhost 00 [110, 11, 10, 10] {front} ",
        f"2 gpu-03 10 [110, 1100, 100, 100] {back} True",
        f"3 gpu-03 11 [1001, 1100, 1000, 1000] {back} True",
    ]


@given(st.data())
def test_the_grid_names_each_rank_at_its_own_place(grid_plan, data):
    sizes = data.draw(st.tuples(*[st.integers(1, 3)] * 4))
    places = data.draw(st.permutations(list(itertools.product(*map(range, sizes)))))
    mesh = _module(export(grid_plan([(pp, dp, cp, 0, tp) for pp, dp, cp, tp in places]), "torchrun")["mesh.py"])
    assert np.array(mesh.GRID).shape == sizes
    for rank, at in enumerate(places):
        assert np.array(mesh.GRID)[at] == rank
        assert tuple(mesh.coordinates(rank)[name] for name in mesh.DIM_NAMES) == at
    assert mesh.EXPERT_GRID is None


@pytest.mark.parametrize(
    "degrees", ["tp=2,dp=4,ep=2", "pp=2,dp=2,cp=2,ep=4,tp=2", "dp=6,ep=3", "dp=2,cp=2,ep=4", "tp=4,dp=4,ep=8,etp=2"]
)
def test_the_experts_groups_are_the_layouts(degrees):
    layout = Layout.parse(f"{degrees},micro_batch=1,global_batch=12")
    mesh = _module(export(_plan(layout), "torchrun")["mesh.py"])
    experts = np.array(mesh.EXPERT_GRID)
    groups = np.moveaxis(experts, 2, 3).reshape(-1, layout.ep)
    of_stages = [stage_groups(layout, "ep") + layout.first_rank(stage) for stage in range(layout.pp)]
    assert sorted(groups.tolist()) == np.concatenate(of_stages).tolist()


def test_split_points_are_the_first_ops_of_every_stage_but_the_first():
    # Eight ops of equal time in two stages, and in two stages of two chunks each.
    assert _first_ops("pp=2") == ("op4",)
    assert _first_ops("pp=2,virtual_stages=2,schedule=interleaved") == ("op2", "op4", "op6")


@pytest.mark.parametrize(
    ("places", "stages", "why"),
    [
        ([(0, 0, 0, 0, 0), (0, 0, 0, 0, 1)], (), "the plan has no pipeline stages"),
        ([(0, 0, 0, 0, 0)], [{"stage": 0, "ranks": [0], "num_ops": 1, "ops": ["a"]}], "the pipeline has one stage"),
        (
            [(0, 0, 0, 0, 0), (1, 0, 0, 0, 0)],
            [{"stage": stage, "ranks": [stage], "num_ops": 1} for stage in (0, 1)],
            "the plan does not name the ops of each stage",
        ),
        (
            [(1, 0, 0, 0, 0), (0, 0, 0, 0, 0)],
            [{"stage": stage, "ranks": [1 - stage], "num_ops": 1, "ops": ["ab"[stage]]} for stage in (0, 1)],
            "ranks fall along the pipeline, and process groups are sorted by rank",
        ),
        (
            [(0, 0, 0, 0, 0), (1, 0, 0, 0, 0)],
            [{"stage": 0, "ranks": [0], "num_ops": 1, "ops": ["a"]}],
            "the chunks do not go round the pipeline stages in turn",
        ),
    ],
)
def test_where_there_are_no_split_points_the_file_says_why(grid_plan, places, stages, why):
    text = export(grid_plan(places, stages), "torchrun")["mesh.py"]
    assert f"# No split points: {why}.\n" in text
    assert _module(text).FIRST_OPS == ()


def test_plans_without_coordinates_have_no_mesh(running_example):
    assert "mesh.py" not in export(running_example, "torchrun")


hostile = st.sampled_from(['"""', "'''", "\\", "{x}", "{", "a\nimport os", "# x", "\u2028", "\x00"])


@given(st.text(min_size=1) | hostile)
def test_hostile_op_names_are_data(grid_plan, name):
    ops = (name + "!", name)
    stages = [{"stage": stage, "ranks": [stage], "num_ops": 1, "ops": [ops[stage]]} for stage in (0, 1)]
    text = export(grid_plan([(0, 0, 0, 0, 0), (1, 0, 0, 0, 0)], stages), "torchrun")["mesh.py"]
    (result,) = _module(text).FIRST_OPS
    assert result == name


def test_the_module_passes_the_linter(grid_plan, tmp_path):
    plan = grid_plan([(0, 1, 0, 0, 0), (0, 0, 0, 0, 0), (1, 0, 0, 0, 0), (1, 1, 0, 0, 0)], TWO_STAGES)
    (tmp_path / "mesh.py").write_text(export(plan, "torchrun")["mesh.py"])
    ruff = Path(sys.executable).with_name("ruff")
    for command in (["check"], ["format", "--check"]):
        subprocess.run([ruff, *command, "--isolated", "--no-cache", "--line-length=130", "mesh.py"], cwd=tmp_path, check=True)


def _plan(layout: Layout) -> PlacementPlan:
    n = 8
    chain = np.stack([np.arange(n - 1), np.arange(1, n)], axis=1)
    graph = JobGraph("g", tuple(f"op{i}" for i in range(n)), ("Linear",) * n, *np.ones((7, n)), chain)
    cluster = load_cluster("preset:dgx-a100-8x8")
    return layout_plan(Job(graph, 1), cluster, layout, place(cluster, list(range(layout.world))))


def _first_ops(degrees: str) -> tuple[str, ...]:
    return _module(export(_plan(Layout.parse(f"{degrees},micro_batch=1,global_batch=4")), "torchrun")["mesh.py"]).FIRST_OPS


def _module(text: str) -> ModuleType:
    """The generated module, imported; it asks for nothing but the standard library."""
    module = ModuleType("mesh")
    exec(compile(text, "mesh.py", "exec"), module.__dict__)
    return module
