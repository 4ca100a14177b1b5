"""``meshwright list``: whatever is there is in a list, and nothing else."""

import json

import pytest

from meshwright.cli import run_command_line
from meshwright.cli.commands.list import LISTS, list_names
from meshwright.clusters.cluster import preset_names as clusters
from meshwright.devices import device_names
from meshwright.envs.registration import IDS
from meshwright.errors import ConfigError, MeshwrightError, Names
from meshwright.export import targets
from meshwright.jobs.workload import workload_names
from meshwright.jobs.zoo.catalogue import zoo_names
from meshwright.models.policy_files import shipped_folder
from meshwright.packaged import train_presets as training_configs
from meshwright.planners.fleet.rules import BASES
from meshwright.planners.menu.settings import JOB_TYPES
from meshwright.planners.operators.place import PLACEMENT_PLANNERS
from meshwright.plans.frameworks.table import FRAMEWORKS
from meshwright.worlds.benchmark_files import preset_names as benchmarks

PRESETS = {
    "benchmarks": {f"preset:{name}" for name in benchmarks()},
    "clusters": {f"preset:{name}" for name in clusters()},
    "jobs": {f"zoo:{name}" for name in zoo_names()},
    "workloads": {f"preset:{name}" for name in workload_names()},
    "job-types": set(JOB_TYPES.names()),
    "train": set(training_configs()),
}
OTHERS = {"environments": set(IDS), "frameworks": set(FRAMEWORKS), "formats": set(targets), "devices": set(device_names())}


@pytest.mark.parametrize(("what", "names"), [*PRESETS.items(), *OTHERS.items()])
def test_a_list_holds_what_its_registry_holds(what, names):
    result = list(LISTS[what]())
    assert {one.name for one in result} == names
    assert len(result) == len(names)
    assert all(one.description and "\n" not in one.description for one in result)


def test_the_presets_are_all_lists_of_them_and_are_json_too(capsys):
    assert run_command_line(["list", "presets", "--json", "-"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert {one["name"] for one in output} == set.union(*PRESETS.values())
    assert run_command_line(["list", "devices"]) == 0
    assert [line.partition(": ")[0] for line in capsys.readouterr().out.splitlines()] == list(device_names())


def test_every_shipped_policy_and_planner_is_listed():
    listed = list(LISTS["policies"]())
    names = [one.name for one in listed]
    shipped = {f"shipped:{path.name.split('.')[0]}" for path in shipped_folder().iterdir() if path.suffix in (".pt", ".json")}
    assert {name for name in names if name.startswith("shipped:")} == shipped
    assert set(PLACEMENT_PLANNERS) < set(names)
    assert len(names) == len(set(names))
    assert len({one.description for one in listed if one.name in BASES}) == len(BASES)


def test_an_error_that_cuts_a_list_names_the_command():
    names = Names("benchmarks", [f"name-{number}" for number in range(21)])
    assert str(MeshwrightError("unknown", choices=names)).endswith("... (all: meshwright list benchmarks)")
    assert "meshwright list" not in str(MeshwrightError("unknown", choices=names[:20]))
    with pytest.raises(ConfigError, match="no such list"):
        list_names("everything")
    with pytest.raises(ConfigError, match="WHAT: is missing; valid: benchmarks, clusters, devices, "):
        list_names()
