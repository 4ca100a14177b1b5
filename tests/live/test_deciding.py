"""Who is ready, what a job's planner hangs on, and what a decision says: by hand, on three hosts of four devices."""

import json
from datetime import UTC, datetime

import numpy as np
import pytest

from meshwright.clusters.cluster import Cluster, load_cluster
from meshwright.devices import DeviceSettings, device_type
from meshwright.errors import InputFileError, MeshwrightError, PlanError
from meshwright.jobs.load import load_graph
from meshwright.live import deciding
from meshwright.live.deciding import Planners
from meshwright.live.decisions import DecisionInputs, JobRequest, ObservedFactor, free_runs
from meshwright.planning.search import search_layouts

ALEXNET, BERT = JobRequest(job="zoo:alexnet", max_devices=2), JobRequest(job="zoo:bert-base", max_devices=2)


def inputs(planners, request, busy=(), **more):
    free_s = np.zeros(planners.cluster.num_devices)
    free_s[list(busy)] = np.inf
    options = {"policy": planners.policy, "digest": planners.digest(request), "seq": 0, "now": datetime(2026, 3, 1, tzinfo=UTC)}
    return DecisionInputs(request=request, **(options | {"free": free_runs(free_s)} | more))


@pytest.fixture(scope="module")
def by_menu(cluster, tmp_path_factory):
    folder = tmp_path_factory.mktemp("menu")
    return Planners(cluster, "menu:fastest-feasible", scratch=folder, cache=folder)


def test_a_planner_hangs_on_these_keys_of_a_request_alone(planners, by_menu):
    brought = {"model_type": "gpt2", "n_layer": 2}
    base = JobRequest(job=brought, name="a", steps=5)
    #                   by ops, from a menu: whether the planner is another one
    for changed, apart in (
        ({"steps": 6}, (False, False)),
        ({"owner": "me"}, (False, False)),
        ({"deadline_s": 9.0}, (False, False)),
        ({"name": "b"}, (True, True)),
        ({"job": brought | {"n_layer": 3}}, (True, True)),
        ({"max_devices": 3}, (True, True)),
        ({"max_devices": 16}, (False, True)),  # as many as a job by ops has unless it says, here all of the cluster
        ({"devices": 4}, (False, True)),
        # refused by those who have no menu, whatever is ready
        ({"batch": 8}, (True, True)),
        ({"sequence_length": 64}, (True, True)),
        ({"framework": "deepspeed"}, (True, True)),
    ):
        other = base.model_copy(update=changed)
        assert tuple(one.key(other) != one.key(base) for one in (planners, by_menu)) == apart, changed
    turned = base.model_copy(update={"job": dict(reversed(brought.items()))})
    assert planners.key(turned) == planners.key(base)
    # whoever calls a job of the zoo by another name gets the same planner
    assert planners.key(ALEXNET.model_copy(update={"name": "b"})) == planners.key(ALEXNET) != planners.key(BERT)


def test_a_request_is_answered_alike_whatever_was_ready_before(tmp_path):
    """More devices than a job has by itself are not fewer because somebody asked for the same job before."""
    wide = load_cluster("preset:dgx-a100-8x8")
    plain, many = JobRequest(job="zoo:alexnet"), JobRequest(job="zoo:alexnet", devices=32)
    warm, cold = (Planners(wide, "max@best-fit", scratch=tmp_path) for _ in range(2))
    warm.make_ready(plain)
    results = [one.decide(inputs(one, many)) for one in (warm, cold)]
    assert results[0] == results[1]
    assert max(row["degree"] for row in results[0].candidates) == 32
    assert warm.digest(many) == cold.digest(many) != warm.digest(plain)
    for one in (warm, cold):
        with pytest.raises(PlanError, match="goes with policies that pick from a menu"):
            one.make_ready(plain.model_copy(update={"batch": 8}))


