"""The networks that come with the package: the conditions that they know."""

from pathlib import Path

import pytest

from meshwright.clusters import load_cluster
from meshwright.envs.fleet.benchmark import load_fleet_benchmark
from meshwright.envs.training_conditions import KEY, TrainingConditions, read_conditions
from meshwright.models.fleet.saved import SavedFleetNetwork
from meshwright.models.saved import SavedNetwork
from meshwright.planning.policies import fleet_policy_file, shipped_fleet_names

FOLDER = Path(__file__).parents[2] / "models" / "shipped"


def test_what_the_quickstart_network_knows_is_what_its_benchmark_is(quickstart):
    trained = SavedNetwork.load(FOLDER / "quickstart.pt").trained
    assert read_conditions(trained[KEY], "quickstart") == (TrainingConditions.from_scenario("quickstart", quickstart),)


@pytest.mark.parametrize("name", shipped_fleet_names())
def test_a_shipped_network_of_a_fleet_knows_its_benchmark_and_reads_by_messages(name):
    saved = SavedFleetNetwork.load(fleet_policy_file(f"shipped:{name}"))
    benchmark = load_fleet_benchmark(saved.trained["benchmark"])
    of_several = saved.trained["ground"].get("mixed", [])
    assert bool(of_several) == saved.settings.relative
    if not of_several:
        assert saved.trained["benchmark"] == f"preset:{name.removesuffix('-prices')}"
    assert saved.settings.prices == (name != benchmark.name or benchmark.fleet.elastic is not None)
    assert saved.trained["changes"] == []
    assert saved.trained["candidate_features"] == benchmark.fleet.candidate_features
    assert saved.trained["ground"]["cluster_digest"] == load_cluster(benchmark.fleet.cluster).digest
    unseen = {load_fleet_benchmark(f"preset:{one}").fleet.cluster for one in ("llm-1024", "rail-512", "torus-256")}
    assert not {one["cluster_digest"] for one in of_several} & {load_cluster(one).digest for one in unseen}
    assert saved.settings.messages
    assert f"`{name}.fleet.pt`" in (FOLDER / "README.md").read_text()
