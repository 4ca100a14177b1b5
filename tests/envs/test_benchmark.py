"""Benchmarks by name and by path."""

from pathlib import Path

import pytest

from meshwright.envs.benchmark import benchmark_names, load_benchmark
from meshwright.errors import ConfigError, InputFileError


@pytest.mark.parametrize("name", benchmark_names())
def test_every_shipped_benchmark_bears_the_name_of_its_file(name):
    assert load_benchmark(f"preset:{name}").name == name
    assert load_benchmark(name) == load_benchmark(f"preset:{name}")


def test_the_shipped_ones_include_the_quickstart_and_the_toy():
    assert {"quickstart", "toy"} <= set(benchmark_names())


def test_changes_override_keys():
    changed = load_benchmark("toy", changes=["scenario.num_jobs=7", "reward.blocked=-2"])
    assert (changed.scenario.num_jobs, changed.reward.blocked) == (7, -2.0)


def test_paths_refer_to_the_folder_of_the_benchmark(small_benchmark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert small_benchmark.build().cluster.num_devices == 8


def test_a_path_that_is_not_beside_the_benchmark_refers_to_the_current_folder(small_benchmark, tmp_path, monkeypatch):
    (tmp_path / "benchmarks").mkdir()
    text = "name: b\nscenario: {cluster: here.yaml, workload: preset:toy, num_jobs: 3}\n"
    (tmp_path / "benchmarks" / "b.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ConfigError, InputFileError), match=r"here\.yaml"):
        load_benchmark("benchmarks/b.yaml").build()
    (tmp_path / "here.yaml").write_text(Path(small_benchmark.scenario.cluster).read_text())
    assert load_benchmark("benchmarks/b.yaml").scenario.cluster == "here.yaml"
    assert load_benchmark("benchmarks/b.yaml").build().cluster.num_devices == 8


def test_a_folder_does_not_hide_a_shipped_benchmark_but_a_file_does(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy").mkdir()
    assert load_benchmark("toy").name == "toy"
    (tmp_path / "toy").rmdir()
    (tmp_path / "toy").write_text("name: mine\nscenario: {cluster: preset:toy, workload: preset:toy, num_jobs: 3}\n")
    assert load_benchmark("toy").name == "mine"
    assert load_benchmark("preset:toy").name == "toy"


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ("preset:quikstart", r"unknown benchmark \(got 'quikstart'\); did you mean 'quickstart'\?"),
        ("quikstart", r"no such benchmark and no such file \(got 'quikstart'\); did you mean 'preset:quickstart'\?"),
        ("absent/there.yaml", r"absent/there\.yaml: no such file"),
    ],
)
def test_an_unknown_benchmark_is_told_with_the_nearest(spec, told):
    with pytest.raises((ConfigError, InputFileError), match=told):
        load_benchmark(spec)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: x\nscenarioo: {}\n", r"b\.yaml:2: scenarioo: unknown key \(got 'scenarioo'\); did you mean 'scenario'\?"),
        ("name: x\n", "scenario: the key is missing"),
        ("name: x\nscenario: {cluster: c, workload: w, num_jobs: 5, num_warmup_jobs: 5}\n", r"must be less than num_jobs \(5\)"),
        ("name: x\nscenario: {cluster: c, workload: w, num_jobs: 5, placement_rules: [best-fitt]}\n", "did you mean 'best-fit'"),
        ("name: x\nscenario: {cluster: c, workload: w, num_jobs: 5, placement_rules: []}\n", "must name at least one rule"),
        ("name: x\nscenario: {cluster: c, workload: w, num_jobs: 5}\npolicies: [max, max]\n", "must name each policy once"),
        ("name: x\nscenario: {cluster: c, workload: w, num_jobs: 5}\nreward: {accepted: .nan}\n", r"reward\.accepted"),
        ("name: x\nscenario: {cluster: c, workload: w, num_jobs: 0}\n", r"scenario\.num_jobs"),
    ],
)
def test_a_wrong_benchmark_is_told_in_one_line(tmp_path, text, told):
    (tmp_path / "b.yaml").write_text(text)
    with pytest.raises(ConfigError, match=told) as caught:
        load_benchmark(str(tmp_path / "b.yaml"))
    assert "\n" not in str(caught.value)
