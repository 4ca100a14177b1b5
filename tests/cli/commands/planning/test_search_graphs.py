"""Layouts of any job graph on the command line: ``estimate`` and ``plan --search`` agree, and the plan exports."""

import csv
import io
import json

import pytest

from meshwright import load_plan
from meshwright.jobs import load_graph

CLUSTER = ("--cluster", "preset:dgx-a100-8x8")
SEARCH = ("plan", "--search", "--job", "zoo:vgg16", *CLUSTER, "--devices", "16", "--batch", "64")

OP = "node{} -- {} -- forward_compute_time={}, backward_compute_time={}, activation_size={}, parameter_size={}\n"
PROFILE = (
    OP.format(1, "Input0", 0.0, 0.0, 4e6, 0.0)
    + OP.format(2, "Conv2d", 4.0, 8.0, 8e6, 1e6)
    + OP.format(3, "Linear", 6.0, 12.0, 4e5, 9e7)
    + "\tnode1 -- node2\n\tnode2 -- node3\n"
)


def figures_of(told):
    return {figure["name"]: figure["value"] for figure in json.loads(told.out)["figures"]}


@pytest.mark.parametrize(
    "keep",
    [
        "pp=2,schedule=interleaved,virtual_stages=2,micro_batch=1",
        *(pytest.param(keep, marks=pytest.mark.slow) for keep in ("pp=4,schedule=1f1b", "pp=1")),
    ],
)
def test_the_plan_of_the_winner_stands_alone_and_exports(meshwright, work, keep):
    result = meshwright(*SEARCH, "--keep", keep, "--json", "plan.json")
    assert result.status == 0
    plan = load_plan(work / "plan.json")
    layout, graph = plan.layout(), plan.job_graph()
    assert (plan.num_ranks, layout.world, layout.global_batch) == (16, 16, 64)
    assert plan.micro_batches == layout.num_micro_batches
    assert graph.samples_per_step == 64
    assert len(plan.stages) == layout.pp * layout.virtual_stages
    # stage after stage, chunk after chunk: the topological order
    ordered = sorted(plan.stages, key=lambda stage: (stage.chunk, stage.stage))
    assert [op for stage in ordered for op in stage.ops] == [graph.op_names[op] for op in graph.order]
    for stage in plan.stages:
        assert {plan.ranks[rank].coordinates.pp for rank in stage.ranks} == {stage.stage}
        assert len(stage.ranks) == layout.dp
    assert {f.name for f in plan.predicted} >= {"step_s", "samples_per_s", "mfu", "memory_bytes", "bubble_share"}
    assert "legal layouts" in plan.why
    for target in ("slurm", "torchrun"):
        exported = meshwright("export", "plan.json", "--format", target, "--out", f"as-{target}")
        assert exported.status == 0, exported.err
    assert "DeviceMesh" in (work / "as-torchrun" / "mesh.py").read_text()


def test_the_same_figures_as_estimate_gives(meshwright, work):
    for keep in ("pp=4,schedule=1f1b,micro_batch=1", "pp=2,schedule=interleaved,virtual_stages=2,micro_batch=1"):
        meshwright(*SEARCH, "--keep", keep, "--set", "order=tp-cp-dp-pp", "--json", "plan.json")
        plan = load_plan(work / "plan.json")
        keys = ",".join(f"{key}={str(value).lower()}" for key, value in plan.layout().model_dump(exclude_none=True).items())
        plan.job_graph().save(work / "job.json")  # at the batch of the search
        result = meshwright("estimate", "--job", "job.json", *CLUSTER, "--layout", keys, "--json", "-")
        figures = figures_of(result)
        for name in ("step_s", "samples_per_s", "mfu", "memory_bytes"):
            assert plan.figure(name).value == pytest.approx(figures[name], rel=1e-12)
        stages = [stage["num_ops"] for stage in json.loads(result.out)["stages"]]
        ordered = sorted(plan.stages, key=lambda stage: (stage.chunk, stage.stage))
        assert stages == [stage.num_ops for stage in ordered]


def test_a_profile_is_searched_by_name_with_the_batch_that_is_said(meshwright, refused, work):
    (work / "graphs" / "mine").mkdir(parents=True)
    (work / "graphs" / "mine" / "graph.txt").write_text(PROFILE)
    search = ("plan", "--search", "--job", "mine", "--set", "graphs=graphs", *CLUSTER, "--devices", "8")
    assert "--batch: mine does not say how many samples its figures hold for" in refused(*search)
    result = meshwright(*search, "--batch", "32", "--all", "all.csv", "--plot", "front.svg", "--json", "plan.json")
    assert result.status == 0
    rows = list(csv.DictReader(io.StringIO((work / "all.csv").read_text())))
    assert "mfu" not in rows[0]  # a profile tells no operations
    assert {row["pp"] for row in rows} == {"1", "2"}  # three ops: eight devices are one or two stages of whole replicas
    assert float(rows[0]["samples_per_s"]) == pytest.approx(32 / float(rows[0]["step_s"]))
    assert (work / "front.svg").read_text().startswith("<svg")
    # 30 ms of 32 samples on eight replicas are 3.75 ms and gradients
    assert 3.75e-3 <= float(rows[0]["step_s"]) < 6e-3
    layout = "dp=8,micro_batch=4,global_batch=32,overlap_dp=true"
    result = meshwright("estimate", "--job", "mine", "--set", "graphs=graphs", *CLUSTER, "--layout", layout, "--json", "-")
    assert figures_of(result)["step_s"] >= 3.75e-3


