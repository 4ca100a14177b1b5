"""Contradictions in a plan: each message names the rank or field, its value and the valid values."""

import copy

import pytest

from meshwright.clusters.cluster import Cluster
from meshwright.errors import ConfigError, GraphError, PlanError
from meshwright.plans import Layout, PlacementPlan, check, check_cluster

ORIGIN = {"pp": 0, "dp": 0, "cp": 0, "ep": 0, "tp": 0}


def refusal(data, error=PlanError):
    """How a plan of this data is refused."""
    with pytest.raises(error) as caught:
        check(PlacementPlan.model_validate(data), file="p.json")
    return str(caught.value)


def changed(plan, *changes):
    """A plan's data with a value put at each path."""
    data = copy.deepcopy(plan.model_dump(mode="json", exclude_none=True))
    for path, value in changes:
        here = data
        for key in path[:-1]:
            here = here[key]
        here[path[-1]] = value
    return data


RANKS = [
    ((("ranks", 3, "rank"), 2), "rank 2: the rank appears twice"),
    ((("ranks", 3, "rank"), 4), "rank 4: 4 ranks count from 0 to 3"),
    ((("ranks", 1, "local_rank"), 1), "rank 1: rank 0 has this device of host gpu-03 already (got 1)"),
    ((("ranks", 1, "device"), 5), "rank 1: rank 0 has this device of host gpu-03 already (got 5)"),
    ((("ranks", 1, "device"), 6), "rank 1: device 6 is gpu-03/2, not gpu-03/0"),
    ((("ranks", 1, "device"), 8), "rank 1: cluster two-hosts has devices 0..7 (got 8)"),
    (
        (("host_order",), ["gpu-07", "gpu-03"]),
        "host_order.0: the next host is that of rank 0, gpu-03: hosts are ordered by their lowest rank (got 'gpu-07')",
    ),
    ((("host_order",), ["gpu-03"]), "host_order: names 1 hosts where the ranks use 2"),
    ((("host_order",), ["gpu-03", "gpu-07", "gpu-07"]), "host_order: names 3 hosts where the ranks use 2"),
    ((("partition", "splits"), [1, 2, 4]), "partition.splits: 3 split degrees for a graph of 4 ops"),
    ((("partition", "splits"), [1, 2, 2, 1]), "rank 2: is one too many: splits up to 2 ways need as many ranks (got 4)"),
    ((("partition", "splits"), [1, 5, 2, 1]), "rank 4: is missing: splits up to 5 ways need as many ranks (got 4)"),
    ((("ranks", 2, "coordinates"), ORIGIN), "rank 2: ranks of op splits have no coordinates"),
    ((("stages", 0, "ranks"), [4]), "stages.0: there is no rank 4; ranks count from 0 to 3"),
]


GRIDS = [
    ((("ranks", 5, "coordinates", "tp"), 0), "rank 5: rank 4 has the same coordinates"),
    ((("ranks", 5, "coordinates", "tp"), 2), "rank 5: tp counts from 0 to 1 (got 2)"),
    ((("ranks", 5, "coordinates", "tp"), 9), "rank 5: tp counts from 0 to 1 (got 9)"),
    ((("ranks", 5, "coordinates", "ep"), 1), "rank 7: more than 1 ranks of stage 1 and tp 1 hold these experts (got 1)"),
    ((("ranks", 5, "coordinates"), None), "rank 5: has no coordinates"),
    ((("micro_batches",), 5), "micro_batches: the layout has 4 (got 5)"),
    ((("partition", "layout", "tp"), 1), "rank 4: is one too many: tp x cp x pp x dp = 4 ranks are wanted (got 8)"),
    ((("partition", "layout", "tp"), 3), "rank 8: is missing: tp x cp x pp x dp = 12 ranks are wanted (got 8)"),
    ((("stages", 0, "stage"), 1), "stages.0: rank 0 is of pipeline stage 0 (got 1)"),
    ((("stages", 0, "num_ops"), 7), "stages.0.num_ops: names 2 ops (got 7)"),
    ((("stages", 0, "ranks"), [0, 0, 1, 2]), "stages.0.ranks: names rank 0 twice (got 0)"),
    ((("stages", 1, "ops"), ["c", "b"]), "stages.1.ops: holds an op that is in stages.0 already (got 'b')"),
    ((("stages", 1, "ops"), ["c", "e"]), "stages.1.ops: the job graph has no such op (got 'e'); valid: a, b, c, d"),
]


