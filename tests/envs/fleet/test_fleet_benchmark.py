"""Benchmarks of fleets by name and by path, next to those of scenarios."""

import re
from importlib.resources import files as resources
from pathlib import Path

import pytest

from meshwright.envs.benchmark import benchmark_names, load_benchmark
from meshwright.envs.fleet.benchmark import load_fleet_benchmark
from meshwright.errors import ConfigError, MeshwrightError
from meshwright.jobs.load import load_graph
from meshwright.packaged import config_path
from meshwright.training.methods import load_config
from meshwright.worlds.benchmark_files import ELASTIC as ELASTIC_JOBS
from meshwright.worlds.benchmark_files import FLEET, PLACEMENT, TASKLETS, kind_of, preset_names

from ...fleet_samples import BENCHMARK, ELASTIC


@pytest.mark.parametrize("name", preset_names(FLEET))
def test_every_shipped_benchmark_bears_the_name_of_its_file_and_is_of_one_kind(name):
    assert load_fleet_benchmark(f"preset:{name}").name == name
    assert kind_of(name) == FLEET
    assert name not in benchmark_names()
    with pytest.raises(ConfigError, match="benchmark of a fleet, which `meshwright evaluate`"):
        load_benchmark(f"preset:{name}")


@pytest.mark.parametrize("kind", [FLEET, ELASTIC_JOBS, PLACEMENT, TASKLETS])
def test_whoever_takes_another_kind_for_a_scenario_is_told_what_trains_on_it(kind):
    with pytest.raises(ConfigError) as error:
        load_benchmark(f"preset:{preset_names(kind)[0]}")
    method, config = re.search("`method: (.*)`, as (preset:.*) has it, trains on it", error.value.problem).groups()
    assert load_config(config_path(config)).method == method


def test_a_benchmark_of_a_scenario_is_none_of_a_fleet():
    assert kind_of("preset:quickstart") != FLEET
    with pytest.raises(ConfigError, match="is no benchmark of a fleet"):
        load_fleet_benchmark("preset:quickstart")


def test_changes_are_applied_and_paths_start_at_the_file(small_file):
    result = load_fleet_benchmark(str(small_file), changes=["fleet.load=0.5", "num_seeds=7"])
    assert (result.fleet.load, result.num_seeds) == (0.5, 7)
    assert result.fleet.cluster == str(small_file.parent / "fleet-cluster.yaml")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("fleet.objective=deadline_met_rate", "wants jobs with deadlines"),
        ("fleet.objective=blocking_rate", "with a queue and no deadlines"),
        ("fleet.elastic={every_s: 60, storage_gbytes_per_s: 1}", "fleet.elastic.restart_s: the key is missing"),
        ("fleet.elastic={every_s: 60, restart_s: 1, storage_gbytes_per_s: 1, storage_of: host}", "fleet.elastic.storage_of: "),
        ("fleet.menu.degrees=[1, 2, 4, 16]", "small has 8 devices (got 16)"),
        ("fleet.requested={8: 1}", "no entry of the menu has so many devices"),
        ("fleet.num_warmup_jobs=15", "must be less than num_jobs (16)"),
        ("fleet.placements=[packd]", "did you mean 'packed'"),
        ("fleet.failures.mean_time_between_failures_h=0", "failures.mean_time_between_failures_h: "),
        ("fleet.failures.repair_s=-1", "failures.repair_s: "),
        ("fleet.failures.checkpoint_every_s=60", "failures.checkpoint_every_s: "),
        ("fleet.failures.mean_time_between_failures_h=0.1", "give at least 0.4"),
    ],
)
def test_what_cannot_be_is_told_by_its_key(small_file, change, message):
    with pytest.raises(MeshwrightError) as error:
        load_fleet_benchmark(str(small_file), changes=[change]).build()
    assert message in str(error.value)