def test_a_batch_that_divides_better_is_told(meshwright):
    search = ("plan", "--search", "--job", "zoo:alexnet", "--cluster", "preset:host-8", "--keep", "schedule=1f1b,zero=0")
    result = meshwright(*search, "--batch", 62, "--set", "top=1")
    assert result.status == 0
    assert "--batch 64 brings " in result.out
    assert "% more samples/s (" in result.out
    assert "brings" not in meshwright(*search, "--batch", 64, "--set", "top=1").out


def test_every_command_that_takes_a_job_counts_the_data_loader_only_where_it_is_asked_to(meshwright, work):
    (work / "graph.txt").write_text(PROFILE.replace("forward_compute_time=0.0", "forward_compute_time=70.0"))
    # a layer of 12, one of 18 ms, and the loader's 70 ms
    for command, step_s in (
        (("estimate", "--layout", "micro_batch=4,global_batch=4"), lambda data: data["figures"][0]["value"]),
        (("plan", "--search", "--devices", 1, "--batch", 4), lambda data: data["predicted"][0]["value"]),
        (("plan", "--set", "max_degree=1"), lambda data: next(f["value"] for f in data["predicted"] if f["name"] == "step_s")),
    ):
        for options, total_s, is_told in (
            ((), 0.03, True),
            (("--set", "keep_input_ops=true"), 0.1, False),
            (("--set", "profile_batch=4"), 0.03, True),
        ):
            result = meshwright(command[0], "--job", "graph.txt", *CLUSTER, *command[1:], *options, "--json", "-")
            assert step_s(json.loads(result.out)) == pytest.approx(total_s)
            assert ("left out: 1 Input op of the profile, 70 of 100 ms" in " ".join(result.err.split())) is is_told


def test_an_estimate_shows_stages_and_what_its_uncertainty_is_made_of(meshwright, work):
    result = meshwright("estimate", "--job", "zoo:resnet18", *CLUSTER, "--layout", "dp=2,pp=2,micro_batch=8,global_batch=64")
    assert result.status == 0
    assert "samples per s" in result.out
    assert "Uncertainty of the step" in result.out
    assert "Stages of the pipeline" in result.out


def test_routes_are_chosen_in_the_yaml_of_the_cost_model_and_told_by_explain(meshwright, refused, work):
    (work / "costs.yaml").write_text("routing: ecmp\nrouting_seed: 5\ncontention: fair\n")
    estimate = ("estimate", "--job", "zoo:alexnet", "--cluster", "preset:clos-64-4to1", "--json", "-")
    estimate += ("--layout", "dp=32,micro_batch=1,global_batch=32", "--explain")
    rows = {one["switch"]: one for one in json.loads(meshwright(*estimate, "--set", "costs.yaml").out)["switches"]}
    assert {"routing=shortest-path", "routing=spread"} <= set(rows)
    assert rows["routing=spread"]["kind"] == "flows"
    assert rows["routing=spread"]["remark"] == "base: contention=fair, ecmp"
    plain = json.loads(meshwright(*estimate, "--set", "contention=fair").out)["switches"]
    there = next(one for one in plain if one["switch"] == "routing=spread")
    assert there["remark"] == "base: contention=fair, shortest-path"
    assert rows["routing=shortest-path"]["step_s"] == pytest.approx(there["base_s"])
    # the analytic path reads the routes of a named algorithm
    steps = {}
    for routing in ("shortest-path", "spread"):
        result = meshwright(*estimate[:-1], "--set", f"routing={routing}", "--set", "collectives=ring")
        steps[routing] = figures_of(result)["step_s"]
    assert steps["spread"] <= steps["shortest-path"]
    (work / "costs.yaml").write_text("rooting: ecmp\n")
    assert "costs.yaml:1: rooting: unknown key" in refused(*estimate, "--set", "costs.yaml")
    assert "--set: routing_seed" in refused(*estimate, "--set", "routing_seed=-1")


def test_an_option_of_its_own_goes_before_the_file(meshwright, work):
    (work / "costs.yaml").write_text("collectives: tree\noverlap_slowdown: 3\n")
    estimate = ("estimate", "--job", "zoo:vgg16", *CLUSTER, "--layout", "dp=8,micro_batch=4,global_batch=256,overlap_dp=true")
    steps = {}
    for name, options in {
        "file": ("--set", "costs.yaml"),
        "same": ("--set", "collectives=tree", "--set", "overlap_slowdown=3"),
        "ring": ("--set", "costs.yaml", "--set", "collectives=ring"),
        "just ring": ("--set", "collectives=ring", "--set", "overlap_slowdown=3"),
        "set": ("--set", "costs.yaml", "--set", "overlap_slowdown=1.126"),
        "usual": ("--set", "collectives=tree"),
    }.items():
        steps[name] = figures_of(meshwright(*estimate, *options, "--json", "-"))["step_s"]
    assert steps["file"] == steps["same"]
    assert steps["ring"] == steps["just ring"] != steps["file"]
    assert steps["set"] == steps["usual"] != steps["file"]


def test_a_saved_graph_has_a_batch_of_its_own(meshwright, work):
    load_graph("zoo:alexnet", batch_size=32).save(work / "job.json")
    search = ("plan", "--search", "--job", "job.json", *CLUSTER, "--devices", "4", "--keep", "schedule=1f1b,zero=0")
    assert meshwright(*search, "--json", "plan.json").status == 0
    assert load_plan(work / "plan.json").layout().global_batch == 32
    # a larger batch is made of more micro-batches of at most as many samples as the figures hold for
    assert meshwright(*search, "--batch", "64", "--json", "plan.json").status == 0
    layout = load_plan(work / "plan.json").layout()
    assert layout.global_batch == 64
    assert 32 % layout.micro_batch == 0
