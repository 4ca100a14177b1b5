"""Plans by policies of a fleet: what a network of any weights picks, what replaces it, what it was not trained for."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from meshwright.cli import run_command_line
from meshwright.envs.fleet.benchmark import load_fleet_benchmark
from meshwright.errors import CheckpointError, InputFileError, MeshwrightError, PlanError, PolicyError
from meshwright.models.fleet.network import FleetActor
from meshwright.models.fleet.saved import SavedFleetNetwork
from meshwright.models.settings import FleetNetworkSettings
from meshwright.planning.menu_plan import MenuPlanner
from meshwright.planning.policies import is_by_menu
from meshwright.planning.search import search_layouts
from meshwright.plans import load_plan
from meshwright.plans.frameworks.table import FRAMEWORKS

from ..fleet_samples import FAILURES, write_small_fleet


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The benchmark's file, its cluster, and a function that writes a policy of drawn weights."""
    folder = tmp_path_factory.mktemp("menu-plan")
    file = write_small_fleet(folder)

    def policy(seed=0, placements="[packed, spread, construct]", more=()):
        changes = [f"fleet.placements={placements}", *more]
        fleet = load_fleet_benchmark(str(file), changes=changes).build()
        torch.manual_seed(seed)
        network = FleetActor(FleetNetworkSettings(width=8), fleet)
        for weight in network.parameters():
            torch.nn.init.normal_(weight, std=0.5)
        path = folder / f"policy-{seed}.pt"
        trained = {"benchmark": str(file), "changes": changes, "ground": fleet.conditions}
        SavedFleetNetwork.from_network(network, trained).save(path)
        return path

    return file, str(folder / "fleet-cluster.yaml"), policy


