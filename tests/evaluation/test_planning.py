import dataclasses

import pytest

from meshwright.clusters import load_cluster
from meshwright.costs.model import CostSettings
from meshwright.errors import PlanError
from meshwright.evaluation.planning import plan
from meshwright.jobs import load_graph
from meshwright.plans.partition import uniform_splits
from meshwright.simulation.timeline import simulate


def test_the_chosen_candidate_is_the_one_that_the_plan_predicts():
    chosen = plan("zoo:alexnet", "preset:host-8", num_steps=1000)
    row = next(row for row in chosen.candidates if row["is_chosen"])
    assert chosen.plan.num_ranks == row["degree"]
    assert chosen.plan.figure("step_s").value == row["step_s"]
    assert chosen.plan.figure("completion_s").value == pytest.approx(1000 * row["step_s"])
    assert chosen.timeline().step_s == row["step_s"]


def test_fastest_is_chosen_without_a_deadline_and_cheapest_with_one():
    fastest = plan("zoo:vgg16", "preset:host-8")
    offered = [row for row in fastest.candidates if row["is_offered"]]
    assert fastest.plan.figure("completion_s").value == min(row["completion_s"] for row in offered)
    limit_s = 1.01 * sorted(row["completion_s"] for row in offered)[1]
    cheapest = plan("zoo:vgg16", "preset:host-8", deadline_s=limit_s)
    within = [row for row in offered if row["completion_s"] <= limit_s]
    assert cheapest.plan.num_ranks * cheapest.plan.figure("completion_s").value == min(row["device_seconds"] for row in within)


def test_the_reason_counts_one_rank_as_one():
    why = plan("zoo:alexnet", "preset:host-8", max_degree=1).plan.why
    assert why == "fastest-feasible chose 1 rank on block contiguous (first-fit) out of 1 candidate on the empty cluster"


@pytest.mark.parametrize("policy", [None, "fixed-8"])
def test_choices_of_the_cost_model_price_what_every_policy_sees(policy):
    costs = CostSettings(collectives="ring", overlap_slowdown=2.0)
    plain, priced = (plan("zoo:vgg16", "preset:host-8", policy_spec=policy, costs=one) for one in (None, costs))
    assert "priced with" not in plain.plan.why
    assert priced.plan.why.endswith("priced with collectives=ring overlap_slowdown=2.0")
    chosen = next(row for row in priced.candidates if row["is_chosen"])
    splits, devices = uniform_splits(load_graph("zoo:vgg16"), chosen["degree"]), priced.plan.placement().devices
    by_hand = simulate(load_graph("zoo:vgg16"), load_cluster("preset:host-8"), splits, devices, costs)
    assert chosen["step_s"] == pytest.approx(by_hand.step_s)
    others = {row["degree"]: row["step_s"] for row in plain.candidates}
    assert all(row["step_s"] > others[row["degree"]] for row in priced.candidates if row["degree"] > 1)


def test_times_that_name_no_device_are_said_to_be_taken_as_the_clusters(tmp_path):
    profile = load_graph("zoo:squeezenet")
    remark = "squeezenet does not say on which device its times hold, so they are taken as those of the cluster's a100"
    for source, device, is_told in (("measured", None, True), ("measured", "a100", False), ("estimated", None, False)):
        dataclasses.replace(profile, source=source, reference_device=device).save(tmp_path / "graph.json")
        why = plan(str(tmp_path / "graph.json"), "preset:host-8").plan.why
        assert (remark in why) is is_told


@pytest.mark.parametrize(
    ("policy", "cluster"),
    [
        ("quickstart", "dgx-a100-8x8"),
        ("clos-256-poisson", "clos-256-4to1"),  # sees when blocks become free, in slots that grow
        ("pacml-compat-A", "ramp-4x4x2"),  # knows every free block alone
    ],
)
def test_a_network_plans_with_what_it_wants_to_see(policy, cluster):
    assert plan("zoo:resnet18", f"preset:{cluster}", policy_spec=f"shipped:{policy}").plan.num_ranks >= 1


@pytest.mark.parametrize(
    ("job", "arguments", "words"),
    [
        ("zoo:llama-7b", {}, r"110\.897 GB.*80\.000 GB"),
        ("zoo:vgg16", {"deadline_s": 1.0}, "no candidate finishes in time; the fastest takes"),
        ("zoo:vgg16", {"deadline_s": float("nan")}, "finite and positive"),
        ("zoo:vgg16", {"num_steps": 0}, "must be 1 to"),
    ],
)
def test_an_impossible_wish_is_refused_with_the_numbers(job, arguments, words):
    with pytest.raises(PlanError, match=words):
        plan(job, "preset:host-8", **arguments)