def test_jobs_that_were_asked_for_last_stay_ready(cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(deciding, "KEPT_PLANNERS", 2)
    made = Planners(cluster, "fastest-feasible", scratch=tmp_path)
    third = ALEXNET.model_copy(update={"max_devices": 1})
    made.make_ready(ALEXNET)
    made.make_ready(BERT)
    assert (made.is_ready(ALEXNET), made.is_ready(BERT), made.is_ready(third)) == (True, True, False)
    made.digest(ALEXNET)  # asked for again, so that the other one is the oldest
    made.make_ready(third)
    assert (made.is_ready(ALEXNET), made.is_ready(BERT), made.is_ready(third)) == (True, False, True)


@pytest.mark.parametrize("policy", ["fastest-feasible", "menu:fastest-feasible"])
def test_the_same_planners_are_made_elsewhere_of_their_recipe(cluster, tmp_path, policy):
    made = Planners(cluster, policy, scratch=tmp_path / "s", graphs_dir=tmp_path / "g", cache=tmp_path / "c")
    folders = {"scratch": tmp_path / "s", "graphs_dir": tmp_path / "g", "cache": tmp_path / "c"}
    assert made.recipe == {"cluster": cluster, "policy": policy, "framework": None, **folders}
    assert Planners(**made.recipe).is_by_menu == made.is_by_menu == policy.startswith("menu:")
    made.check_policy()
    for wrong in ("no-such-policy", "menu:no-such-rule", "rollout:no-such-policy"):
        with pytest.raises(MeshwrightError):
            Planners(cluster, wrong, scratch=tmp_path).check_policy()


def test_a_job_is_called_by_its_name_in_the_zoo_or_in_the_folder_or_by_the_file_that_is_made_of_it(
    cluster, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "config.json").write_text("{}")
    graphs, scratch = tmp_path / "graphs", tmp_path / "scratch"
    (graphs / "mine").mkdir(parents=True)
    (graphs / "mine" / "graph.txt").write_text("")
    bare, named = Planners(cluster, "x", scratch=scratch), Planners(cluster, "x", scratch=scratch, graphs_dir=graphs)
    assert bare.spec_of(ALEXNET) == named.spec_of(ALEXNET) == "zoo:alexnet"
    assert named.spec_of(JobRequest(job="mine")) == str(graphs / "mine" / "graph.txt")
    (tmp_path / "graph.txt").write_text("")
    for wrong in ("other", "outside", "../outside", "../graphs/mine", ".", "..", str(graphs / "mine")):
        with pytest.raises(InputFileError, match="and no name in the folder of graphs") as error:
            named.spec_of(JobRequest(job=wrong))
        assert (error.value.field, error.value.value) == ("job", wrong)
    with pytest.raises(InputFileError, match="is no zoo:NAME; a file's content goes in its place"):
        bare.spec_of(JobRequest(job="mine"))
    for data, kind in (({"model_type": "gpt2"}, "config.json"), ({"op_names": []}, "graph.json")):
        path = bare.spec_of(JobRequest(job=data, name="a b"))
        assert path.startswith(str(scratch))
        assert path.endswith(f"/{kind}")
        assert path == bare.spec_of(JobRequest(job=data, name="a b", steps=3)) != bare.spec_of(JobRequest(job=data, name="c"))


def test_a_number_of_devices_is_given_or_refused_with_how_many_are_free(planners):
    four = JobRequest(job="zoo:alexnet", devices=4)
    result = planners.decide(inputs(planners, four, busy=range(9)))
    assert (result.plan, result.why, result.candidates) == (None, "3 of 12 devices are free", ())
    decision = result.as_decision("d-1", inputs(planners, four, busy=range(9)))
    assert (decision.id, decision.outcome, decision.why, decision.request) == ("d-1", "refused", result.why, four)
    placed = planners.decide(inputs(planners, four, busy=range(8)))
    assert placed.plan.num_ranks == 4
    assert {rank.host for rank in placed.plan.ranks} == {"c"}
    assert placed.as_decision("d-2", inputs(planners, four)).outcome == "placed"
    assert placed.why == placed.plan.why
    three = JobRequest(job="zoo:alexnet", devices=3)
    reported = planners.decide(inputs(planners, three))
    assert reported.plan is None
    assert reported.why.startswith("fastest-feasible gives it ")
    assert reported.why.endswith(" devices, not 3")
    assert reported.candidates


def test_most_devices_are_those_of_the_request_or_sixteen(planners):
    one = planners.decide(inputs(planners, JobRequest(job="zoo:alexnet", max_devices=1)))
    assert one.plan.num_ranks == 1
    wide = planners.decide(inputs(planners, JobRequest(job="zoo:alexnet")))
    assert max(row["degree"] for row in wide.candidates) == 12  # all that the cluster has
    assert max(row["degree"] for row in one.candidates) == 1


def test_a_plan_has_the_name_of_the_request_and_keys_of_a_menu_are_refused_by_those_who_have_none(planners):
    named = planners.decide(inputs(planners, ALEXNET.model_copy(update={"name": "mine"})))
    plain = planners.decide(inputs(planners, ALEXNET))
    assert (named.plan.job.name, plain.plan.job.name) == ("mine", "alexnet")
    for key, value in (("batch", 8), ("sequence_length", 8), ("framework", "deepspeed")):
        with pytest.raises(PlanError, match="goes with policies that pick from a menu; this one is fastest-feasible") as error:
            planners.make_ready(JobRequest(job="zoo:alexnet", **{key: value}))
        assert error.value.field == key


def test_rows_of_a_menu_say_what_each_layout_takes(by_menu):
    request = JobRequest(job="zoo:alexnet", batch=64, steps=7, max_devices=4)
    result = by_menu.decide(inputs(by_menu, request, busy=range(4)))
    assert [row["is_chosen"] for row in result.candidates].count(True) == 1
    for row in result.candidates:
        assert row["completion_s"] == pytest.approx(7 * row["step_s"])
        assert row["device_seconds"] == pytest.approx(7 * row["step_s"] * row["degree"])
        assert set(row["hosts"]) <= {"b", "c"}
        assert row["device"] == "a100"
        assert row["memory_bytes"] > 0
        assert not row["is_tight"]
    (choice,) = (row for row in result.candidates if row["is_chosen"])
    assert result.plan.num_ranks == choice["degree"]
    assert sorted({rank.host for rank in result.plan.ranks}) == sorted(choice["hosts"])
    assert result.plan.figure("step_s").value == pytest.approx(choice["step_s"])


def test_what_runs_showed_lengthens_what_is_told_of_the_next(planners):
    plain = planners.decide(inputs(planners, ALEXNET))
    factors = tuple(ObservedFactor(number, True, 2.0) for number in (1, 2))
    slow = planners.decide(inputs(planners, ALEXNET, factors=factors))
    assert slow.plan.figure("observed_step_s").value == pytest.approx(2 * plain.plan.figure("step_s").value)
    assert slow.plan.figure("observed_step_s").provenance == "observed"


def test_graphs_that_compute_the_same_are_known_again_and_others_are_not(planners):
    again = JobRequest(job=load_graph("zoo:alexnet").to_data(), max_devices=2)
    assert planners.graph(again) == planners.graph(ALEXNET) != planners.graph(BERT)
    assert planners.digest(ALEXNET) != planners.digest(BERT)


def test_a_decision_is_the_winner_of_the_search_or_says_what_it_did_not_look_at(tmp_path):
    shape = {"model_type": "llama", "hidden_size": 2048, "intermediate_size": 5504, "num_attention_heads": 16}
    shape |= {"num_hidden_layers": 2, "vocab_size": 32000, "max_position_embeddings": 2048}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(shape))
    wide = load_cluster("preset:dgx-a100-8x8")
    made = Planners(wide, "menu:fastest-feasible", scratch=tmp_path / "s", cache=tmp_path / "c")
    request = JobRequest(job=shape, batch=16, devices=4)
    result = made.decide(inputs(made, request))
    best_s = search_layouts(str(path), wide, batch=16, devices="4").best.step_s
    assert result.plan.figure("step_s").value == pytest.approx(best_s) or "were not looked at" in result.why
    assert result.plan.figure("step_s").value < 1.05 * best_s


