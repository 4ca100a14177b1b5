"""Several evaluations on one page."""

import json

import pytest

from meshwright import files
from meshwright.errors import InputFileError
from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.report import summary

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture(scope="module")
def results(small, scenario):
    return evaluate(small, num_seeds=3, scenario=scenario).results


def learned(results, name, shift, **scenario):
    """Results in which the policy ``max`` is learned, has another name and another blocking rate."""
    data = json.loads(json.dumps(results))
    data["scenario"] |= scenario
    for row in data["rows"]:
        if row["policy"] == "max":
            row |= {"policy": name, "kind": "learned"}
            row["per_seed"]["blocking_rate"] = [rate + shift for rate in row["per_seed"]["blocking_rate"]]
    return data


def write(path, data):
    path.parent.mkdir(exist_ok=True)
    files.write_json(path, data)


@pytest.fixture
def folder(results, tmp_path):
    write(tmp_path / "full" / "results.json", learned(results, "full", 0.0))
    write(tmp_path / "blind" / "results.json", learned(results, "blind", 0.04))
    for seed in (1000, 1001):
        rows = [{"steps": s, "validation_blocking_rate": seed / 1e4 - s / 100} for s in range(3)]
        write(tmp_path / f"seed-{seed}" / "learning_curve.json", rows)
        (tmp_path / f"seed-{seed}" / "config.yaml").write_text(f"name: seed-{seed}\nseed: {seed}\nbenchmark: small\n")
    return tmp_path


def test_an_ablation_is_the_paired_difference_from_the_full_policy(folder):
    (rows,) = summary.ablations(summary.read(folder), "full").values()
    assert [row[0] for row in rows] == ["full", "blind"]
    assert rows[0][2] == "-"
    assert rows[1][2] == "+4.0 [+4.0, +4.0] worse"


def test_policies_on_other_episodes_are_not_compared(folder, results):
    write(folder / "elsewhere" / "results.json", learned(results, "elsewhere", 0.0) | {"seeds": [7, 8, 9]})
    (rows,) = summary.ablations(summary.read(folder), "full").values()
    assert {row[0]: row[2] for row in rows}["elsewhere"] == "-"


def test_every_policy_stands_once_beside_every_benchmark(folder):
    benchmarks, rows = summary.by_benchmark(summary.read(folder))
    assert benchmarks == ["small"]
    assert sorted(row[0] for row in rows) == ["best-fixed", "blind", "full", "min", "random"]


def test_a_changed_benchmark_stands_once_for_each_folder(folder, results):
    write(folder / "slow" / "results.json", learned(results, "full", 0.0, mean_interarrival_s=1400.0, digest="another"))
    benchmarks, rows = summary.by_benchmark(summary.read(folder))
    assert benchmarks == ["small (blind)", "small (full)", "small (slow)"]
    assert {row[0]: row.count("-") for row in rows}["full"] == 1
    assert {row[0]: row.count("-") for row in rows}["min"] == 0


def test_loads_of_one_cluster_make_a_curve(folder, results):
    assert summary.loads(summary.read(folder)) == {}
    write(folder / "slow" / "results.json", learned(results, "full", 0.0, mean_interarrival_s=1400.0))
    (of,) = summary.loads(summary.read(folder)).values()
    assert [gap_s for gap_s, _ in of["full"]] == [700.0, 1400.0]
    assert "blind" not in of
    assert "Blocking rate against load" in summary.to_html(summary.read(folder))


def test_another_scenario_on_the_same_cluster_and_graphs_is_no_point_of_the_curve(folder, results):
    other = learned(results, "full", 0.0, mean_interarrival_s=1400.0, digest_but_arrivals="of another scenario")
    write(folder / "other" / "results.json", other)
    assert summary.loads(summary.read(folder)) == {}
    write(folder / "third" / "results.json", other | {"scenario": {**other["scenario"], "mean_interarrival_s": 2800.0}})
    write(folder / "slow" / "results.json", learned(results, "full", 0.0, mean_interarrival_s=1400.0))
    found = summary.loads(summary.read(folder))
    assert sorted([gap_s for gap_s, _ in of["full"]] for of in found.values()) == [[700.0, 1400.0], [1400.0, 2800.0]]
    assert all(title.startswith("host-8, alexnet, squeezenet (small)") for title in found)


def test_training_runs_that_differ_in_their_seed_stand_together(folder):
    found = summary.read(folder)
    ((_, runs),) = found.learning.items()
    assert list(runs) == ["seed-1000", "seed-1001"]
    page, text = summary.to_html(found, "full"), summary.to_markdown(found, "full")
    assert "mean of 2 runs" in page
    assert "| seed-1000 | 8.0 |" in text
    assert "<small>[+4.0, +4.0] worse</small>" in page
    assert "+4.0 [+4.0, +4.0] worse" in text


def test_a_run_with_another_config_stands_alone(folder):
    (folder / "seed-1001" / "config.yaml").write_text("name: x\nseed: 1001\nbenchmark: other\n")
    assert summary.read(folder).learning == {}


def test_an_empty_folder_and_results_of_another_format_are_refused(tmp_path, results):
    with pytest.raises(InputFileError, match="nothing below it"):
        summary.read(tmp_path)
    write(tmp_path / "old" / "results.json", results | {"format_version": 1})
    with pytest.raises(InputFileError, match="evaluate again"):
        summary.read(tmp_path)
