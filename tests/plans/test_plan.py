"""Plans built from parts, kept as JSON, read back, and refused by name where they are wrong."""

import copy
import dataclasses
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from meshwright.clusters.cluster import Cluster
from meshwright.errors import ClusterError, ConfigError, GraphError, InputFileError, PlanError
from meshwright.files import json_text
from meshwright.jobs.job import Job
from meshwright.plans import (
    Figure,
    Layout,
    OpSplits,
    PlacementPlan,
    check,
    check_cluster,
    layout_plan,
    load_plan,
    op_split_plan,
    place,
)
from meshwright.plans.schema import json_schema, published_text
from meshwright.plans.versions import SCHEMA_VERSION, known_versions


@pytest.fixture
def split_plan(chain, two_hosts):
    """Four ranks in an order that no sort gives."""
    step = Figure(name="step_s", value=4.5, unit="s", provenance="estimated")
    splits = OpSplits(np.array([1, 2, 4, 1]))
    job = Job(chain, 50, deadline_s=300.0)
    return op_split_plan(job, two_hosts, splits, place(two_hosts, [5, 4, 0, 3]), predicted=[step], why="lowest step time")


@pytest.fixture
def grid_plan(chain, two_hosts):
    """Eight ranks: tensor-parallel pairs, two replicas, two stages."""
    layout = Layout.parse("tp=2,pp=2,dp=2,ep=2,micro_batch=4", samples_per_step=chain.samples_per_step)
    return layout_plan(Job(chain, 50), two_hosts, layout, place(two_hosts, range(8)))


def test_ranks_keep_the_order_of_the_placement(split_plan):
    assert [(rank.rank, rank.host, rank.local_rank, rank.device) for rank in split_plan.ranks] == [
        (0, "gpu-03", 1, 5),
        (1, "gpu-03", 0, 4),
        (2, "gpu-07", 0, 0),
        (3, "gpu-07", 3, 3),
    ]
    assert split_plan.host_order == ("gpu-03", "gpu-07")
    assert split_plan.placement().devices.tolist() == [5, 4, 0, 3]


def test_the_largest_memory_is_among_the_predicted_figures(split_plan):
    # rank 0 of the hand-worked example in test_placement_and_memory
    assert split_plan.figure("memory_bytes") == Figure(name="memory_bytes", value=1320.0, unit="bytes", provenance="estimated")
    assert split_plan.figure("absent") is None


def test_a_layout_gives_every_rank_its_coordinates(grid_plan):
    assert [rank.coordinates.tp for rank in grid_plan.ranks] == [0, 1, 0, 1, 0, 1, 0, 1]
    assert [rank.coordinates.pp for rank in grid_plan.ranks] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert grid_plan.micro_batches == 4  # 32 samples / (4 a micro-batch x 2 replicas)
    assert [stage.ranks for stage in grid_plan.stages] == [(0, 1, 2, 3), (4, 5, 6, 7)]


@pytest.mark.parametrize("name", ["split_plan", "grid_plan"])
def test_save_then_load_is_the_same_plan(name, request, tmp_path):
    plan = request.getfixturevalue(name)
    plan.save(tmp_path / "plan.json")
    loaded = load_plan(tmp_path / "plan.json")
    assert loaded == plan
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "plan.json").read_bytes()


def test_a_plan_stands_alone(split_plan, chain, two_hosts, tmp_path):
    split_plan.save(tmp_path / "plan.json")
    loaded = load_plan(tmp_path / "plan.json")
    assert loaded.job_graph().digest == chain.digest
    assert loaded.embedded_cluster().digest == two_hosts.digest
    assert loaded.op_splits().splits.tolist() == [1, 2, 4, 1]


def test_a_plan_larger_than_memory_is_refused_with_both_numbers(chain, two_hosts):
    from dataclasses import replace

    huge = replace(chain, activation_bytes=np.full(4, 90e9))
    with pytest.raises(PlanError, match=r"rank 0: needs 360\.000 GB, device gpu-07/0 has 80\.000 GB"):
        op_split_plan(Job(huge, 1), two_hosts, OpSplits(np.ones(4, int)), place(two_hosts, [0]))


