"""mesh.py of stages with meshes of their own: its tables, and processes that build the meshes and bring tensors between them."""

import subprocess
import sys
from itertools import product

import numpy as np
import pytest

from meshwright.export import export
from meshwright.plans import Layout, PlacementPlan

from .test_deepspeed import plan_of
from .test_device_mesh import _module

# A micro-batch of 4 samples of 4 tokens goes to the second stage, and its gradient back; every number says where it belongs.
RUN = """
import sys
import torch
import torch.distributed as dist
import mesh

rank = int(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=len(mesh.RANKS))
own = mesh.device_mesh("cpu")
place = mesh.coordinates(rank)
assert list(own.get_coordinate()) == [place[name] for name in mesh.DIM_NAMES]
total = torch.tensor([10**rank])
dist.all_reduce(total, group=own.get_group("dp"))
same = [other for other, _, at in mesh.RANKS if all(at[name] == place[name] for name in ("pp", "cp", "tp"))]
assert total.item() == sum(10**other for other in same)
whole = torch.arange(4 * 4 * 3, dtype=torch.float32).reshape(4, 4, 3)
parts = max(tokens[1] for _, tokens in mesh.TILES)
(first, last), (begin, end) = mesh.TILES[rank]
mine = whole[first:last, begin * 4 // parts : end * 4 // parts]
for source, target in ((0, 1), (1, 0)):
    if place["pp"] == source:
        mesh.reshard(mine.clone(), source, target)
    else:
        torch.testing.assert_close(mesh.reshard(torch.full_like(mine, -1), source, target), mine)
dist.destroy_process_group()
"""

CASES = [
    "tp=1,dp=2,pp=2,stage_meshes=1x2/2x1",  # halves of the samples to whole ones
    "tp=2,dp=1,pp=2,sequence_parallel=true,stage_meshes=2x1/1x1",  # halves of the tokens, and unequally many ranks
]


def plan(text):
    layout = Layout.parse(f"{text},micro_batch={4 // int(text.split('dp=')[1][0])},global_batch=8")
    return plan_of(["localhost"] * layout.world, list(range(layout.world)), layout)


def test_the_meshes_worked_by_hand():
    mesh = _module(export(plan("tp=2,dp=2,pp=2,stage_meshes=2x2/4x1"), "torchrun")["mesh.py"])
    assert np.array(mesh.GRIDS[0]).tolist() == [[[0, 1]], [[2, 3]]]
    assert np.array(mesh.GRIDS[1]).tolist() == [[[4, 5, 6, 7]]]
    assert mesh.TILES == [((0, 2), (0, 1))] * 2 + [((2, 4), (0, 1))] * 2 + [((0, 4), (0, 1))] * 4
    # every rank of the second stage gets both halves, each from one of the two that hold it, in turn
    assert mesh.messages(0, 1) == [
        (holder, receiver, part)
        for number, receiver in enumerate(range(4, 8))
        for holder, part in ((number % 2, ((0, 2), (0, 1))), (2 + number % 2, ((2, 4), (0, 1))))
    ]
    assert mesh.EXPERT_GRIDS is None


@pytest.mark.parametrize("text", [*CASES, "tp=2,dp=2,pp=2,sequence_parallel=true,stage_meshes=2x2/1x4"])
def test_every_rank_is_given_each_of_its_numbers_once(text):
    mesh = _module(export(plan(text), "ray")["mesh.py"])
    for source, target in ((0, 1), (1, 0)):
        got = {}
        for sender, receiver, (samples, tokens) in mesh.messages(source, target):
            assert mesh.coordinates(sender)["pp"] == source
            for place in product(range(*samples), range(*tokens)):
                got[receiver, place] = got.get((receiver, place), 0) + 1
        expected = {
            (rank, place)
            for rank, _, at in mesh.RANKS
            if at["pp"] == target
            for place in product(*(range(*interval) for interval in mesh.TILES[rank]))
        }
        assert set(got) == expected
        assert set(got.values()) == {1}


def test_the_experts_meshes_are_those_of_each_stage():
    mesh = _module(export(plan("tp=1,dp=4,ep=2,pp=2,stage_meshes=1x4/2x2"), "torchrun")["mesh.py"])
    assert np.array(mesh.EXPERT_GRIDS[0]).reshape(2, 2).tolist() == [[0, 1], [2, 3]]
    assert np.array(mesh.EXPERT_GRIDS[1]).tolist() == [[[4, 5], [6, 7]]]


@pytest.mark.slow
@pytest.mark.parametrize("text", CASES)
def test_processes_build_the_meshes_and_bring_tensors_between_them(text, tmp_path):
    pytest.importorskip("torch.distributed.device_mesh", reason="PyTorch is not installed")
    planned = plan(text)
    (tmp_path / "mesh.py").write_text(export(planned, "torchrun")["mesh.py"])
    (tmp_path / "run.py").write_text(RUN)
    words = [sys.executable, str(tmp_path / "run.py")]
    ranks = range(planned.num_ranks)
    started = [
        subprocess.Popen([*words, str(rank), str(tmp_path / "rendezvous")], stderr=subprocess.PIPE, text=True) for rank in ranks
    ]
    try:
        ended = [process.communicate(timeout=300)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * len(ranks), ended


@pytest.mark.parametrize("text", ["pp=2,dp=1,tp=1,schedule=dualpipe", "pp=2,dp=1,tp=1,schedule=dualpipev,virtual_stages=2"])
def test_stages_on_the_way_up_again_get_no_split_points(text):
    layout = Layout.parse(f"{text},micro_batch=1,global_batch=8")
    data = plan_of(["localhost"] * 2, [0, 1], layout).model_dump(mode="json", exclude_none=True)
    chunks = [(0, 0), (1, 0), (1, 1), (0, 1)]  # stage and place of each, in the order of the model
    data["stages"] = [
        {"stage": stage, "chunk": place, "ranks": [stage], "num_ops": 1, "ops": [f"op{number}"]}
        for number, (stage, place) in enumerate(chunks)
    ]
    written = export(PlacementPlan.model_validate(data), "torchrun")["mesh.py"]
    assert _module(written).FIRST_OPS == ()
    assert "# No split points: stages go down the pipeline and up again" in written
