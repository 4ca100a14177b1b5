"""Runs from practice are accepted and priced right; runs that ran out of memory are refused or called tight.

They were published or measured; nothing is fitted on them.
"""

import json
import math

import pytest

from meshwright.clusters import Cluster, load_cluster
from meshwright.costs.training_step.uncertainty import interval
from meshwright.errors import PlanError
from meshwright.planning.estimate import estimate

QWEN_7B = {
    **{"model_type": "qwen2", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32},
    **{"intermediate_size": 11008, "vocab_size": 151936, "tie_word_embeddings": False, "max_position_embeddings": 32768},
}
BERT = {"max_position_embeddings": 512}
"""Keys that `AutoConfig.for_model` adds to those of the rows."""


def changed(preset, device=None, **topology):
    data = load_cluster(f"preset:{preset}").to_data()
    return Cluster.from_data(data | {"device": device or data["device"], "topology": data["topology"] | topology})


def cluster_of(words):
    if words == "8 A100 of 40 GB":
        return changed("host-8", "a100-40gb")
    if words.startswith("96 hosts"):
        return changed("dgx-h100-32x8", num_hosts=96)
    if words.startswith("1 host of "):
        return changed(words.removeprefix("1 host of "), num_hosts=1, hosts_per_leaf=1)
    return load_cluster(f"preset:{words.removeprefix('4 of ')}")


def config_of(row, cases, tmp_path):
    name = row["model"]
    if (path := cases / "huggingface" / f"{name}.json").is_file():
        return str(path)
    data = QWEN_7B
    if name == "llama2-7b":
        sizes = {key: QWEN_7B[key] for key in QWEN_7B if key.startswith(("hidden", "num", "intermediate"))}
        data = json.loads((cases / "huggingface" / "llama2-13b.json").read_text()) | sizes
    elif "config" in row:
        data = {"model_type": row["family"], **(BERT if row["family"] == "bert" else {}), **row["config"]}
    (tmp_path / "config.json").write_text(json.dumps(data))
    return str(tmp_path / "config.json")


def outcome(*args, **more):
    try:
        result = estimate(*args, **more)
    except PlanError as error:
        return "refused" if "a reserve of" in str(error) else str(error)
    return "tight" if result.to_data()["is_tight"] else "fits"


def test_runs_out_of_memory_are_refused_or_tight(cases, tmp_path):
    rows = json.loads((cases / "published_runs.json").read_text())["rows"]
    twice = next(row for row in rows if row["id"] == "tt-l2-70b-selop")
    layout = twice["layout"].replace("micro_batch=1,global_batch=64", "micro_batch=2,global_batch=128")
    for row in [row for row in rows if row.get("ran_out_of_memory")] + [twice | {"id": "twice", "layout": layout}]:
        config, where = config_of(row, cases, tmp_path), cluster_of(row["cluster"])
        result = outcome(config, where, row["layout"], framework=row["framework"], sequence_length=row["sequence"])
        assert result in ("refused", "tight"), row["id"]


@pytest.mark.parametrize(("gib", "expected"), [(10.7, "fits"), (10.3, "tight"), (9.9, "refused")])
def test_a_fit_within_its_uncertainty_is_tight_worked_by_hand(gib, expected):
    # 10.73e9 bytes are held, 9.99 GiB (see the sum of the table of `estimate`), and with 6 % more 10.59 GiB.
    device = {"name": "a100-mine", "memory_gib": gib}
    layout = "dp=1,micro_batch=8,global_batch=8"
    assert outcome("zoo:gpt2-small", changed("host-8", device), layout, sequence_length=1024) == expected


@pytest.fixture(scope="module")
def met(cases, tmp_path_factory):
    """Runs with a known speed, all accepted: how far off, whether inside, half the interval's width; by family and name."""
    published, steps = (json.loads((cases / f"{name}.json").read_text())["rows"] for name in ("published_runs", "h200_steps"))
    for row in steps:
        keys = f"micro_batch={row['micro_batch']},global_batch={row['micro_batch']},recompute={row['recompute']}"
        row["layout"] = f"dp=1,zero=3,{keys},compile={str(row['compile']).lower()}"
    result, folder = {}, tmp_path_factory.mktemp("configs")
    for row in [row for row in published if not row.get("ran_out_of_memory")] + steps:
        args = config_of(row, cases, folder), cluster_of(row.get("cluster", "dgx-h200-8x8")), row["layout"]
        made = estimate(*args, framework=row.get("framework", "fsdp2"), sequence_length=row["sequence"])
        layout, step = made.layout, made.step
        families = ("experts" if layout.ep > 1 else layout.precision, row["framework"]) if row in published else ("one h200",)
        if "mfu_percent" in row:
            measured_s = step.step_s * 100 * step.mfu / row["mfu_percent"]
        elif "step_time_s" in row:
            measured_s = row["step_time_s"]
        else:
            measured_s = layout.global_batch * row["sequence"] / layout.world / row["tokens_per_s_per_gpu"]
        low, high = interval(step.step_s, step.uncertainty)
        one = abs(step.step_s / measured_s - 1), low <= measured_s <= high, (high - low) / 2 / step.step_s
        for family in families:
            result.setdefault(family, {})[row["id"]] = one
        if "allocated_gib" in row:
            result.setdefault("allocated", {})[row["id"]] = abs(made.peak.allocated / 2**30 / row["allocated_gib"] - 1)
    return result


@pytest.mark.parametrize(
    ("family", "most", "mean"), [("bf16", 0.12, 0.07), ("fp8", 0.15, 0.15), ("experts", 0.25, 0.15), ("megatron", 0.25, 0.068)]
)
def test_published_runs_are_met_by_family_inside_their_intervals(met, family, most, mean):
    errors, inside, widths = zip(*met[family].values(), strict=True)
    assert max(errors) <= most
    assert math.fsum(errors) / len(errors) <= mean
    assert all(inside)
    assert family != "bf16" or math.fsum(widths) / len(widths) <= 0.2


def test_steps_on_one_h200_are_met(met):
    errors = [row[0] for row in met["one h200"].values()]
    assert math.fsum(errors) / len(errors) <= 0.09
    assert max(errors) <= 0.25
    *others, worst = sorted(met["allocated"].values())  # of tensors
    assert len(others) == 11
    assert others[-1] <= 0.1
    assert worst <= 0.15  # Qwen3-0.6B: norms of transformers keep more than one kernel does


def inside(met):
    rows = [row[1] for family in ("fsdp2", "megatron", "one h200") for row in met[family].values()]
    return sum(rows) / len(rows)


def test_intervals_hold_as_many_as_they_say(met):
    assert inside(met) >= 0.88


@pytest.mark.xfail(strict=True, reason="all 22 rows, as one time in three where each interval holds 95 of 100")
def test_intervals_hold_no_more_than_they_say(met):
    assert inside(met) <= 0.99