def test_a_placement_of_another_size_is_refused(chain, two_hosts):
    with pytest.raises(PlanError, match=r"the partition has 4 ranks \(got 3\)"):
        op_split_plan(Job(chain, 1), two_hosts, OpSplits(np.array([1, 2, 4, 1])), place(two_hosts, [0, 1, 2]))
    with pytest.raises(PlanError, match=r"the partition has 2 ranks \(got 3\)"):
        layout_plan(Job(chain, 1), two_hosts, Layout(tp=2, micro_batch=1, global_batch=1), place(two_hosts, [0, 1, 2]))


def test_a_plan_by_hand_needs_no_more_than_a_job_and_ranks(tmp_path):
    ranks = [{"rank": r, "host": h, "local_rank": 0, "device": 0} for r, h in enumerate(["b", "a"])]
    plan = _load(tmp_path, {"schema_version": 1, "job": {"name": "mine"}, "ranks": ranks})
    assert plan.host_order == ("b", "a")
    assert dict(row[:2] for row in plan.summary_rows()) == {"job": "mine", "partition": "by hand", "ranks": "2 on 2 hosts"}


def test_the_least_plan_by_hand_has_no_key_that_can_be_left_out(tmp_path):
    least = {"schema_version": 2, "job": {"name": "mine"}, "ranks": [{"rank": 0, "host": "a", "local_rank": 0, "device": 0}]}
    assert _load(tmp_path, least).num_ranks == 1
    for part in (least, least["job"], least["ranks"][0]):
        for key in list(part):
            value = part.pop(key)
            with pytest.raises(PlanError, match=f"{key}: the key is missing"):
                _load(tmp_path, least)
            part[key] = value


def test_a_plan_for_another_cluster_names_the_first_rank_without_a_place(split_plan, two_hosts):
    check_cluster(split_plan, two_hosts)
    renamed = Cluster.from_data({**two_hosts.to_data(), "host_names": ["gpu-07", "gpu-04"]})
    with pytest.raises(PlanError, match=r"p\.json: rank 0: cluster two-hosts has no such host \(got 'gpu-03'\); did you mean"):
        check_cluster(split_plan, renamed, file="p.json")
    smaller = two_hosts.to_data()
    smaller["topology"] = {**smaller["topology"], "devices_per_host": 2, "nics_per_host": 2}
    with pytest.raises(PlanError, match=r"rank 3: host gpu-07 of cluster two-hosts has devices 0\.\.1 \(got 3\)"):
        check_cluster(split_plan, Cluster.from_data(smaller))


@pytest.mark.parametrize("version", known_versions()[:-1])
def test_plans_of_older_versions_are_read_as_they_were_meant(version, tmp_path, chain, two_hosts):
    """Stored as that version saved them; every older version has its example."""
    loaded = load_plan(Path(__file__).with_name(f"plan_version_{version}.json"))
    step = Figure(name="step_s", value=4.5, unit="s", provenance="estimated")
    layout = Layout.parse("tp=2,pp=2,dp=2,ep=2,micro_batch=4,zero=1", samples_per_step=chain.samples_per_step)
    job = Job(chain, 50, deadline_s=300.0)
    order = place(two_hosts, [4, 5, 6, 7, 0, 1, 2, 3])
    assert loaded == layout_plan(job, two_hosts, layout, order, predicted=[step], why="lowest step time")
    loaded.save(tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text())["schema_version"] == SCHEMA_VERSION
    assert load_plan(tmp_path / "plan.json") == loaded


def test_reading_an_older_version_leaves_the_given_data_alone():
    data = {"schema_version": 1, "job": {"name": "x"}, "ranks": [{"rank": 0, "host": "a", "local_rank": 0, "device": 0}]}
    before = copy.deepcopy(data)
    assert PlacementPlan.model_validate(data).schema_version == SCHEMA_VERSION
    assert data == before


def test_rows_for_tables(split_plan, grid_plan):
    assert split_plan.rank_rows()[0] == {"rank": 0, "host": "gpu-03", "local_rank": 1, "device": 5}
    assert grid_plan.rank_rows()[7]["dp"] == 1
    assert ("step", "4.5 s", "estimated") in split_plan.summary_rows()
    assert ("deadline", "300 s", "") in split_plan.summary_rows()
    assert ("partition", "tp=2 pp=2 dp=2 ep=2 micro_batch=4 global_batch=32", "") in grid_plan.summary_rows()


