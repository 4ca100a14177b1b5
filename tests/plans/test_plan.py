"""Plans built from parts, kept as JSON, read back, and refused by name where they are wrong."""

import copy
import dataclasses
import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from meshwright.errors import InputFileError, PlanError
from meshwright.files import json_text
from meshwright.jobs.job import Job
from meshwright.plans import Figure, Layout, OpSplits, PlacementPlan, layout_plan, load_plan, op_split_plan, place
from meshwright.plans.schema import json_schema, published_text
from meshwright.plans.versions import SCHEMA_VERSION, known_versions


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
    with pytest.raises(PlanError, match=r"rank 0: needs 360\.000 GB, device gpu-07/0 has 85\.201 GB"):
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


@pytest.fixture(scope="module")
def published_schema():
    """A validator of plans by the published schema, which is a valid schema itself."""
    schema = json.loads(published_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_published_schema_is_that_of_the_models():
    assert published_text() == json_text(json_schema()) + "\n"


@pytest.mark.parametrize("name", ["split_plan", "grid_plan"])
def test_the_published_schema_accepts_a_saved_plan(published_schema, name, request):
    published_schema.validate(_data(request.getfixturevalue(name)))


BROKEN = [
    (("schema_version",), 4, "schema_version"),
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


@pytest.mark.parametrize(("path", "value", "message"), BROKEN)
def test_a_broken_plan_is_refused_by_loader_and_schema(published_schema, split_plan, tmp_path, path, value, message):
    data = _with(_data(split_plan), path, value)
    with pytest.raises(PlanError, match=message) as caught:
        _load(tmp_path, data)
    assert "plan.json" in str(caught.value)
    with pytest.raises(jsonschema.ValidationError):
        published_schema.validate(data)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("[]", InputFileError, "a plan is a JSON object"),
        ("{", InputFileError, "not valid JSON"),
        ("{}", PlanError, "schema_version: the key is missing"),
        ('{"schema_version": 7}', PlanError, r"versions 1 to 3 are known \(got 7\)"),
        ('{"schema_version": true}', PlanError, "versions 1 to 3 are known"),
        ('{"schema_version": 1, "job": {"name": "x"}}', PlanError, "ranks: the key is missing"),
        ('{"schema_version": 1, "jop": {"name": "x"}, "ranks": []}', PlanError, "job: the key is missing|jop: unknown key"),
    ],
)
def test_a_file_that_is_no_plan_is_refused(tmp_path, text, error, message):
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(error, match=message):
        load_plan(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputFileError, match="no such file"):
        load_plan(tmp_path / "plan.json")


def test_figures_are_finite():
    with pytest.raises(ValueError, match="finite"):
        Figure(name="step_s", value=float("nan"), unit="s", provenance="estimated")


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