@pytest.mark.parametrize(
    ("plan", "change", "message"), [("split_plan", *one) for one in RANKS] + [("grid_plan", *one) for one in GRIDS]
)
def test_a_plan_that_contradicts_itself_or_has_no_full_grid_is_refused_in_these_words(request, plan, change, message):
    assert refusal(changed(request.getfixturevalue(plan), change)) == f"p.json: {message}"


def test_experts_must_divide_the_replicas_of_a_layout(grid_plan):
    with pytest.raises(ValueError, match="ep=3 does not divide tp x cp x dp / etp = 2"):
        PlacementPlan.model_validate(changed(grid_plan, (("partition", "layout", "ep"), 3)))


def test_a_plan_has_ranks(split_plan):
    with pytest.raises(PlanError) as caught:
        check(split_plan.model_copy(update={"ranks": ()}))
    assert str(caught.value) == "ranks: a plan has at least one rank"


def test_an_absent_host_gets_the_nearest_name(split_plan):
    data = changed(split_plan, (("ranks", 3, "host"), "gpu-08"), (("host_order",), ["gpu-03", "gpu-07", "gpu-08"]))
    message = "p.json: rank 3: cluster two-hosts has no such host (got 'gpu-08'); valid: gpu-03, gpu-07"
    assert refusal(data) == message


def test_ranks_out_of_order_are_refused(split_plan):
    data = changed(split_plan)
    data["ranks"][0], data["ranks"][1] = data["ranks"][1], data["ranks"][0]
    assert refusal(data) == "p.json: rank 1: is at place 0; ranks are in order"


def test_a_host_in_two_spellings_is_refused(split_plan):
    """Else a device could be given away twice, and ranks that changed places between the two would pass for planned."""
    data = changed(split_plan, (("ranks", 3, "host"), "GPU-03"))
    for part in ("cluster", "partition", "host_order", "stages"):
        del data[part]
    message = "p.json: rank 3: is host gpu-03 in other letters; names of hosts ignore capitals (got 'GPU-03')"
    assert refusal(data) == message


def test_coordinates_by_hand_are_checked_without_a_layout(grid_plan):
    data = changed(grid_plan)
    del data["partition"]
    check(PlacementPlan.model_validate(data))
    for rank in data["ranks"]:
        rank["coordinates"]["dp"] += rank["coordinates"]["pp"]  # replicas 0, 1 of stage 0 and 1, 2 of stage 1
    assert refusal(data) == "p.json: rank 2: ep counts to 1, and 2 does not divide tp x cp x dp / etp = 3"
    for rank in data["ranks"]:
        rank["coordinates"]["ep"] = 0
    absent = "is missing, none is at pp=0 dp=2 cp=0 tp=0: tp x cp x pp x dp = 12 ranks are wanted (got 8)"
    assert refusal(data) == f"p.json: rank 8: {absent}"


def test_experts_are_spread_over_context_parallel_ranks_as_over_replicas():
    # dp x cp = 1 x 4 ranks of a stage hold the 2 slices of the experts, 2 each
    layout = Layout(dp=1, cp=4, ep=2, micro_batch=1, global_batch=1)
    ranks = [
        {"rank": r, "host": "a", "local_rank": r, "device": r, "coordinates": layout.coordinates(r).model_dump()}
        for r in range(4)
    ]
    data = {"schema_version": 1, "job": {"name": "x"}, "ranks": ranks}
    check(PlacementPlan.model_validate(data))
    ranks[0]["coordinates"]["ep"] = ranks[3]["coordinates"]["ep"]
    slices = [rank["coordinates"]["ep"] for rank in ranks]
    third = [rank for rank, held in enumerate(slices) if held == slices[0]][2]
    message = f"p.json: rank {third}: more than 2 ranks of stage 0 and tp 0 hold these experts (got {slices[0]})"
    assert refusal(data) == message
    for rank in ranks:
        rank["coordinates"]["ep"] = 2 * (rank["coordinates"]["cp"] == 3)
    assert refusal(data) == "p.json: rank 3: ep counts to 2, and 3 does not divide tp x cp x dp / etp = 4"


