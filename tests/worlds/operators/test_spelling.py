"""The flat spelling of benchmarks of operator placement, and devices in place of those of files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from meshwright.errors import ConfigError, GraphError
from meshwright.simulation.operators.instance_files import save
from meshwright.worlds.benchmark_files import kind_of
from meshwright.worlds.operators.benchmark import load_placement_benchmark

from ...planners.operators.instances import chain
from ...simulation.operators.published_samples import PUBLISHED, written

FLAT = """
name: flat
objective: latency
form: fair
order: upward-rank
instances:
  kind: layered
  num_ops: [20]
  width: 6
  parents: [1, 3]
  time_sigma: 1.0
  communication_to_computation: [1.0, 5.0]
  num_devices: [3]
  speed_spread: 0.5
  link_spread: 1.0
  memory_slack: 1.3
optimizer: adam
refine_steps: 0
num_seeds: 200
policies: [heft]
"""
NESTED = """
name: flat
placement:
  objective: latency
  form: fair
  instances: {kind: layered, num_ops: [20], width: 6, parents: [1, 3], time_sigma: 1.0}
  devices:
    communication_to_computation: [1.0, 5.0]
    num_devices: [3]
    speed_spread: 0.5
    link_spread: 1.0
    memory_slack: 1.3
num_seeds: 200
policies: [heft]
"""


def as_file(folder: Path, text: str) -> str:
    path = folder / "benchmark.yaml"
    path.write_text(text)
    return str(path)


def test_both_spellings_are_one_benchmark(tmp_path: Path) -> None:
    flat = load_placement_benchmark(as_file(tmp_path, FLAT))
    assert kind_of(as_file(tmp_path, FLAT)) == "placement"
    assert flat == load_placement_benchmark(as_file(tmp_path, NESTED))


def test_changes_go_with_both_spellings(tmp_path: Path) -> None:
    path = as_file(tmp_path, FLAT)
    for change in ("placement.devices.num_devices=[5]", "instances.num_devices=[5]"):
        assert load_placement_benchmark(path, changes=[change]).placement.devices.num_devices == (5,)
    for change in ("placement.instances.num_ops=[30]", "instances.num_ops=[30]"):
        drawn = load_placement_benchmark(path, changes=[change]).placement.model_dump()["instances"]
        assert (drawn["num_ops"], drawn["parents"]) == ((30,), (1, 3))
    for change in ("placement.form=independent", "form=independent"):
        assert not load_placement_benchmark(path, changes=[change]).placement.has_other_form


def test_an_optimizer_is_of_jobs(tmp_path: Path) -> None:
    path = as_file(tmp_path, FLAT)
    jobs = load_placement_benchmark(path, changes=["instances={kind: zoo, jobs: ['zoo:gnmt']}", "optimizer=sgd"])
    assert jobs.placement.model_dump()["instances"]["optimizer_bytes"] == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("objective=tasklets", "tasklets are another kind of benchmark, with the key tasklets"),
        ("optimizer=lamb", "optimizer: choose adam or sgd, is lamb"),
        ("instances={kind: zoo, jobs: ['zoo:gnmt'], optimizer: sgd}", "optimizer: is named here and in instances"),
        ("order=policy", "order: ops are placed by upward rank alone, as no other order was better; leave it out"),
        ("refine_steps=3", "refine_steps: placements are no longer refined step by step, as nothing was gained; leave it out"),
        ("instances.widht=3", "instances.widht: unknown key"),
        ("form=pipedream", "form: pipedream is no form of latency; choose independent or fair"),
        ("instances={kind: file, files: [a.json], devices: {number: 3}}", "instances.devices.number: unknown key"),
        ("instances={kind: file, files: [a.json], devices: {num: 0}}", "instances.devices.num: "),
    ],
)
def test_a_wrong_benchmark_is_refused_in_one_line(tmp_path: Path, change: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_placement_benchmark(as_file(tmp_path, FLAT), changes=[change])
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def of_files(folder: Path, devices: str, *files: str) -> str:
    return as_file(
        folder, f"name: f\nobjective: throughput\ninstances: {{kind: file, files: [{', '.join(files)}], devices: {devices}}}"
    )


def test_devices_take_the_place_of_those_of_a_file(tmp_path: Path) -> None:
    written(tmp_path / "one.json", PUBLISHED)
    placement = load_placement_benchmark(of_files(tmp_path, "{num: 6, memory_gb: 16}", "one.json")).placement
    result = placement.instance("test", 0)
    assert result.device_names == (*(f"accelerator{number}" for number in range(6)), "cpu0")
    assert result.memory_bytes.tolist() == [16e9] * 6 + [np.inf]
    assert (result.times_s[:, :6] == result.times_s[:, :1]).all()
    assert (result.bandwidth_bytes_per_s[~np.eye(7, dtype=bool)] == 1e9).all()
    assert placement.most() == (3, 7, 3)
    first = replace(chain(is_host=np.array([True, False])), device_names=("host", "mine"))
    save(first, tmp_path / "own.json")
    with_memory = load_placement_benchmark(of_files(tmp_path, "{memory_gb: 16}", "own.json")).placement.instance("test", 0)
    assert with_memory.device_names == ("host", "mine")  # the host is the first, and stays so
    assert with_memory.memory_bytes.tolist() == [first.memory_bytes[0], 16e9]
    same = load_placement_benchmark(of_files(tmp_path, "{}", "one.json")).placement.instance("test", 0)
    assert same.num_devices == 3


def test_devices_that_cannot_be_are_refused(tmp_path: Path) -> None:
    save(chain(memory_bytes=[1e9, 2e9]), tmp_path / "own.json")
    placement = load_placement_benchmark(of_files(tmp_path, "{num: 3}", "own.json")).placement
    with pytest.raises(GraphError, match=r"own.json: devices.num: only equal devices can have another number"):
        placement.instance("test", 0)
    written(tmp_path / "one.json", PUBLISHED, nodes__0__cpuLatency=30)
    placement = load_placement_benchmark(of_files(tmp_path, "{memory_gb: 1.0e-9}", "one.json")).placement
    result = placement.instance("test", 0)  # all on the host
    assert not result.can_run[:, :2].any()
