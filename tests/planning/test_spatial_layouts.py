"""Layouts that cut volumes: both paths agree, uncut is data parallelism, the search cuts what does not fit, exports."""

import numpy as np
import pytest

from meshwright.clusters import load_cluster
from meshwright.clusters.cluster import Cluster
from meshwright.costs.process_groups.rank_groups import stage_groups
from meshwright.devices import device_type
from meshwright.errors import ExportError, PlanError
from meshwright.export import ExportOptions, export
from meshwright.export.chakra.traces import traces_of
from meshwright.planners.layouts.request import SearchRequest
from meshwright.planning.estimate import estimate
from meshwright.planning.search import search_layouts
from meshwright.plans.partition import Layout
from meshwright.plans.rank_order import ORDERS, coordinates

BATCH = "micro_batch=1,global_batch=4"


@pytest.fixture(scope="module")
def cluster():
    return load_cluster("preset:dgx-a100-8x8")


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "text",
    ["dp=2", "sp_d=8", "sp_d=2,sp_h=2,sp_w=2", "dp=2,sp_d=8,zero=1", "pp=2,sp_d=4", "sp_d=2,recompute=full", "sp_h=2,dp=4"],
)
@pytest.mark.parametrize("job", ["zoo:cosmoflow-256", "zoo:unet3d"])
def test_both_paths_agree_within_three_percent(job, text, cluster):
    result = estimate(job, cluster, f"{text},{BATCH}")
    costs = result.costs.model_copy(update={"contention": "independent"})
    assert result.simulated_s(costs) == pytest.approx(result.step.step_s, rel=0.03)
    assert sum(result.step.breakdown_s.values()) == pytest.approx(result.step.step_s, rel=1e-9)


@pytest.mark.parametrize("text", ["dp=2,overlap_dp=true", "dp=2,pp=2", "dp=4,zero=1"])
def test_one_part_is_data_parallelism(text, cluster):
    plain = estimate("zoo:cosmoflow-256", cluster, f"{text},{BATCH}")
    cut = estimate("zoo:cosmoflow-256", cluster, f"{text},sp_d=1,sp_h=1,sp_w=1,{BATCH}")
    assert cut.step.step_s == pytest.approx(plain.step.step_s, rel=1e-9)
    assert cut.simulated_s(cut.costs) == pytest.approx(plain.simulated_s(plain.costs), rel=1e-9)


def test_a_faster_link_and_more_parts_never_make_it_slower(cluster):
    steps = [estimate("zoo:cosmoflow-512", cluster, f"sp_d={parts},{BATCH}").step.step_s for parts in (1, 2, 4, 8)]
    assert steps == sorted(steps, reverse=True)
    efficiency = [steps[0] / (parts * step) for parts, step in zip((1, 2, 4, 8), steps, strict=True)]
    assert efficiency == sorted(efficiency, reverse=True)


def test_parts_of_a_volume_stand_where_the_order_puts_them():
    layout = Layout(dp=2, pp=2, sp_d=2, sp_w=2, micro_batch=1, global_batch=2)
    assert [coordinates(layout)[rank] for rank in range(16)] == [layout.coordinates(rank) for rank in range(16)]
    for order in ORDERS:
        places = {(at.pp, at.dp, at.sp) for at in coordinates(layout, order)}
        assert len(places) == layout.world
    assert stage_groups(layout, "sp_d")[0].tolist() == [0, 2]
    assert stage_groups(layout, "sp_w")[0].tolist() == [0, 1]
    assert stage_groups(layout, "dp_cp")[0].tolist() == list(range(8))


@pytest.fixture(scope="module")
def found():
    device = device_type("v100").to_data() | {"memory_gib": 16.0}
    topology = {"kind": "single-host", "num_devices": 4, "fabric": "switch", "bandwidth_gbytes_per_s": 150.0, "latency_us": 0.6}
    small = Cluster.from_data({"name": "v100-16gb", "device": device, "topology": topology})
    return search_layouts("zoo:cosmoflow-512", small, SearchRequest(batch=2, top=3, keep="schedule=1f1b"))


def test_the_search_cuts_samples_that_do_not_fit(found):
    layout = found.plan.layout()
    assert layout.sp == 4
    assert "sp_d" in found.plan.model_dump(mode="json")["partition"]["layout"]


def test_exports_say_parts_or_refuse(found):
    rendered = export(found.plan, "torchrun", ExportOptions(script="train.py"))
    assert 'DIM_NAMES = ("pp", "dp", "cp", "sp_d", "sp_h", "sp_w", "tp")' in rendered["mesh.py"]
    mesh: dict[str, object] = {}
    exec(rendered["mesh.py"], mesh)
    assert np.array(mesh["GRID"]).shape == tuple(getattr(found.plan.layout(), axis) for axis in mesh["DIM_NAMES"])
    assert [mesh["coordinates"](rank)["sp"] for rank in range(4)] == [at.coordinates.sp for at in found.plan.ranks]
    for name in ("megatron", "deepspeed"):
        with pytest.raises(ExportError, match=r"partition\.layout\.sp_d: .* no spatial parallelism; the nearest plan is dp="):
            export(found.plan, name, ExportOptions(script="train.py"))


def test_traces_hold_the_halos(found):
    traces, _ = traces_of(found.plan)
    assert all(any("halo" in node.name for node in trace.nodes) for trace in traces)


def test_volumes_are_kept_for_networks_on_volumes_only(cluster):
    for job in ("zoo:bert-base", "zoo:resnet50"):
        with pytest.raises(PlanError, match=r"keep\.sp_d: cuts volumes"):
            search_layouts(job, cluster, SearchRequest(keep="sp_d=2"))
    with pytest.raises(PlanError, match=r"layout\.sp_d: cuts volumes, and bert-base has none"):
        estimate("zoo:bert-base", cluster, f"sp_d=2,{BATCH}")
