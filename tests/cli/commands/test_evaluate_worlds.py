"""``meshwright evaluate`` on a benchmark of each world."""

import json
import shutil

import gymnasium
import numpy as np
import pytest

from meshwright.envs.benchmark import benchmark_names, load_benchmark
from meshwright.errors import ConfigError, MeshwrightWarning
from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.worlds.registry import WORLDS
from meshwright.planners.elastic.saved_shares import SavedShares
from meshwright.planners.elastic.shortest_remaining import BY_HAND
from meshwright.worlds.benchmark_files import ELASTIC, kind_of, preset_names
from meshwright.worlds.elastic.benchmark import load_elastic_benchmark

from ...elastic_samples import write_folder, write_times
from ...fleet_samples import FAILURES, write_small_fleet

pytestmark = pytest.mark.usefixtures("undrawn")

PRESET = "preset:elastic-published-1.0"
SPANS_S = {"pollux": [500 + 100 * j for j in range(6)], "tiresias": [700] * 6}
POLICIES = {
    "cluster": ["max", "min"],
    "fleet": ["fifo", "fixed-2", "bound"],
    "elastic": ["tiresias", "shortest-remaining", "mine"],
    "operators": ["heft", "round-robin"],
    "tasklets": ["chain@0.01", "structured@0.01"],
}


@pytest.fixture
def benchmark(work):
    """By world, the options that name a small benchmark without policies of its own."""
    folder = write_folder(work / "elastic")
    for name, spans in SPANS_S.items():
        write_times(folder, name, spans)
    (work / "mine").mkdir()
    SavedShares("shortest-remaining", np.array(BY_HAND)).save(work / "mine" / "policy.json")
    changes = {
        "cluster": ("benchmark.yaml", []),
        "fleet": (write_small_fleet(work).name, []),
        "elastic": (PRESET, [f"elastic.data={folder}", "elastic.published=[pollux, tiresias]", "elastic.cluster.num_nodes=3"]),
        "operators": ("latency-tight", ["placement.instances.num_ops=[8]", "best_known_s=0.01"]),
        "tasklets": ("tasklets-64", ["tasklets.num_devices=[16]", "tasklets.num_stages=[4]", "best_known_s=0.01"]),
    }  # fmt: skip
    sets = {world: [part for change in (*of, "policies=[]") for part in ("--set", change)] for world, (_, of) in changes.items()}
    seeds = {world: ["--seeds", "1" if world == "elastic" else "2"] for world in changes}
    return {world: ["--benchmark", name, *sets[world], *seeds[world]] for world, (name, _) in changes.items()}


@pytest.mark.parametrize("world", [name for name in WORLDS if name != "world"])
def test_the_table_the_verdict_and_the_files_say_the_same(meshwright, benchmark, work, world):
    result = meshwright("evaluate", *POLICIES[world], *benchmark[world], "--out", "out", "--json", "-")
    assert result.status == 0, result.err
    data = json.loads(result.out)
    assert data == json.loads((work / "out" / "results.json").read_text())
    assert set(POLICIES[world]) <= {row["policy"] for row in data["rows"]}
    names = {path.name for path in (work / "out").iterdir()}
    assert names - {"plans", "episode.trace.json"} == {"results.json", "results.csv", "results.md", "report.html"}
    assert ("plans" in names) == (world == "cluster")
    printed = " ".join(result.err.split())
    markdown, page = ((work / "out" / name).read_text() for name in ("results.md", "report.html"))
    for words in (data["title"], data["verdict"]):
        assert words in printed
        assert words in page
    assert data["verdict"].split(" [")[0] in markdown
    if world != "elastic":
        assert meshwright("evaluate", "--summarise", "out", "--out", "page").status == 0
        assert data["title"] in (work / "page" / "summary.html").read_text()