def test_paths_in_a_benchmark_start_at_its_own_folder_wherever_it_is_read(small_file, tmp_path, monkeypatch):
    load_graph("zoo:alexnet", batch_size=64).save(small_file.parent / "own.json")
    kernels = (Path(str(resources("meshwright.configs"))) / "kernels" / "a100.yaml").read_text()
    (small_file.parent / "own-kernels.yaml").write_text(kernels)
    text = BENCHMARK.replace("zoo:alexnet", "own.json").replace("  menu:", "  costs: {kernels: own-kernels.yaml}\n  menu:")
    (small_file.parent / "own.yaml").write_text(text)
    monkeypatch.chdir("/")
    result = load_fleet_benchmark(str(small_file.parent / "own.yaml"))
    assert [job_type.job for job_type in result.fleet.job_types] == [str(small_file.parent / "own.json"), "zoo:resnet18"]
    assert result.fleet.costs.kernels == str(small_file.parent / "own-kernels.yaml")
    assert result.build().problem.degrees.tolist() == [1, 2, 4]


@pytest.fixture
def without_menu(small_file):
    """One type of the small benchmark, whose cluster has eight devices, without a word about its menu."""
    path = small_file.parent / "without-menu.yaml"
    path.write_text("".join(line for line in BENCHMARK.splitlines(keepends=True) if not re.search("menu:|large", line)))
    return path


def test_numbers_of_devices_that_nobody_wrote_stop_at_the_cluster(without_menu):
    assert load_fleet_benchmark(str(without_menu)).build().problem.degrees.tolist() == [1, 2, 4, 8]


def test_numbers_of_devices_that_somebody_wrote_are_refused_at_their_line_or_option(small_file, without_menu):
    written = small_file.parent / "written.yaml"
    written.write_text(BENCHMARK.replace("degrees: [1, 2, 4]", "degrees: [1, 16]"))
    line = next(number for number, text in enumerate(BENCHMARK.splitlines(), 1) if "menu:" in text)
    for path, changes, place in ((written, [], f"{written}:{line}"), (without_menu, ["fleet.menu.degrees=[16]"], "--set")):
        with pytest.raises(ConfigError) as error:
            load_fleet_benchmark(str(path), changes=changes).build()
        assert str(error.value) == f"{place}: fleet.menu.degrees: small has 8 devices (got 16)"


def test_a_restart_has_one_price(small_file):
    with pytest.raises(ConfigError, match="failures: restart_s: with elastic a restart costs what that says; leave it out"):
        load_fleet_benchmark(str(small_file), changes=[*ELASTIC, "fleet.failures.restart_s=30"])
    failing = "fleet.failures.mean_time_between_failures_h=100"
    for changes, restart_s in (([], 300.0), (["fleet.failures.restart_s=30"], 30.0), (ELASTIC, 5.0)):
        assert load_fleet_benchmark(str(small_file), changes=[*changes, failing]).build().problem.restart_s == restart_s


def test_the_storage_of_hosts_is_another_fleet_only_where_it_is_asked_for(small_file):
    plain, said, hosts = (
        load_fleet_benchmark(str(small_file), changes=[*ELASTIC, *changes]).build()
        for changes in ([], ["fleet.elastic.storage_of=job"], ["fleet.elastic.storage_of=hosts"])
    )
    assert [fleet.problem.stores_by_host for fleet in (plain, said, hosts)] == [False, False, True]
    assert plain.digest == said.digest != hosts.digest


def test_only_failures_that_are_on_change_the_digest(small_file):
    def digest(*changes):
        return load_fleet_benchmark(str(small_file), changes=changes).build().digest

    failing = "fleet.failures.mean_time_between_failures_h=100"
    assert digest() == digest("fleet.failures.repair_s=7")
    assert len({digest(), digest(failing), digest(failing, "fleet.failures.repair_s=7")}) == 3


def test_devices_that_no_job_can_use_are_refused(tmp_path, small_file):
    (tmp_path / "fleet-cluster.yaml").write_text((small_file.parent / "fleet-cluster.yaml").read_text())
    (tmp_path / "odd.yaml").write_text(BENCHMARK.replace("global_batch: 64", "global_batch: 1"))
    with pytest.raises(MeshwrightError, match=r"menu\.degrees: no layout of small, large fits so many devices"):
        load_fleet_benchmark(str(tmp_path / "odd.yaml")).build()