@pytest.mark.parametrize(
    ("name", "value", "unit", "shown"),
    [
        ("memory_bytes", 10.23e9, "bytes", ("memory", "10.2 GB")),
        ("memory_bytes", 1500.0, "bytes", ("memory", "1.5 kB")),
        ("memory_bytes", 12.0, "bytes", ("memory", "12 B")),
        ("communication_share", 0.0437, "1", ("communication share", "4.4 %")),
        ("step_s", 0.0125, "s", ("step", "12.5 ms")),
        ("completion_s", 0.0, "s", ("completion", "0 s")),
        ("power", 3.5, "kW", ("power", "3.5 kW")),
        ("rounds", 7.0, "", ("rounds", "7")),
    ],
)
def test_figures_are_shown_in_units_for_people(split_plan, name, value, unit, shown):
    figure = Figure(name=name, value=value, unit=unit, provenance="estimated")
    plan = split_plan.model_copy(update={"predicted": (figure,)})
    assert (*shown, "estimated") in plan.summary_rows()


def test_the_samples_of_a_step_are_shown_where_the_job_tells_them(chain, two_hosts):
    for samples, rows in ((48, [("samples per step", "48 over all ranks", "")]), (None, [])):
        job = Job(dataclasses.replace(chain, samples_per_step=samples), 1)
        plan = op_split_plan(job, two_hosts, OpSplits(np.array([1, 2, 4, 1])), place(two_hosts, [0, 1, 2, 3]))
        assert [row for row in plan.summary_rows() if row[0] == "samples per step"] == rows


def test_the_published_schema_is_that_of_the_models():
    assert published_text() == json_text(json_schema()) + "\n"


@pytest.mark.parametrize("name", ["split_plan", "grid_plan"])
def test_the_published_schema_accepts_a_saved_plan(name, request):
    schema = json.loads(published_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(_data(request.getfixturevalue(name)), schema)


BROKEN = [
    (("schema_version",), 3, "schema_version"),
    (("ranks",), [], "ranks"),
    (("ranks", 0, "rank"), -1, r"ranks\.0\.rank"),
    (("ranks", 0, "rank"), "0", r"ranks\.0\.rank"),
    (("ranks", 1, "host"), "gpu 03", r"ranks\.1\.host.*'gpu 03'"),
    (("ranks", 1, "host"), "a" * 300, r"ranks\.1\.host"),
    (("ranks", 1, "host"), "x;reboot", r"ranks\.1\.host"),
    (("ranks", 1, "host"), "gpu-ä", r"ranks\.1\.host"),
    (("ranks", 1, "host"), "-gpu", r"ranks\.1\.host"),
    (("ranks", 1, "hots"), "gpu-03", r"ranks\.1\.hots: unknown key.*did you mean 'host'"),
    (("job", "num_steps"), 0, r"job\.num_steps"),
    (("job", "deadline_s"), -1.0, r"job\.deadline_s"),
    (("predicted", 0, "provenance"), "measurd", r"did you mean 'measured'"),
    (("partition", "kind"), "op_split", r"did you mean 'op_splits'"),
    (("partition", "splits", 0), 0, r"splits\.0"),
]


@pytest.mark.parametrize(("path", "value", "told"), BROKEN)
def test_a_broken_plan_is_refused_by_loader_and_schema(split_plan, tmp_path, path, value, told):
    data = _with(_data(split_plan), path, value)
    with pytest.raises(PlanError, match=told) as caught:
        _load(tmp_path, data)
    assert "plan.json" in str(caught.value)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, json.loads(published_text()))