def test_published_completion_times_are_rows_by_hand(meshwright, benchmark):
    result = meshwright("evaluate", *POLICIES["elastic"], *benchmark["elastic"], "--json", "-")
    rows = {row["policy"]: row for row in json.loads(result.out)["rows"]}
    assert {name: row["kind"] for name, row in rows.items()} == {
        **dict.fromkeys(("tiresias", "shortest-remaining"), "baseline"),
        "mine": "learned",
        "published:pollux": "published",
        "published:tiresias": "published",
    }
    # Stored: 500, 600, ... 1000 s and six times 700 s; one workload has no interval.
    published = rows["published:pollux"]
    assert published["metrics"]["mean_completion_s"] == {"mean": 750.0, "low": None, "high": None}
    against = rows["published:tiresias"]["against"]["published pollux"]
    assert against["mean"] == -50.0
    assert against["worst"] == pytest.approx(700 / 750 - 1)
    # The last job comes after 250 s and ends 1,000 s later.
    assert published["metrics"]["makespan_s"]["mean"] == 1250.0
    # The file holds the weights by hand, so that both end alike.
    assert rows["mine"]["per_case"] == rows["shortest-remaining"]["per_case"]


def test_hosts_that_fail_are_in_the_tables_and_drawn(meshwright, benchmark, work):
    changes = [word for change in FAILURES for word in ("--set", change)]
    assert meshwright("evaluate", "fifo", *benchmark["fleet"], *changes, "--out", "out").status == 0
    data = json.loads((work / "out" / "results.json").read_text())
    metrics = data["rows"][0]["metrics"]
    assert data["about"]["failures"] == {"mean_time_between_failures_h": 0.8, "repair_s": 400.0, "restart_s": None}
    assert 0 < metrics["failures_per_job"]["mean"] == metrics["restarts_per_job"]["mean"]
    assert 0 < metrics["devices_out"]["mean"] < 1
    assert "failures a job" in (work / "out" / "results.md").read_text()
    report = (work / "out" / "report.html").read_text()
    assert "Times of the counted jobs of 2 episodes:" in report
    assert "out of order, %" in report
    assert "Light grey: the host has failed" in report
    assert '"name":"host out of order"' in report


@pytest.mark.parametrize(
    ("world", "arguments", "said"),
    [
        ("fleet", ["sjff"], "did you mean 'sjf'"),
        ("fleet", ["linear-programme"], "POLICY: does not go with a benchmark of a fleet"),
        ("fleet", ["--set", "fleet.elastic={every_s: 60, storage_gbytes_per_s: 1}"], "restart_s: the key is missing"),
        ("fleet", ["--set", "fleet.objective=deadline_met_rate"], "wants jobs with deadlines"),
        ("fleet", ["--set", "fleet.failures.repair_s=soon"], "failures.repair_s"),
        ("fleet", ["--set", "fleet.menu.degrees=[16]"], "small has 8 devices"),
        ("elastic", ["tiresia"], "did you mean 'tiresias'"),
        ("elastic", ["shipped:quickstart"], "quickstart.pt: is no policy of elastic jobs"),
        ("elastic", ["tiresias", "--graphs", "g"], "--graphs: does not go with a benchmark of elastic jobs"),
        ("elastic", ["tiresias", "--seeds", "2"], "seeds: must be 1 to 1 (got 2)"),
        ("elastic", ["tiresias", "--set", "elastic.load=load-0.5"], "load-0.5: no such folder"),
        ("elastic", ["tiresias", "--set", "elastic.against=optimus"], "against (optimus) must be one of published"),
        ("elastic", ["tiresias", "--set", "elastic.published=[pollux, optimus]"], "optimus-load-1.0.json: no such file"),
        ("elastic", ["tiresias", "--set", "elastic.data=nowhere"], "nowhere: no such folder"),
        ("operators", ["heft", "--jobs", "2"], "--jobs: does not go with a benchmark of operator placement"),
        ("tasklets", ["chain", "--show", "0"], "--show: does not go with a benchmark of tasklets"),
        *((world, [], "nothing to compare") for world in WORLDS if world != "world"),
    ],
)
def test_bad_input_is_refused_in_one_line(refused, benchmark, world, arguments, said):
    assert said in refused("evaluate", *benchmark[world], *arguments)