def test_a_request_for_a_framework_has_its_menu_and_one_without_that_of_the_service(cluster, tmp_path):
    request = JobRequest(job="zoo:gpt2-small", batch=2, sequence_length=128, max_devices=2)
    plain, service = (
        Planners(cluster, "menu:fastest-feasible", scratch=tmp_path, cache=tmp_path, framework=framework)
        for framework in (None, "deepspeed")
    )
    requested = request.model_copy(update={"framework": "deepspeed"})
    frameworks = [
        (plain, request, None),
        (plain, requested, "deepspeed"),
        (service, request, "deepspeed"),
        (Planners(**service.recipe), request, "deepspeed"),
    ]
    results = [one.decide(inputs(one, what)) for one, what, _ in frameworks]
    assert [one.plan.framework for one in results] == [framework for _, _, framework in frameworks]
    assert results[1].candidates == results[2].candidates == results[3].candidates
    decision = results[1].as_decision("one", inputs(plain, requested)).model_copy(update={"plan": {"framework": "deepspeed"}})
    assert decision.listed == "listed are the layouts of the menu for deepspeed that fit what is free"
    assert "framework" not in request.model_dump()
    with pytest.raises(PlanError, match="--for: goes with menu:RULE, not max@best-fit"):
        Planners(cluster, "max@best-fit", scratch=tmp_path, framework="deepspeed").check_policy()


def test_a_nearly_full_device_is_tight_as_the_search_names_it(tmp_path):
    keep = {"batch": 16, "devices": "2", "launcher": "megatron"}
    needed_bytes = search_layouts("zoo:gpt2-small", "preset:dgx-a100-8x8", **keep).best.memory_bytes
    device = DeviceSettings(**device_type("a100").to_data() | {"memory_gib": 1.03 * needed_bytes / 2**30})
    described = load_cluster("preset:dgx-a100-8x8").settings
    where = Cluster.from_settings(described.model_copy(update={"device": device}))
    made = Planners(where, "menu:fastest-feasible", scratch=tmp_path, cache=tmp_path)
    request = JobRequest(job="zoo:gpt2-small", batch=16, devices=2, framework="megatron")
    (choice,) = (row for row in made.decide(inputs(made, request)).candidates if row["is_chosen"])
    searched = search_layouts("zoo:gpt2-small", where, **keep)
    assert searched.is_tight(searched.best)
    assert choice["is_tight"]
    assert choice["step_s"] == pytest.approx(searched.best.step_s, rel=1e-12)