@pytest.mark.parametrize("at", [8, 10**9, 2**63 - 1])
@pytest.mark.parametrize("axis", ["pp", "dp", "cp", "ep", "tp"])
def test_a_coordinate_beyond_any_grid_of_the_ranks_is_told_at_once(grid_plan, axis, at):
    data = changed(grid_plan, (("ranks", 5, "coordinates", axis), at))
    del data["partition"]
    assert refusal(data) == f"p.json: rank 5: {axis} counts from 0, and 8 ranks have no such place (got {at})"


def test_relabelled_coordinates_stay_legal(grid_plan):
    data = changed(grid_plan)
    first, second = data["ranks"][0], data["ranks"][5]
    first["coordinates"], second["coordinates"] = second["coordinates"], first["coordinates"]
    data["stages"] = []
    check(PlacementPlan.model_validate(data))


def test_stages_of_op_splits_may_hold_the_same_ops(split_plan):
    """There every rank but the first has a part of what the first has."""
    stages = [{"stage": at, "ranks": [at], "num_ops": 1, "ops": ["b"]} for at in range(2)]
    check(PlacementPlan.model_validate(changed(split_plan, (("stages",), stages))))


DAMAGED = [
    ((("job", "graph", "forward_s"), [1.0]), GraphError, "job.graph.forward_s: has shape (1,) for 4 ops"),
    ((("job", "graph", "forward_s"), "slow"), GraphError, "job.graph.forward_s: holds something other than numbers"),
    ((("job", "graph", "edgs"), []), GraphError, "job.graph.edgs: unknown key (got 'edgs'); did you mean 'edges'?"),
    (
        (("job", "graph", "samples_per_step"), 0),
        GraphError,
        "job.graph.samples_per_step: must be a positive whole number, or absent (got 0)",
    ),
    (
        (("cluster", "data", "device"), "a101"),
        ConfigError,
        "cluster.data.device: unknown device type (got 'a101'); valid: a100, a100-40gb, a800, b200, b300, gb200, gb300, h100, "
        "h200, h800, l40s, mi300x, rtx-pro-6000, v100",
    ),
    (
        (("cluster", "data", "topology", "num_spines"), 0),
        ConfigError,
        "cluster.data.topology.num_spines: must be at least 1 (got 0)",
    ),
]


@pytest.mark.parametrize(("change", "error", "message"), DAMAGED)
def test_a_damaged_embedded_graph_or_cluster_is_told_with_its_field(split_plan, change, error, message):
    assert refusal(changed(split_plan, change), error) == f"p.json: {message}"


def on(cluster, **topology):
    """The same cluster with another topology."""
    data = cluster.to_data()
    return Cluster.from_data({**data, "topology": {**data["topology"], **topology}})


def test_a_plan_for_another_cluster_names_the_first_rank_without_a_place(split_plan, two_hosts):
    """Ranks 0 to 3 are on gpu-03/1, gpu-03/0, gpu-07/0 and gpu-07/3."""
    check_cluster(split_plan, two_hosts)
    renamed = Cluster.from_data({**two_hosts.to_data(), "host_names": ["gpu-07", "other"]})
    with pytest.raises(PlanError) as caught:
        check_cluster(split_plan, renamed, file="p.json")
    assert str(caught.value) == "p.json: rank 0: cluster two-hosts has no such host (got 'gpu-03'); valid: gpu-07, other"
    # three devices count 0, 1, 2: device 3 is the first that a host of them does not have
    for size in (2, 3):
        with pytest.raises(PlanError) as caught:
            check_cluster(split_plan, on(two_hosts, devices_per_host=size, nics_per_host=size), file="p.json")
        assert str(caught.value) == f"p.json: rank 3: host gpu-07 of cluster two-hosts has devices 0..{size - 1} (got 3)"
