import dataclasses
import json
import math

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.costs.settings import CostSettings
from meshwright.errors import PlanError
from meshwright.jobs import load_graph
from meshwright.planning.menu_plan import MenuPlanner
from meshwright.planning.plan import plan
from meshwright.plans.splitting.op_splits import uniform_splits
from meshwright.simulation.step.timeline import simulate

from ..draws import draws
from ..samples.sample_clusters import clos
from ..samples.sample_graphs import profile


def test_the_chosen_candidate_is_the_one_that_the_plan_predicts():
    choice = plan("zoo:alexnet", "preset:host-8", num_steps=1000)
    row = next(row for row in choice.candidates if row["is_chosen"])
    assert choice.plan.num_ranks == row["degree"]
    assert choice.plan.figure("step_s").value == row["step_s"]
    assert choice.plan.figure("completion_s").value == pytest.approx(1000 * row["step_s"])
    assert choice.timeline().step_s == row["step_s"]


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


@pytest.mark.parametrize(("share", "is_tight"), [(0.03, True), (0.07, False)])
def test_a_plan_whose_memory_is_a_tight_fit_says_so(tmp_path, share, is_tight):
    def on_memory_of(held_bytes):
        device = {"name": "a100-mine", "memory_gib": held_bytes * (1 + share) / 2**30}
        (tmp_path / "c.yaml").write_text(json.dumps(load_cluster("preset:host-8").to_data() | {"device": device}))
        return str(tmp_path / "c.yaml")

    held_bytes = plan("zoo:alexnet", "preset:host-8", max_degree=1).plan.figure("memory_bytes").value
    assert ("memory is tight: " in plan("zoo:alexnet", on_memory_of(held_bytes), max_degree=1).plan.why) is is_tight
    expected = {"policy": "menu:fastest-feasible", "batch": 64, "devices": 1}
    (row,) = MenuPlanner.from_job("zoo:alexnet", "preset:host-8", **expected).plan(9).rows
    result = MenuPlanner.from_job("zoo:alexnet", on_memory_of(row.memory_bytes), **expected).plan(9)
    assert [("memory is tight: " in result.plan.why), bool(result.rows[0].tight)] == [is_tight, is_tight]


@pytest.mark.parametrize("policy", [None, "fixed-8"])
def test_choices_of_the_cost_model_price_what_every_policy_sees(policy):
    costs = CostSettings(collectives="ring", overlap_slowdown=2.0)
    plain, priced = (plan("zoo:vgg16", "preset:host-8", policy_spec=policy, costs=one) for one in (None, costs))
    assert "priced with" not in plain.plan.why
    assert priced.plan.why.endswith("priced with collectives=ring overlap_slowdown=2.0")
    choice = next(row for row in priced.candidates if row["is_chosen"])
    splits, devices = uniform_splits(load_graph("zoo:vgg16"), choice["degree"]), priced.plan.placement().devices
    by_hand = simulate(load_graph("zoo:vgg16"), load_cluster("preset:host-8"), splits, devices, costs)
    assert choice["step_s"] == pytest.approx(by_hand.step_s)
    others = {row["degree"]: row["step_s"] for row in plain.candidates}
    assert all(row["step_s"] > others[row["degree"]] for row in priced.candidates if row["degree"] > 1)


def test_times_that_name_no_device_are_said_to_be_taken_as_the_clusters(tmp_path):
    profile = load_graph("zoo:squeezenet")
    remark = "squeezenet does not say on which device its times hold, so they are taken as those of the cluster's a100"
    for source, device, is_told in (("measured", None, True), ("measured", "a100", False), ("estimated", None, False)):
        dataclasses.replace(profile, source=source, reference_device=device).save(tmp_path / "graph.json")
        why = plan(str(tmp_path / "graph.json"), "preset:host-8").plan.why
        assert (remark in why) is is_told


# --- a network off its ground ---


def test_a_network_that_plans_off_its_ground_says_what_is_other():
    off = plan("zoo:resnet18", "preset:clos-64-4to1", policy_spec="shipped:quickstart", num_steps=200_000).plan.why
    assert off.endswith(
        "; shipped:quickstart was neither trained nor evaluated on clos-64-4to1, a clos of 64 a100 (known: ramp-4x4x2, a ramp of "
        "32 a100); job resnet18 (known: vgg16, resnet50, bert-large, gpt2-small, gnmt); jobs without deadlines"
    )
    own = {"num_steps": 100_000, "deadline_s": 4000.0}  # 9,600 s of work on one device, and 0.4 of that
    assert "neither" not in plan("zoo:gpt2-small", "preset:ramp-4x4x2", policy_spec="shipped:quickstart", **own).plan.why


# --- no plan is beaten by another candidate ---

# Four devices in each of two hosts; between hosts a step's gradients take far longer than within one.
TWO_HOSTS = clos(2, 4, 1, inside=(300, 2), cards=4, card=(1, 1))


