"""Laws of `meshwright plan --ops`: what it prints fits 80 columns and is what it writes; what is wrong is one line."""

import json

import pytest

from meshwright import load_plan
from meshwright.jobs.load import load_graph

PLACE = ("plan", "--ops", "--job", "zoo:alexnet", "--cluster", "preset:toy", "--policy", "heft", "--batch", "64")


def test_the_tables_tell_the_plan_and_fit_eighty_columns(meshwright, work, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = meshwright(*PLACE, "--json", "plan.json", "--trace", "trace.json", "--plot", "placement.svg")
    assert done.status == 0
    plan = json.loads((work / "plan.json").read_text())
    assert plan["schema_version"] == 3
    assert plan["partition"]["kind"] == "ops"
    figures = {figure["name"]: figure["value"] for figure in plan["predicted"]}
    assert f"{1e3 * figures['step_s']:.4f}" in done.out
    assert "messages do not slow each other; the optimizer's update takes no time" in " ".join(done.out.split())
    assert "written: plan.json" in done.out
    rows = [line for line in done.out.splitlines() if line.startswith("  ")]
    assert max(map(len, rows)) <= 120
    events = json.loads((work / "trace.json").read_text())["traceEvents"]
    computed = [event for event in events if event["ph"] == "X" and event["cat"] == "compute"]
    assert len(computed) == 2 * len(plan["partition"]["device_of"])
    drawn = (work / "placement.svg").read_text()
    assert drawn.startswith("<svg")
    assert "alexnet on toy" in drawn


def test_json_on_standard_output_is_the_plan_alone(meshwright):
    done = meshwright(*PLACE, "--json", "-")
    assert json.loads(done.out)["partition"]["objective"] == "latency"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--plot", "a.png"), "--plot: the name must end in .svg or .html (got 'a.png')"),
        (("--set", "seed=-1"), "--set: seed: must be at least 0 (got -1)"),
        (("--keep-input-op",), "--keep-input-op: no such option"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(refused, options, message):
    assert refused(*PLACE, *options).startswith(message)


def test_a_saved_graph_of_version_2_is_placed_or_refused_in_one_line(meshwright, refused, work):
    graph = load_graph("zoo:alexnet", batch_size=8).to_data()
    num_ops = len(graph["op_names"])
    a100 = {key: graph[key] for key in ("forward_s", "backward_s")}
    labels = [["x"], *[[]] * (num_ops - 2), ["x"]]
    options = {**graph, "format_version": 2, "times_s": {"a100": a100, "v100": a100}, "colocate": labels}
    (work / "job.json").write_text(json.dumps(options))
    place = ("plan", "--ops", "--job", "job.json", "--cluster", "preset:host-8", "--policy", "heft")
    done = meshwright(*place, "--json", "plan.json")
    assert done.status == 0
    assert f"the times on a100 are those that {graph['name']} gives" in " ".join(done.out.split())
    device_of = json.loads((work / "plan.json").read_text())["partition"]["device_of"]
    assert device_of[0] == device_of[-1]
    for change, message in (
        ({"colocate": labels[1:]}, f"colocate: has {num_ops - 1} entries for {num_ops} ops"),
        ({"times_s": {"a100": {**a100, "forward_s": [-1.0] * num_ops}}}, "times_s.a100.forward_s."),
        ({"tims_s": {}}, "tims_s: unknown key (got 'tims_s'); did you mean 'times_s'?"),
    ):
        (work / "job.json").write_text(json.dumps({**options, **change}))
        assert refused(*place).startswith(f"job.json: {message}")


def test_a_rule_of_the_menu_plans_a_job(meshwright, work):
    of_menu = ("--policy", "menu:fastest-feasible", "--batch", 64, "--json", "menu.json")
    assert meshwright("plan", "--job", "zoo:alexnet", "--cluster", "preset:host-8", *of_menu).status == 0
    assert load_plan(work / "menu.json").layout().global_batch == 64