def test_what_is_of_another_kind_is_refused(refused, benchmark, work):
    assert "unknown benchmark (got 'llm-265')" in refused("evaluate", "--benchmark", "preset:llm-265")
    assert "benchmark of a fleet" in refused("train", "train.yaml", "--set", f"benchmark={benchmark['fleet'][1]}")
    assert "benchmark of elastic jobs" in refused("train", "train.yaml", "--set", f"benchmark={PRESET}")


def test_elastic_jobs_are_modelled_without_measurements_and_the_output_says_so(meshwright, work, monkeypatch):
    monkeypatch.delenv("MESHWRIGHT_REFERENCE", raising=False)
    changes = ("--set", "policies=[]", "--set", "elastic.num_jobs=3")
    with pytest.warns(MeshwrightWarning, match="are modelled"):
        gymnasium.make("meshwright/ElasticJobs-v0", changes=["elastic.num_jobs=3"]).reset(seed=0)
    loads = [load_elastic_benchmark(name).elastic.num_jobs for name in preset_names(ELASTIC)]
    assert loads == [80, 160], "half the load is half the jobs, in the same eight hours"
    done = meshwright("evaluate", "tiresias", "optimus", "--benchmark", PRESET, *changes, "--seeds", "2", "--json", "-")
    assert done.status == 0, done.err
    data = json.loads(done.out)
    assert [row["kind"] for row in data["rows"]] == ["baseline", "baseline"]
    assert data["title"] == "elastic-published-1.0: 64 devices, 2 workloads of 3 modelled jobs"
    assert any("elastic.data=DIR" in remark for remark in data["remarks"])


def test_no_stored_times_are_read_where_no_scheduler_is_named_or_none_are_stored(meshwright, benchmark, work):
    for remove, named, remarks in ((list, "[]", 0), (lambda: shutil.rmtree(work / "elastic" / "published"), "[pollux]", 1)):
        remove()
        done = meshwright("evaluate", "tiresias", *benchmark["elastic"], "--set", f"elastic.published={named}", "--json", "-")
        data = json.loads(done.out)
        assert [row["policy"] for row in data["rows"]] == ["tiresias"]
        assert sum("there is no folder" in remark for remark in data["remarks"]) == remarks


@pytest.mark.parametrize("name", preset_names(ELASTIC))
def test_a_shipped_benchmark_bears_the_name_of_its_file_and_is_of_one_kind(name):
    assert load_elastic_benchmark(name).name == name
    assert kind_of(name) == ELASTIC
    assert name not in benchmark_names()
    with pytest.raises(ConfigError, match="is a benchmark of elastic jobs"):
        load_benchmark(name)
    with pytest.raises(ConfigError, match="is no benchmark of elastic jobs"):
        load_elastic_benchmark("preset:llm-256")


@pytest.mark.reference
def test_published_rows_hold_the_published_means_and_what_was_learned_is_faster(reference, monkeypatch):
    monkeypatch.setenv("MESHWRIGHT_REFERENCE", str(reference))
    choice = load_elastic_benchmark("elastic-published-0.5", changes=["policies=[]"])
    results = evaluate(choice, ["tiresias", "shipped:learned-shares"]).results
    rows = {row["policy"]: row for row in results["rows"]}
    means = {name: round(row["metrics"]["mean_completion_s"]["mean"]) for name, row in rows.items()}
    assert (means["published:pollux"], means["published:tiresias"], means["published:optimus"]) == (1534, 2091, 2395)
    assert rows["tiresias"]["per_case"]["mean_completion_s"] == rows["published:tiresias"]["per_case"]["mean_completion_s"]
    against = rows["shipped:learned-shares"]["against"]["published pollux"]
    assert against["high"] < 0
    assert against["worst"] < 0.05