def written(folder, topology, forward_s, parameter_bytes):
    """A chain of ops and a cluster as files."""
    edges = [(i, i + 1) for i in range(len(forward_s) - 1)]
    backward_s = [2 * time_s for time_s in forward_s]
    profile("job", forward_s, backward_s, edges, parameter_bytes=parameter_bytes, reference_device="a100").save(
        folder / "job.json"
    )
    (folder / "cluster.yaml").write_text(json.dumps({"name": "cluster", "device": "a100", "topology": topology}))
    return str(folder / "job.json"), str(folder / "cluster.yaml")


@pytest.mark.parametrize("policy", ["max", "fixed-8"])
def test_a_choice_that_is_beaten_in_time_and_devices_is_replaced_and_the_plan_says_so(policy, tmp_path):
    # Eight ranks on two hosts wait for their gradients, four on one host hardly do.
    job, cluster = written(tmp_path, TWO_HOSTS, [0.01, 0.01], [1e9, 1e9])
    result = plan(job, cluster, policy_spec=policy)
    of_degree = {row["degree"]: row for row in result.candidates}
    assert of_degree[8]["completion_s"] > of_degree[4]["completion_s"]
    assert result.plan.num_ranks == 4
    assert result.plan.figure("completion_s").value == of_degree[4]["completion_s"]
    assert f"{policy} chose 8 ranks on block " in result.plan.why
    assert "; replaced by 4 ranks on block one-host (first-fit), which beats it: " in result.plan.why
    assert f"{of_degree[4]['completion_s']:.6g} s on 4 devices against " in result.plan.why


POLICIES = st.sampled_from(["random", "max", "min@fastest", "fixed-2", "max@aligned", "acceptable-jct@best-fit"])


@draws(7, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    policy=POLICIES | st.integers(0, 40).map(lambda number: f"python:any_candidate:Number{number}"),
    hosts=st.tuples(st.integers(1, 3), st.integers(2, 4)),
    gbytes_per_s=st.tuples(st.sampled_from([16, 64, 300]), st.sampled_from([0.5, 2, 50])),
    ops=st.lists(st.tuples(st.floats(1e-3, 0.1), st.floats(1e6, 2e9)), min_size=1, max_size=4),
    tightness=st.none() | st.floats(1.0, 4.0),
)
def test_no_plan_is_beaten_in_time_and_devices_whoever_chose_it(
    tmp_path, monkeypatch, policy, hosts, gbytes_per_s, ops, tightness
):
    (tmp_path / "any_candidate.py").write_text(
        "class Number:\n"
        "    def __init__(self, number): self.number, self.name = number, 'number'\n"
        "    def reset(self, seed): pass\n"
        "    def choose(self, decision, observation):\n"
        "        legal = decision.can_place[1:].nonzero()[0] + 1\n"
        "        return int(legal[self.number % len(legal)]) if len(legal) else 0\n"
        + "".join(f"def Number{number}(scenario): return Number({number})\n" for number in range(41))
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    within, between = gbytes_per_s
    topology = TWO_HOSTS | {"num_hosts": hosts[0], "devices_per_host": hosts[1], "nics_per_host": 1}
    topology |= {"intra_host_bandwidth_gbytes_per_s": within, "nic_bandwidth_gbytes_per_s": between}
    forward_s, parameter_bytes = (list(figures) for figures in zip(*ops, strict=True))
    job, cluster = written(tmp_path, topology, forward_s, parameter_bytes)
    deadline_s = None
    if tightness is not None:
        deadline_s = tightness * plan(job, cluster, num_steps=100).plan.figure("completion_s").value
    try:
        result = plan(job, cluster, policy_spec=policy, num_steps=100, deadline_s=deadline_s)
    except PlanError as error:  # a rule whose own candidates are all too slow turns the job away
        if deadline_s is None or "turns this job away" not in str(error):
            raise
        return
    (choice,) = (row for row in result.candidates if row["is_chosen"])
    assert choice["is_offered"]
    assert result.plan.num_ranks == choice["degree"]
    assert result.plan.figure("completion_s").value == pytest.approx(choice["completion_s"])
    assert choice["completion_s"] <= (math.inf if deadline_s is None else deadline_s * (1 + 1e-12))
    for row in result.candidates:
        if row["is_offered"]:
            figures = (row["completion_s"], row["degree"])
            is_no_worse = figures[0] <= choice["completion_s"] and figures[1] <= choice["degree"]
            assert not is_no_worse or figures == (choice["completion_s"], choice["degree"])


@pytest.mark.parametrize(
    ("job", "arguments", "words"),
    [
        ("zoo:llama-7b", {}, r"110\.897 GB.*85\.201 GB"),
        ("zoo:vgg16", {"deadline_s": 1.0}, "no candidate finishes in time; the fastest takes"),
        ("zoo:vgg16", {"deadline_s": float("nan")}, "finite and positive"),
        ("zoo:vgg16", {"num_steps": 0}, "must be 1 to"),
    ],
)
def test_an_impossible_wish_is_refused_with_the_numbers(job, arguments, words):
    with pytest.raises(PlanError, match=words):
        plan(job, "preset:host-8", **arguments)