ILLEGAL = [
    (("ranks", 3, "rank"), 2, "rank 2: the rank stands twice"),
    (("ranks", 3, "rank"), 4, r"rank 4: 4 ranks count from 0 to 3"),
    (("ranks", 1, "local_rank"), 1, r"rank 1: rank 0 has this device of host gpu-03 already"),
    (("ranks", 1, "device"), 5, r"rank 1: rank 0 has this device of host gpu-03 already"),
    (("ranks", 1, "device"), 6, r"rank 1: device 6 is gpu-03/2, not gpu-03/0"),
    (("ranks", 1, "device"), 8, r"rank 1: cluster two-hosts has devices 0\.\.7 \(got 8\)"),
    (("host_order",), ["gpu-07", "gpu-03"], r"host_order\.0: the next host is that of rank 0, gpu-03"),
    (("host_order",), ["gpu-03"], r"host_order: names 1 hosts where the ranks use 2"),
    (("partition", "splits"), [1, 2, 4], "3 split degrees for a graph of 4 ops"),
    (("partition", "splits"), [1, 2, 2, 1], r"rank 2: is one too many: splits up to 2 ways need as many ranks \(got 4\)"),
    (
        ("ranks", 2, "coordinates"),
        {"pp": 0, "dp": 0, "cp": 0, "ep": 0, "tp": 0},
        "rank 2: ranks of op splits",
    ),
    (("stages", 0, "ranks"), [4], r"stages\.0: there is no rank 4"),
]


@pytest.mark.parametrize(("path", "value", "told"), ILLEGAL)
def test_a_plan_that_contradicts_itself_names_the_rank(split_plan, tmp_path, path, value, told):
    with pytest.raises(PlanError, match=told) as caught:
        _load(tmp_path, _with(_data(split_plan), path, value))
    assert "plan.json" in str(caught.value)


def test_an_absent_host_gets_the_nearest_name(split_plan, tmp_path):
    data = _with(_data(split_plan), ("ranks", 3, "host"), "gpu-08")
    data["host_order"] = ["gpu-03", "gpu-07", "gpu-08"]
    with pytest.raises(PlanError, match=r"rank 3: cluster two-hosts has no such host \(got 'gpu-08'\); did you mean 'gpu-07'"):
        _load(tmp_path, data)


def test_ranks_out_of_order_are_refused(split_plan, tmp_path):
    data = _data(split_plan)
    data["ranks"][0], data["ranks"][1] = data["ranks"][1], data["ranks"][0]
    with pytest.raises(PlanError, match="rank 1: stands at place 0"):
        _load(tmp_path, data)


BAD_GRIDS = [
    (("ranks", 5, "coordinates", "tp"), 0, "rank 5: rank 4 has the same coordinates"),
    (("ranks", 5, "coordinates", "tp"), 2, r"rank 5: tp counts from 0 to 1 \(got 2\)"),
    (("ranks", 5, "coordinates", "ep"), 1, r"rank 7: more than 1 ranks of stage 1 and tp 1"),
    (("ranks", 5, "coordinates"), None, "rank 5: has no coordinates"),
    (("micro_batches",), 5, r"micro_batches: the layout has 4 \(got 5\)"),
    (("partition", "layout", "tp"), 1, r"rank 4: is one too many: tp x cp x pp x dp = 4 ranks are wanted \(got 8\)"),
    (("partition", "layout", "ep"), 3, "ep=3 does not divide dp x cp = 2"),
    (("stages", 0, "stage"), 1, r"stages\.0: rank 0 is of pipeline stage 0"),
    (("stages", 0, "num_ops"), 7, r"stages\.0\.num_ops: names 2 ops"),
    (("stages", 0, "ranks"), [0, 0, 1, 2], r"stages\.0\.ranks: names rank 0 twice"),
    (("stages", 1, "ops"), ["c", "b"], r"stages\.1\.ops: holds an op that stands in stages\.0 already \(got 'b'\)"),
]


@pytest.mark.parametrize(("path", "value", "told"), BAD_GRIDS)
def test_coordinates_that_are_no_full_grid_name_the_rank(grid_plan, tmp_path, path, value, told):
    with pytest.raises(PlanError, match=told):
        _load(tmp_path, _with(_data(grid_plan), path, value))


