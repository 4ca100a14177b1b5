"""One layout on one cluster: figures with provenance, refusals with numbers, what each switch changes."""

import json
import re

import pytest

from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.uncertainty import SEEN_UTILISATION, UTILISATION, operations, per_step
from meshwright.errors import PlanError
from meshwright.planning.estimate import estimate

LAYOUT = "tp=4,dp=16,micro_batch=1,global_batch=128,sequence_parallel=true,distributed_optimizer=true"


@pytest.fixture(scope="module")
def llama():
    return estimate("zoo:llama-7b", "preset:dgx-a100-8x8", LAYOUT)


@pytest.mark.parametrize(
    ("job", "layout", "rate", "amount"),
    [
        ("zoo:llama-7b", LAYOUT, "tokens_per_s", 128 * 2048),
        ("zoo:vgg16", "dp=4,pp=2,micro_batch=8,global_batch=64", "samples_per_s", 64),
    ],
)
def test_every_figure_has_a_provenance_and_an_uncertainty(job, layout, rate, amount):
    result = estimate(job, "preset:dgx-a100-8x8", layout)
    figures = {figure.name: (figure, spread) for figure, spread in result.figures()}
    assert set(figures) == {"step_s", rate, "mfu", "hfu", "memory_bytes"}
    assert all(figure.provenance == "estimated" and 0 < spread < 1 for figure, spread in figures.values())
    assert figures[rate][0].value == pytest.approx(amount / result.step.step_s)
    assert figures["memory_bytes"][0].value == max(one.total for one in result.memory)
    data = json.loads(json.dumps(result.to_data()))
    assert sum(part["seconds"] for part in data["breakdown"]) == pytest.approx(result.step.step_s)


def test_selective_recomputation_without_effect_says_so():
    layout = "tp=4,dp=2,micro_batch=1,global_batch=8"
    fused, unfused = (
        estimate("zoo:gpt2-small", "preset:host-8", f"{layout},recompute=selective{more}") for more in ("", ",attention=unfused")
    )
    assert fused.step.step_s == estimate("zoo:gpt2-small", "preset:host-8", layout).step.step_s
    (remark,) = fused.to_data()["remarks"]  # and none of what is hidden unasked
    assert estimate("zoo:gpt2-small", "preset:host-8", "micro_batch=1,global_batch=1").remarks == ()
    (request,) = estimate("zoo:gpt2-small", "preset:host-8", "micro_batch=1,global_batch=1,overlap_dp=true").remarks
    assert request == "overlap_dp=true changes nothing: dp x cp is 1"
    assert remark.startswith("recompute=selective changes nothing: fused attention")
    assert unfused.remarks == ()


@pytest.mark.parametrize(
    ("cluster", "framework", "message"),
    [
        (
            "dgx-h100-8x8",
            "fsdp2",
            r"rows of logits of a vocabulary of 50,257 .* take [\d.]+ ms .*, and [\d.]+ ms if it is padded to 50,264",
        ),
        ("dgx-a100-8x8", "fsdp2", r"several times as long as priced; pad it to 50,264"),
        ("dgx-h100-8x8", "megatron", None),
    ],
)
def test_a_vocabulary_that_nobody_pads_is_told_with_what_it_costs(cluster, framework, message):
    layout = "dp=8,micro_batch=1,global_batch=8"
    result = estimate("zoo:gpt2-xl", f"preset:{cluster}", layout, sequence_length=512, framework=framework)
    about = [line for line in result.remarks if "logits" in line]
    assert len(about) == (message is not None)
    assert message is None or re.search(message, about[0])
    single = estimate(
        "zoo:gpt2-xl", f"preset:{cluster}", f"{layout},precision=fp32,attention=unfused", sequence_length=512, framework=framework
    )
    assert not [line for line in single.remarks if "logits" in line]  # only products in 16 bits were measured


def test_a_sequence_has_tokens():
    with pytest.raises(PlanError, match=r"sequence_length: a sequence has at least one token \(got 0\)"):
        estimate("zoo:llama-7b", "preset:dgx-a100-8x8", LAYOUT, sequence_length=0)


