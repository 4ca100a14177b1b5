"""``plan --search``: what it shows and writes, plans that export, and what it refuses."""

import csv
import io
import json

import pytest

from meshwright import load_plan

GPT = {"model_type": "gpt2", "n_embd": 1024, "n_layer": 4, "n_head": 16, "n_positions": 1024, "vocab_size": 50304}
SEARCH = ("plan", "--search", "--job", "config.json", "--cluster", "preset:dgx-a100-8x8", "--devices", "16", "--batch", "32")


@pytest.fixture
def work(work):
    (work / "config.json").write_text(json.dumps(GPT))
    return work


def test_a_search_shows_the_best_the_front_and_what_became_of_all(meshwright, work):
    result = meshwright(*SEARCH, "--set", "top=3", "--keep", "cp=1,pp=1|2")
    assert (result.status, result.err) == (0, "")
    assert f"Best layouts of {work.name} on dgx-a100-8x8, 32 sequences of 1024" in result.out
    assert "Pareto front of time, memory and devices" in result.out
    assert "legal layouts:" in result.out
    assert "pruned by bounds" in result.out
    assert "too large for a device" in result.out
    ranking = result.out.partition("Best layouts")[2].partition("Pareto front")[0]
    labels = [line.split()[0] for line in ranking.splitlines() if line.split()[:1] and line.split()[0].lstrip("=").isdigit()]
    assert {"1", "2", "3"} <= {label.lstrip("=") for label in labels}
    assert len(labels) <= 4  # the plainest of all ties, if it is none of the three
    tied = [label for label in labels if label.startswith("=")]
    assert labels[: len(tied)] == tied  # what ties with the fastest stands first
    assert ("as fast as the fastest, within the predictions' uncertainty" in result.out) is bool(tied)


@pytest.mark.parametrize(
    "order", ["pp-tp-cp-dp", *(pytest.param(order, marks=pytest.mark.slow) for order in ("dp-tp-cp-pp", "tp-cp-pp-dp"))]
)
def test_every_rank_order_exports_to_launchers_that_number_ranks_host_by_host(meshwright, work, order):
    result = meshwright(
        *SEARCH, "--keep", "tp=2,pp=2,dp=4,schedule=1f1b,zero=1", "--set", f"order={order}", "--json", "plan.json"
    )
    assert result.status == 0
    plan = load_plan(work / "plan.json")
    first, second = plan.ranks[:2]
    fastest = order.split("-")[0]
    assert getattr(second.coordinates, fastest) - getattr(first.coordinates, fastest) == 1
    assert [rank.device for rank in plan.ranks] == list(range(16))
    assert meshwright("export", "plan.json", "--format", "torchrun", "--out", "out").status == 0
    assert "DeviceMesh" in (work / "out" / "mesh.py").read_text()


def test_all_layouts_are_written_as_csv_or_json_best_first(meshwright, work):
    keep = ("--keep", "tp=1|2,pp=2,cp=1,recompute=none,schedule=1f1b|gpipe")
    assert meshwright(*SEARCH, *keep, "--all", "all.csv").status == 0
    assert meshwright(*SEARCH, *keep, "--all", "all.json").status == 0
    rows = list(csv.DictReader(io.StringIO((work / "all.csv").read_text())))
    data = json.loads((work / "all.json").read_text())
    assert len(rows) == len(data["layouts"]) == data["counts"]["examined"] > 50
    assert data["counts"]["pruned"] == 0
    times = [row["step_s"] for row in data["layouts"]]
    assert times == sorted(times)
    assert [float(row["step_s"]) for row in rows] == times
    assert {row["tp"] for row in rows} == {"1", "2"}
    assert data["layouts"][0]["on_front"] is True


def test_the_same_figures_as_estimate_gives(meshwright, work):
    meshwright(*SEARCH, "--set", "order=tp-cp-dp-pp", "--keep", "cp=1,pp=2,recompute=none", "--json", "plan.json")
    plan = load_plan(work / "plan.json")
    keys = ",".join(f"{key}={str(value).lower()}" for key, value in plan.layout().model_dump(exclude_none=True).items())
    result = meshwright("estimate", "--job", "config.json", "--cluster", "preset:dgx-a100-8x8", "--layout", keys, "--json", "-")
    figures = {figure["name"]: figure["value"] for figure in json.loads(result.out)["figures"]}
    for name in ("step_s", "mfu", "memory_bytes"):
        assert plan.figure(name).value == pytest.approx(figures[name], rel=1e-12)