def test_coordinates_by_hand_are_checked_without_a_layout(grid_plan, tmp_path):
    data = _data(grid_plan)
    del data["partition"]
    assert _load(tmp_path, data).layout() is None
    for missing in data["ranks"]:
        missing["coordinates"]["dp"] += missing["coordinates"]["pp"]  # replicas 0, 1 of stage 0 and 1, 2 of stage 1
    with pytest.raises(PlanError, match=r"rank 2: ep counts to 1, and 2 does not divide dp x cp = 3"):
        _load(tmp_path, data)
    for missing in data["ranks"]:
        missing["coordinates"]["ep"] = 0
    absent = r"rank 8: is missing, none stands at pp=0 dp=2 cp=0 tp=0: tp x cp x pp x dp = 12 ranks are wanted \(got 8\)"
    with pytest.raises(PlanError, match=absent):
        _load(tmp_path, data)


@pytest.mark.parametrize("at", [8, 10**9, 2**63 - 1, 10**30])
@pytest.mark.parametrize("axis", ["pp", "dp", "cp", "ep", "tp"])
def test_a_coordinate_beyond_any_grid_of_the_ranks_is_told_at_once(grid_plan, tmp_path, axis, at):
    data = _data(grid_plan)
    del data["partition"]
    data["ranks"][5]["coordinates"][axis] = at
    with pytest.raises(PlanError, match=rf"rank 5: {axis} counts from 0, and 8 ranks have no such place \(got {at}\)"):
        _load(tmp_path, data)


def test_a_host_in_two_spellings_is_refused(split_plan, tmp_path):
    """Else a device could be given away twice, and ranks that changed places between the two would pass for planned."""
    data = _data(split_plan)
    for part in ("cluster", "partition", "host_order", "stages"):
        del data[part]
    data["ranks"][3] |= {"host": "GPU-03"}
    with pytest.raises(PlanError, match=r"rank 3: is host gpu-03 in other letters.*\(got 'GPU-03'\)"):
        _load(tmp_path, data)


def test_relabelled_coordinates_stay_legal(grid_plan, tmp_path):
    data = _data(grid_plan)
    first, second = data["ranks"][0], data["ranks"][5]
    first["coordinates"], second["coordinates"] = second["coordinates"], first["coordinates"]
    data["stages"] = []
    assert _load(tmp_path, data).ranks[0].coordinates.pp == 1


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ("[]", InputFileError, "a plan is a JSON object"),
        ("{", InputFileError, "not valid JSON"),
        ("{}", PlanError, "schema_version: the key is missing"),
        ('{"schema_version": 7}', PlanError, r"versions 1 to 2 are known \(got 7\)"),
        ('{"schema_version": true}', PlanError, "versions 1 to 2 are known"),
        ('{"schema_version": 1, "job": {"name": "x"}}', PlanError, "ranks: the key is missing"),
        ('{"schema_version": 1, "jop": {"name": "x"}, "ranks": []}', PlanError, "job: the key is missing|jop: unknown key"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(tmp_path, text, error, told):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(error, match=told):
        load_plan(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputFileError, match="no such file"):
        load_plan(tmp_path / "plan.json")


def test_a_damaged_embedded_graph_or_cluster_is_told_with_its_field(split_plan, tmp_path):
    with pytest.raises(GraphError, match=r"plan\.json: job\.graph\.forward_s"):
        _load(tmp_path, _with(_data(split_plan), ("job", "graph", "forward_s"), [1.0]))
    with pytest.raises((ConfigError, ClusterError), match=r"plan\.json: cluster\.data\.topology"):
        _load(tmp_path, _with(_data(split_plan), ("cluster", "data", "topology", "num_spines"), 0))


def test_figures_are_finite():
    with pytest.raises(ValueError, match="finite"):
        Figure(name="step_s", value=float("nan"), unit="s", provenance="estimated")


def test_a_plan_made_in_python_is_checked_on_request(split_plan):
    twice = split_plan.model_copy(update={"ranks": (*split_plan.ranks[:3], split_plan.ranks[2])})
    with pytest.raises(PlanError, match="rank 2: the rank stands twice"):
        check(twice)


def _data(plan: PlacementPlan) -> dict:
    return plan.model_dump(mode="json", exclude_none=True)


def _with(data: dict, path: tuple, value) -> dict:
    changed = copy.deepcopy(data)
    here = changed
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    return changed


def _load(tmp_path, data) -> PlacementPlan:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(data))
    return load_plan(path)