def test_communications_tell_where_their_times_come_from(llama):
    # tp of four is inside a host, on the measured lines; gradients go between hosts, where only nominal figures are known
    parts = {part.name: part for part in llama.parts()}
    assert parts["exposed tp"].provenance == "interpolated"
    assert parts["gradient sync"].provenance == parts["compute"].provenance == "estimated"
    assert parts["gradient sync"].uncertainty > parts["exposed tp"].uncertainty >= parts["compute"].uncertainty == 0.1
    assert llama.step.uncertainty_terms["kernels"] == 0.1
    # no parallelism along the pipeline: nothing is sent, so nothing is told of it
    assert "pipeline transfers" not in llama.provenance


def test_a_table_of_the_very_sizes_makes_a_communication_measured():
    # a micro-batch of one: 2,048 tokens x 768 numbers of two bytes are 3 MiB; between 2 and 4 MiB of the table
    costs = CostSettings(collectives="measured", collectives_table="a100")
    result = estimate("zoo:gpt2-small", "preset:host-8", "tp=2,dp=4,micro_batch=1,global_batch=32", costs=costs)
    assert {part.name: part.provenance for part in result.parts()}["exposed tp"] == "interpolated"
    nominal = CostSettings(collectives="ring")
    result = estimate("zoo:gpt2-small", "preset:host-8", "tp=2,dp=4,micro_batch=1,global_batch=32", costs=nominal)
    assert {part.name: part.provenance for part in result.parts()}["exposed tp"] == "estimated"


def test_model_operations_are_about_six_for_each_parameter_and_token(llama):
    # 6.7 billion parameters, 128 x 2,048 tokens; the embedding is looked up, attention comes on top: within 15 %
    assert llama.step.model_flops == pytest.approx(6 * 6.74e9 * 128 * 2048, rel=0.15)


@pytest.mark.parametrize(
    ("job", "layout", "kind", "message"),
    [
        ("zoo:llama-7b", "dp=1,micro_batch=1,global_batch=1", PlanError, r"needs \d+\.\d GB .* a device has 85\.2 GB"),
        ("zoo:llama-7b", "dp=128,micro_batch=1,global_batch=128", PlanError, "128 ranks, dgx-a100-8x8 only 64 devices"),
        ("zoo:llama-7b", "tp=3,micro_batch=1,global_batch=3", PlanError, r"layout\.tp: does not divide the 32 heads"),
    ],
)
def test_what_cannot_be_priced_is_refused(job, layout, kind, message):
    with pytest.raises(kind, match=message):
        estimate(job, "preset:dgx-a100-8x8", layout)


def test_what_no_measured_run_has_shown_makes_a_step_less_sure(llama):
    hidden = estimate("zoo:llama-7b", "preset:dgx-a100-8x8", LAYOUT + ",overlap_tp=true")
    shown = estimate("zoo:llama-7b", "preset:dgx-a100-8x8", LAYOUT + ",overlap_dp=false")
    assert hidden.step.step_s < llama.step.step_s < shown.step.step_s
    assert "hidden communication" not in shown.step.uncertainty_terms
    assert hidden.step.uncertainty_terms["hidden communication"] > llama.step.uncertainty_terms["hidden communication"] > 0.02
    assert hidden.step.uncertainty > shown.step.uncertainty > 0.1
    # without tensor parallelism, with large micro-batches and gradients that hide, about the most that a search finds
    fast = estimate("zoo:llama-7b", "preset:dgx-a100-8x8", "dp=64,micro_batch=4,global_batch=256,zero=2,overlap_dp=true")
    done = per_step(fast.work, 0, operations) / (fast.step.step_s * fast.cluster.device_types[0].peak_flops_per_s)
    assert done > SEEN_UTILISATION
    assert fast.step.uncertainty_terms[UTILISATION] == pytest.approx(done / SEEN_UTILISATION - 1)
    reported = json.loads(json.dumps(fast.to_data()))["uncertainty"]
    assert reported == fast.step.uncertainty_terms
    assert sum(spread**2 for spread in reported.values()) ** 0.5 == pytest.approx(fast.figures()[0][1])