def test_no_other_entry_beats_a_plan_in_time_and_in_devices_whatever_the_network_wants(small):
    _, cluster, policy = small
    seen = set()
    for seed in range(4):
        result = MenuPlanner.from_job("zoo:alexnet", cluster, policy(seed)).plan(100)
        (taken,) = (row for row in result.rows if row.is_chosen)
        assert not any(row.degree <= taken.degree and row.step_s < taken.step_s for row in result.rows)
        assert result.plan.num_ranks == taken.degree
        hosts = np.repeat(taken.hosts, taken.degree // len(taken.hosts))
        names = [f"l{host // 2}-h{host % 2}" for host in hosts]
        assert [rank.host for rank in result.plan.ranks] == names
        assert result.remarks == ()
        replaced = "beats in time and in devices" in result.plan.why
        assert result.plan.why.endswith(" beats in time and in devices, so that one was taken") == replaced
        seen.add(taken.degree)
    assert len(seen) > 1


FEW = ("fleet.menu.degrees=[1, 2]", "fleet.requested={1: 1, 2: 1}")
ONE_TYPE = "fleet.job_types=[{name: small, job: zoo:alexnet, global_batch: 64}]"


@pytest.mark.parametrize("more", [(), ("fleet.weights=[1, 2]", "fleet.may_refuse=true"), (ONE_TYPE,)])
def test_what_a_request_leaves_out_of_the_menu_is_no_other_fleet(small, more):
    _, cluster, policy = small
    path = str(policy(7, more=more))
    for expected in ({}, {"devices": 4}, {"max_devices": 4}):
        assert MenuPlanner.from_job("zoo:alexnet", cluster, path, **expected).remarks == ()
    (remark,) = MenuPlanner.from_job("zoo:alexnet", cluster, path, batch=32, devices=4).remarks
    assert "another menu" in remark or "other entries or prices of the same jobs" in remark


def test_a_plan_is_made_before_any_host_fails(small):
    _, cluster, policy = small
    plans = [MenuPlanner.from_job("zoo:alexnet", cluster, policy(1, more=more)).plan(10**6) for more in ((), FAILURES)]
    assert plans[0].plan.ranks == plans[1].plan.ranks
    assert plans[1].remarks == ()


def test_a_policy_of_a_fleet_of_splits_plans_no_job(small, tmp_path):
    _, cluster, policy = small
    saved = SavedFleetNetwork.load(policy(2))
    splits = "splits: {workload: preset:quickstart}, requested: {1: 1}, num_jobs: 9, placements: [blocks], sharing: none"
    (tmp_path / "splits.yaml").write_text(f"name: splits\nfleet: {{cluster: preset:ramp-4x4x2, {splits}}}\n")
    replace(saved, trained={"benchmark": str(tmp_path / "splits.yaml")}).save(tmp_path / "policy.pt")
    with pytest.raises(PlanError, match="a policy of a fleet of splits has no menu of layouts"):
        MenuPlanner.from_job("zoo:alexnet", cluster, tmp_path / "policy.pt").plan(100)


def test_another_job_has_a_menu_of_its_own_and_the_plan_says_so(small, tmp_path, capsys):
    _, cluster, policy = small
    path = policy()
    options = ["--policy", str(path), "--batch", "8", "--sequence-length", "128", "--json", str(tmp_path / "plan.json")]
    assert run_command_line(["plan", "--job", "zoo:gpt2-small", "--cluster", cluster, *options]) == 0
    assert "was not trained for this fleet, but for another menu (small, large, here gpt2-small)" in " ".join(
        capsys.readouterr().out.split()
    )
    plan = load_plan(tmp_path / "plan.json")
    assert plan.job.transformer is not None
    assert "another menu" in plan.why
    for form in ("torchrun", "megatron", "slurm"):
        out = ["--format", form, "--out", str(tmp_path / form)]
        assert run_command_line(["export", str(tmp_path / "plan.json"), *out]) == 0


def test_what_cannot_be_is_told(small, tmp_path):
    _, cluster, policy = small
    path = policy()
    with pytest.raises(PlanError, match="benchmark small has no such job"):
        MenuPlanner.from_job("zoo:vgg16", cluster, path).plan(10)
    with pytest.raises(PlanError, match="no layout of the menu fits the cluster and meets the deadline"):
        MenuPlanner.from_job("zoo:alexnet", cluster, path).plan(10, deadline_s=1e-6)
    with pytest.raises(InputFileError):
        MenuPlanner.from_job(str(tmp_path / "none.txt"), cluster, path, batch=8).plan(10)
    with pytest.raises(CheckpointError):
        MenuPlanner.from_job("zoo:alexnet", cluster, tmp_path / "none.pt").plan(10)
    words = ["plan", "--job", "zoo:alexnet", "--cluster", cluster, "--policy", str(path), "--set", "max_degree=4"]
    assert run_command_line(words) == 2


def test_a_misspelled_policy_or_job_is_told_with_its_nearest_name(small):
    _, cluster, policy = small
    for spec, message in (
        ("shipped:unevn-64", "(got 'unevn-64'); did you mean 'uneven-64'?"),
        ("shipped:quikstart", "'quickstart'?"),
    ):
        with pytest.raises(PolicyError, match=re.escape(message)):
            is_by_menu(spec)
    with pytest.raises(MeshwrightError, match=r"zoo.*\(got 'alexnt'\); did you mean 'alexnet'\?"):
        MenuPlanner.from_job("zoo:alexnt", cluster, policy()).plan(10)


def test_a_job_is_planned_where_another_type_of_the_benchmark_fits_no_device(small):
    _, _, policy = small
    huge = ", {name: huge, job: zoo:gpt2-xl, global_batch: 4, sequence_length: 128}]"
    path = policy(3, more=[ONE_TYPE[:-1] + huge, "fleet.menu.keep=tp=1|2,pp=1,micro_batch=1", *FEW])
    result = MenuPlanner.from_job("zoo:alexnet", "preset:toy", path).plan(10)
    assert result.plan.num_ranks <= 4
    assert result.plan.job.name == "alexnet"
    assert "another cluster (small, here toy)" in result.remarks[0]
    with pytest.raises(PlanError, match="gpt2-xl on toy: no layout of gpt2-xl fits"):
        MenuPlanner.from_job("zoo:gpt2-xl", "preset:toy", path, sequence_length=128).plan(10)


def test_beside_others_a_plan_takes_free_devices_alone_whatever_the_network_wants(small):
    _, cluster, policy = small
    rng, sizes = np.random.default_rng(3), set()
    for seed in range(4):
        is_free = rng.random(8) < 0.6
        result = MenuPlanner.from_job("zoo:alexnet", cluster, policy(seed)).plan(100, is_free=is_free)
        devices = result.plan.placement().devices
        assert is_free[devices].all()
        (taken,) = (row for row in result.rows if row.is_chosen)
        assert not any(row.degree <= taken.degree and row.step_s < taken.step_s for row in result.rows)
        assert f"on the {is_free.sum()} free devices of 8" in result.plan.why
        sizes.add(len(devices))
    assert len(sizes) > 1
    with pytest.raises(PlanError, match=r"no layout of the menu fits the free devices \(0 of 8\)"):
        MenuPlanner.from_job("zoo:alexnet", cluster, policy(0)).plan(100, is_free=np.zeros(8, np.bool_))
    everything = MenuPlanner.from_job("zoo:alexnet", cluster, policy(1)).plan(100, is_free=np.ones(8, np.bool_))
    assert everything.plan == MenuPlanner.from_job("zoo:alexnet", cluster, policy(1)).plan(100).plan


@pytest.mark.parametrize("devices", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_the_menu_of_a_job_alone_has_the_layout_that_a_search_finds(tmp_path, devices):
    job, cluster, batch = "zoo:gpt2-small", "preset:host-8", 64
    made = MenuPlanner.from_job(job, cluster, "menu:fastest-feasible", batch=batch, devices=devices, cache=tmp_path).plan(1)
    searched = search_layouts(job, cluster, batch=batch, devices=str(devices), order="tp-cp-dp-pp", arrange="none")
    assert min(row.step_s for row in made.rows) == pytest.approx(searched.best.step_s, rel=0.01)  # the menu's least gain
    assert "rank orders other than tp-cp-dp-pp were not looked at" in made.plan.why


@pytest.mark.every(2)
@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "deepspeed", "fsdp2"])
def test_a_menu_for_a_framework_is_what_the_search_for_it_offers(framework, tmp_path):
    job, where = "zoo:gpt2-small", "preset:dgx-a100-8x8"
    planner = MenuPlanner.from_job(job, where, "menu:fastest-feasible", batch=64, devices=8, framework=framework, cache=tmp_path)
    result, searched = planner.plan(100), search_layouts(job, where, batch=64, devices="8", launcher=framework)
    assert result.plan.figure("step_s").value == pytest.approx(searched.best.step_s, rel=1e-12)
    assert result.plan.framework == framework
    assert f"; binds: {searched.mechanisms.binding}; {searched.mechanisms.shares}; " in result.plan.why
    assert f"layouts that {framework} does not run were not looked at" in result.plan.why
    entries = planner.fleet.menu.entries
    assert sorted(row.entry for row in result.rows) == list(range(len(entries)))
    for entry in entries:
        assert FRAMEWORKS[framework].refusal(planner._maker.of_model(entry.layout)) is None
        assert FRAMEWORKS[framework].numbering(entry.layout, entry.order, 8)


def test_a_framework_goes_with_rules_alone(small):
    _, cluster, policy = small
    with pytest.raises(PlanError, match="framework: goes with menu:RULE; a trained policy has its benchmark's menu"):
        MenuPlanner.from_job("zoo:alexnet", cluster, str(policy()), framework="deepspeed")
    with pytest.raises(PlanError, match="Megatron-LM is planned for transformers here"):
        MenuPlanner.from_job("zoo:alexnet", cluster, "menu:fastest-feasible", batch=64, framework="megatron")
