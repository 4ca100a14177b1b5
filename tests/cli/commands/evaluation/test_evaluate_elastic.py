"""``meshwright evaluate`` on a benchmark of published elastic workloads."""

import json

import numpy as np
import pytest

from meshwright.envs.benchmark import benchmark_names, load_benchmark
from meshwright.envs.benchmark_files import ELASTIC, kind_of, preset_names
from meshwright.envs.elastic.benchmark import load_elastic_benchmark
from meshwright.errors import ConfigError
from meshwright.evaluation.elastic.evaluate import evaluate_elastic
from meshwright.planners.elastic.saved_shares import SavedShares
from meshwright.planners.elastic.shortest_remaining import BY_HAND

from ....elastic_samples import write_folder, write_times

PRESET = "preset:elastic-published-1.0"
POLICIES = ("tiresias", "shortest-remaining")
SPANS_S = {"pollux": [500 + 100 * j for j in range(6)], "tiresias": [700] * 6}


@pytest.fixture
def options(work):
    """The benchmark on a small folder, by ``--set``."""
    folder = write_folder(work / "elastic")
    for name, spans in SPANS_S.items():
        write_times(folder, name, spans)
    changes = [f"elastic.data={folder}", "elastic.published=[pollux, tiresias]", "elastic.cluster.num_nodes=3", "policies=[]"]
    return ("--benchmark", PRESET, *(part for change in changes for part in ("--set", change)))


def saved(path, weights=BY_HAND):
    path.parent.mkdir(exist_ok=True)
    SavedShares("shortest-remaining", np.array(weights)).save(path)
    return path


def test_the_table_the_verdict_and_the_files_tell_the_same(meshwright, options, work):
    saved(work / "mine" / "policy.json")
    told = meshwright("evaluate", *POLICIES, "mine", *options, "--out", "out", "--json", "-")
    assert told.status == 0, told.err
    found = json.loads(told.out)
    assert found == json.loads((work / "out" / "results.json").read_text())
    rows = {row["policy"]: row for row in found["rows"]}
    assert {name: row["kind"] for name, row in rows.items()} == {
        **dict.fromkeys(POLICIES, "baseline"),
        "mine": "learned",
        "published:pollux": "published",
        "published:tiresias": "published",
    }
    # Stored: 500, 600, ... 1000 s and six times 700 s; of one workload no interval can be told.
    assert rows["published:pollux"]["mean_completion_s"] == {"mean": 750.0, "low": None, "high": None}
    assert rows["published:tiresias"]["against_published"]["mean"] == -50.0
    assert rows["published:tiresias"]["worst_against_published"] == pytest.approx(700 / 750 - 1)
    # The last job comes after 250 s and ends 1,000 s later.
    assert rows["published:pollux"]["makespan_s"]["mean"] == 1250.0
    # The file holds the weights by hand, so that both end alike.
    assert rows["mine"]["per_seed"] == rows["shortest-remaining"]["per_seed"]
    assert found["verdict"] in " ".join(told.err.split())
    page = (work / "out" / "results.md").read_text()
    assert found["verdict"] in page
    assert "| published:pollux | 750 |" in page


def test_bad_input_is_told_in_one_line(refused, options, work, monkeypatch):
    assert "did you mean 'tiresias'" in refused("evaluate", "tiresia", *options)
    assert "quickstart.pt: is no policy of elastic jobs" in refused("evaluate", "shipped:quickstart", *options)
    assert "--graphs: does not go with a benchmark of elastic jobs" in refused("evaluate", *POLICIES, *options, "--graphs", "g")
    assert "seeds: must be 1 to 1, the workloads of load-1.0 (got 2)" in refused("evaluate", *POLICIES, *options, "--seeds", "2")
    assert "load-0.5: no such folder" in refused("evaluate", *POLICIES, *options, "--set", "elastic.load=load-0.5")
    assert "against (optimus) must be one of published" in refused(
        "evaluate", *POLICIES, *options, "--set", "elastic.against=optimus"
    )
    assert "nothing to compare" in refused("evaluate", *options)
    assert "published/optimus-load-1.0.json: no such file" in refused(
        "evaluate", *POLICIES, *options, "--set", "elastic.published=[pollux, optimus]"
    )
    assert "nowhere: no such folder" in refused(
        "evaluate", "tiresias", "--benchmark", PRESET, "--set", "elastic.data=nowhere", "--set", "policies=[]"
    )
    monkeypatch.delenv("MESHWRIGHT_REFERENCE", raising=False)
    assert "elastic.data: name it, or the folder of published data in the environment variable MESHWRIGHT_REFERENCE" in refused(
        "evaluate", "tiresias", "--benchmark", PRESET
    )
    assert "benchmark of elastic jobs" in refused("train", "train.yaml", "--set", f"benchmark={PRESET}")


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
    chosen = load_elastic_benchmark("elastic-published-0.5", changes=["policies=[]"])
    found = evaluate_elastic(chosen, ["tiresias", "shipped:learned-shares"])
    rows = {row["policy"]: row for row in found["rows"]}
    means = {name: round(row["mean_completion_s"]["mean"]) for name, row in rows.items()}
    assert (means["published:pollux"], means["published:tiresias"], means["published:optimus"]) == (1534, 2091, 2395)
    assert rows["tiresias"]["per_seed"]["mean_completion_s"] == rows["published:tiresias"]["per_seed"]["mean_completion_s"]
    learned = rows["shipped:learned-shares"]
    assert learned["against_published"]["high"] < 0
    assert learned["worst_against_published"] < 0.05


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_processes(meshwright, options):
    told = [json.loads(meshwright("evaluate", *POLICIES, *options, "--jobs", jobs, "--json", "-").out) for jobs in ("1", "2")]
    assert told[0].pop("timing").keys() == told[1].pop("timing").keys()
    assert told[0] == told[1]