def test_fewer_devices_stand_on_the_front_and_in_the_picture(meshwright, work):
    search = [word for word in SEARCH if word not in ("--devices", "16")]
    keep = ("--keep", "cp=1,tp=1,pp=1|2,zero=1,schedule=1f1b")
    result = meshwright(*search, "--devices", "4,8,16-32", *keep, "--plot", "front.svg")
    assert result.status == 0
    assert "Fastest by devices" in result.out
    drawn = (work / "front.svg").read_text()
    assert drawn.startswith("<svg")
    for number in (4, 8, 16, 32):
        assert f"on the front, {number} devices" in drawn


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--batch", None), "--batch: a config.json has no batch"),
        (("--batch", "0"), "--batch: must be at least 1 (got 0)"),
        (("--batch", "x"), "--batch: must be a whole number"),
        (("--set", "top=0"), "--set top: must be at least 1"),
        (("--devices", "12"), "--devices: whole hosts of 8 are wanted; next are 8 and 16"),
        (("--devices", "0"), "--devices: dgx-a100-8x8 has 1 to 64 devices"),
        (("--devices", "8-"), "--devices: must be a number, several with commas between, or a range A-B"),
        (("--devices", "128"), "--devices: dgx-a100-8x8 has 1 to 64 devices"),
        (("--sequence-length", "2048"), "has only 1024 positions"),
        (("--keep", "tp=3"), "no layout is legal on 16 devices"),
        (("--keep", "pt=3"), "unknown key"),
        (("--set", "order=tp-dp-pp"), "order: an order names tp, cp, dp and pp once each"),
        (("--policy", "max"), "--policy: does not go with --search"),
        (("--take", "best"), "--take: no such layout (got 'best'); valid: 1f1b, default, fastest, plain, recipe"),
        (("--take", "recipe", "--keep", "tp=2,pp=2,cp=1"), "--take: no such reference fits this job (got 'recipe')"),
        (("--set", "recipes=none.yaml"), "none.yaml"),
        (("--trace", "t.json"), "--trace: does not go with --search"),
        (("--all", "all.txt"), "--all: the name must end in .json or .csv"),
        (("--plot", "plot.png"), "--plot: the name must end in .svg"),
        (("--json", "a.json", "--all", "a.json"), "--all: is the file of --json too"),
        (("--set", "collectives=rings"), "did you mean 'ring'"),
        (("--job", "zoo:resnet50", "--sequence-length", "128"), "--sequence-length: the job has no sequences"),
        (("--job", "zoo:resnet50", "--keep", "tp=2"), "keep.tp: cuts layers, which a graph of ops does not have"),
        (("--job", "zoo:gpt2-huge"), "no such job in the zoo"),
        (("--job", "no/graph.txt"), "no/graph.txt"),
        (("--set", "missing.yaml"), "missing.yaml"),
        (("--set", "routing=ecpm"), "did you mean 'ecmp'"),
        (("--job", "missing.json"), "missing.json"),
        (("--for", "megatorn"), "--for: unknown framework (got 'megatorn'); did you mean 'megatron'?"),
        (("--for", "megatron", "--keep", "zero=3"), "layout.zero: no legal layout of 16 devices is one that Megatron-LM runs"),
        (("--set", "front=-1"), "--set: front: must be at least 0 (got -1)"),
    ],
)
def test_what_a_search_cannot_do_is_refused(refused, arguments, message):
    words = dict(zip(SEARCH[2::2], SEARCH[3::2], strict=True)) | dict(zip(arguments[::2], arguments[1::2], strict=True))
    given = [word for pair in words.items() if pair[1] is not None for word in pair]
    assert message in refused("plan", "--search", *given)


def test_a_framework_that_does_not_run_a_searched_plan_is_refused_with_how_to_search_for_one(meshwright, refused, work):
    assert meshwright(*SEARCH, "--keep", "pp=1,dp=16,zero=2", "--json", "plan.json").status == 0
    message = refused("export", "plan.json", "--format", "megatron", "--out", "x")
    assert message.endswith("ZeRO stage 1 (got 2); `meshwright plan --search --for megatron` searches what it runs")


def test_a_model_that_fits_nowhere_is_told_with_what_it_lacks(refused, work):
    (work / "config.json").write_text(json.dumps(GPT | {"n_embd": 16384, "n_layer": 64, "n_head": 128}))
    assert "GB short" in refused(*SEARCH)


def test_a_search_for_a_framework_begins_with_the_best_reference_and_ends_with_the_front(meshwright, work):
    result = meshwright(*SEARCH, "--for", "torchtitan", "--keep", "cp=1,pp=1|2,recompute=none", "--set", "front=2")
    assert (result.status, result.err) == (0, "")
    first, *rest = result.out.splitlines()
    assert "; the best reference, 1f1b (tp inside a host, 1F1B), takes " in first
    titles = [line.split(",")[0] for line in rest if line.startswith(("Plan of", "Best layouts", "Pareto front"))]
    assert [title.split(" of ")[0] for title in titles] == ["Plan", "Best layouts", "Pareto front"]
    front = result.out.partition("Pareto front")[2]
    assert [line.split()[0] for line in front.splitlines() if line[:2] == "  " and line[2:3].isdigit()] == ["1", "2"]
    assert "illegal or not for torchtitan" in result.out
    without = meshwright(*SEARCH, "--keep", "cp=1,pp=1,zero=1", "--set", "front=0")
    assert without.out.startswith("fastest: ")
    assert "the best reference, " in without.out.splitlines()[0]
    assert "Pareto front" not in without.out
