"""Bidirectional layouts: their explanations, their searches and their moves."""

import json

import numpy as np
import pytest

from meshwright.costs.training.masked import model_place
from meshwright.costs.work.work import describe
from meshwright.jobs.zoo.catalogue import zoo_shape
from meshwright.planning.estimate import estimate
from meshwright.planning.explain import explain
from meshwright.planning.search import search_layouts
from meshwright.plans.partition import Layout

DUALPIPE = "pp=2,schedule=dualpipe,micro_batch=1,global_batch=4"
DUALPIPEV = "pp=4,dp=2,schedule=dualpipev,virtual_stages=2,micro_batch=1,global_batch=16"
EAGER = "pp=4,tp=2,dp=1,schedule=eager-1f1b,micro_batch=1,global_batch=8"
EIGHT_LAYERS = {"model_type": "gpt2", "n_embd": 768, "n_layer": 8, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}


@pytest.mark.parametrize("layout", [DUALPIPE, *(pytest.param(layout, marks=pytest.mark.slow) for layout in (DUALPIPEV, EAGER))])
def test_a_switch_that_the_schedule_refuses_is_told_with_its_reason(tmp_path, layout):
    (tmp_path / "config.json").write_text(json.dumps(EIGHT_LAYERS))
    figures = {one.name: one for one in explain(estimate(str(tmp_path / "config.json"), "preset:dgx-a100-8x8", layout))}
    assert "needs overlap_pp=true" in figures["overlap_pp=false"].remark
    assert figures["overlap_pp=false"].step_s is None


@pytest.mark.parametrize("schedule", ["dualpipe", "dualpipev"])
def test_they_are_searched_on_mixed_devices_where_hosts_are_not_alike(tmp_path, schedule):
    (tmp_path / "config.json").write_text(json.dumps(EIGHT_LAYERS))
    keep = f"schedule={schedule},tp=1,cp=1,pp=2,micro_batch=1,recompute=none,zero=0"
    result = search_layouts(str(tmp_path / "config.json"), "preset:mixed-256", devices="32", batch=64, keep=keep)
    assert result.best.layout.schedule == schedule


@pytest.mark.parametrize("schedule", ["dualpipe", "dualpipev"])
def test_the_weights_of_a_stage_stand_where_its_passes_run(schedule):
    """12 layers between embedding and head on two ranks: DualPipe has each unit of the model twice, on mirrored stages."""
    chunks = 2 if schedule == "dualpipev" else 1
    layout = Layout.parse(f"pp=2,dp=2,schedule={schedule},virtual_stages={chunks},micro_batch=1,global_batch=32")
    place = model_place(describe(zoo_shape("gpt2-small")[0], layout), "tp-cp-dp-pp", np.zeros(layout.world, np.int64))
    held = [unit for first, end in place.chunk_units for unit in range(first, end)]
    assert sorted(held) == sorted(list(range(len(place.units))) * (2 if schedule == "dualpipe" else 1))
    stages = [layout.stage_of(chunk) for chunk in range(len(place.chunk_units))]
    assert stages == [0, 1, 1, 0]
