"""Layouts whose stages have meshes of their own, found by a search, as plans and exported."""

import pytest

from meshwright.errors import ExportError, PlanError
from meshwright.export import export
from meshwright.planning.search import search_layouts
from meshwright.plans import load_plan
from meshwright.plans.partition import Layout

OPTIONS = {"batch": 32, "devices": "16", "top": 3}
KEPT = "tp=4|8,pp=2,schedule=1f1b,recompute=full,micro_batch=2,sequence_parallel=false"


@pytest.fixture(scope="module")
def searches():
    keeps = (KEPT, f"{KEPT},stage_meshes=free")
    return [search_layouts("zoo:llama-7b", "preset:dgx-a100-8x8", keep=keep, **OPTIONS) for keep in keeps]


def test_free_meshes_are_never_worse_and_are_told(searches):
    plain, free = searches
    assert free.best.step_s <= plain.best.step_s
    meshed = [one for one in free.searched.ranking if one.layout.is_meshed]
    assert all("stage_meshes=" in one.text and {tp for tp, _ in one.layout.stage_meshes} <= {4, 8} for one in meshed)
    assert "meshes of stages: " in free.sizes[-1]
    work = free.maker.work(free.best.layout)
    assert free.maker.pricer.step_s(work) == pytest.approx(free.best.step_s, rel=1e-9)
    assert free.best.memory_bytes == work.peak_memory()[1].total


@pytest.fixture(scope="module")
def plan(searches):
    maker, text = searches[0].maker, "tp=8,dp=1,pp=2,stage_meshes=8x1/4x2,micro_batch=16,global_batch=32,recompute=full"
    return maker.plan(maker.work(Layout.parse(text)), "tp-cp-dp-pp", 10, (), "")


def test_a_plan_of_unequal_meshes_is_kept_and_exported_where_it_can_be_said(plan, tmp_path):
    path = tmp_path / "plan.json"
    plan.save(path)
    assert load_plan(path) == plan
    assert plan.layout().is_meshed
    for target in ("megatron", "deepspeed"):
        with pytest.raises(ExportError, match="one mesh for all stages"):
            export(plan, target)
    assert any(name.endswith(".et") for name in export(plan, "chakra"))
    assert export(plan, "slurm")
    assert all("def reshard" in export(plan, target)["mesh.py"] for target in ("torchrun", "ray"))


def test_a_rank_out_of_its_mesh_is_told(plan):
    wrong = plan.ranks[0].model_copy(update={"coordinates": plan.ranks[1].coordinates})
    broken = plan.model_copy(update={"ranks": (wrong, *plan.ranks[1:])})
    with pytest.raises(PlanError, match="has the same coordinates"):
        export(broken, "slurm")


@pytest.mark.parametrize("launcher", ["megatron", "torchtitan", "deepspeed"])
def test_a_framework_with_one_mesh_is_listed_none_of_its_own(launcher):
    keep = "tp=2|4|8,pp=2,schedule=1f1b,recompute=full,micro_batch=2,stage_meshes=free"
    result = search_layouts("zoo:llama-7b", "preset:dgx-a100-8x8", keep=keep, launcher=launcher, **OPTIONS)
    listed = (*result.searched.ranking, *result.searched.front, *result.searched.examined)
    assert listed
    assert not any(one.layout.is_meshed for one in listed)
    assert "meshes of stages: 0 priced, 0 of " in result.sizes[-1]


def test_meshes_are_freed_or_left_out():
    with pytest.raises(PlanError, match="is free, or left out"):
        search_layouts("zoo:llama-7b", "preset:dgx-a100-8x8", keep="stage_meshes=8x1/4x2", **OPTIONS)
    with pytest.raises(PlanError, match="a graph of ops does not have"):
        search_layouts("zoo:alexnet", "preset:dgx-a100-8x8", keep="stage_meshes=free", batch=64, devices="8")
