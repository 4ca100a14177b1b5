"""Constants of kernels that a user gives, wherever layouts are priced: estimates, searches, simulated steps, explanations."""

from importlib.resources import files

import pytest

from meshwright import estimate, search_layouts, settings
from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.kernels import kernel_settings
from meshwright.errors import ConfigError, PlanError
from meshwright.planning.explain import explain
from meshwright.simulation.cluster.scenario_settings import ScenarioSettings

CLUSTER, LAYOUT = "preset:host-8", "tp=2,dp=4,micro_batch=1,global_batch=32"
SEARCH = {"batch": 64, "sequence_length": 1024, "keep": "cp=1,ep=1,schedule=1f1b", "costs": CostSettings()}


@pytest.fixture(scope="module")
def slow(tmp_path_factory):
    """An A100 whose products reach half as much, known to 3 %."""
    text = (files("meshwright.configs") / "kernels" / "a100.yaml").read_text()
    assert "\nproduct_efficiency: 0.8162\n" in text
    text = text.replace("\nproduct_efficiency: 0.8162\n", "\nproduct_efficiency: 0.4081\n")
    path = tmp_path_factory.mktemp("kernels") / "slow.yaml"
    path.write_text(text.replace("\nuncertainty: 0.1\n", "\nuncertainty: 0.03\n"))
    return str(path)


@pytest.fixture(scope="module")
def searched(job):
    """The search with the constants of the device itself."""
    return search_layouts(job, CLUSTER, **SEARCH)


@pytest.fixture(scope="module")
def searched_slow(job, slow):
    return search_layouts(job, CLUSTER, **SEARCH | {"costs": CostSettings(kernels=slow)})


def test_an_estimate_takes_times_and_doubt_from_the_file(job, slow):
    plain = estimate(job, CLUSTER, LAYOUT)
    result = estimate(job, CLUSTER, LAYOUT, costs=CostSettings(kernels=slow))
    assert result.step.breakdown_s["compute"] > plain.step.breakdown_s["compute"]
    assert result.step.step_s > plain.step.step_s
    assert plain.to_data()["uncertainty"]["kernels"] == kernel_settings("a100").uncertainty == 0.1
    assert result.to_data()["uncertainty"]["kernels"] == 0.03
    parts = {part.name: part.uncertainty for part in result.parts()}
    assert parts["compute"] == parts["optimizer"] == 0.03


def test_what_is_explained_rests_on_the_file_too(job, slow):
    costs, layout = CostSettings(kernels=slow), "tp=2,dp=2,micro_batch=1,global_batch=2"
    result = estimate(job, CLUSTER, layout, costs=costs)
    figures = {one.name: one for one in explain(result, costs)}
    plain = {one.name: one for one in explain(estimate(job, CLUSTER, layout))}
    assert figures["overlap_tp=true"].base_s == result.step.step_s
    for name in ("overlap_tp=true", "priority=first-consumer", "collectives=joint"):
        assert figures[name].base_s > plain[name].base_s
        assert figures[name].step_s > plain[name].step_s
    assert result.simulated_s(costs) > result.simulated_s(CostSettings())
    assert result.simulated_s(costs) == figures["priority=first-consumer"].base_s


def test_a_search_ranks_by_the_file_as_an_estimate_prices_by_it(job, slow, searched, searched_slow):
    plain, result, costs = searched, searched_slow, CostSettings(kernels=slow)
    again = estimate(job, CLUSTER, result.best.layout, sequence_length=1024, costs=costs)
    assert result.best.step_s == pytest.approx(again.step.step_s, rel=1e-12)
    assert result.plan.figure("step_s").value == pytest.approx(again.step.step_s, rel=1e-12)
    assert result.plan.figure("step_s_uncertainty").value == pytest.approx(again.step.uncertainty, rel=1e-12)
    assert result.best.step_s > plain.best.step_s
    assert "slow.yaml" not in result.plan.model_dump_json()
    # no layout of the other ranking is better by this file than the one that was found
    for other in plain.searched.ranking:
        assert again.repriced_s(other.layout, costs) >= result.best.step_s * (1 - 1e-12)


@pytest.mark.parametrize(
    "price",
    [
        lambda costs: estimate("zoo:resnet18", CLUSTER, "dp=2,micro_batch=8,global_batch=64", costs=costs),
        lambda costs: search_layouts("zoo:resnet18", CLUSTER, costs=costs),
    ],
)
def test_a_job_of_which_nothing_would_read_them_is_refused(price):
    with pytest.raises(PlanError, match=r"^kernels: is read for transformers only.* \(got 'a100'\)$"):
        price(CostSettings(kernels="a100"))
    with pytest.raises(PlanError, match=r"^software: is read for transformers only.* \(got 'megatron-lm'\)$"):
        price(CostSettings(software="megatron-lm"))


def test_a_scenario_refuses_them():
    scenario = {"cluster": CLUSTER, "workload": "preset:quickstart", "num_jobs": 2}
    with pytest.raises(ConfigError, match=r"costs: kernels: is read where layouts of transformers are priced"):
        settings.build_settings(ScenarioSettings, scenario | {"costs": {"kernels": "a100"}})
    with pytest.raises(ConfigError, match=r"costs: software: is read where layouts of transformers are priced"):
        settings.build_settings(ScenarioSettings, scenario | {"costs": {"software": "megatron-lm"}})
    assert "kernels" not in settings.build_settings(ScenarioSettings, scenario).to_digest()["costs"]
