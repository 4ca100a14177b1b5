"""Memory of a layout: the published formulas, what sharding saves, refusal with the number."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.work.activations.stage_activations import activation_bytes
from meshwright.costs.work.memory import peak_memory, stage_memory, updated_bytes
from meshwright.costs.work.step_work import check_fits
from meshwright.costs.work.work import describe
from meshwright.errors import PlanError
from meshwright.evaluation.validation.step_times.published_step import gpt
from meshwright.plans.partition import Layout
from meshwright.quantities import compared_gb

GIB = 2.0**30

# Korthikanti et al., 2022, table 3: layers, hidden, heads, tp, pp, virtual stages, micro-batch, global batch
PUBLISHED = {
    "22B": (48, 6144, 64, 8, 1, 1, 4, 4),
    "175B": (96, 12288, 96, 8, 8, 3, 1, 64),
    "530B": (105, 20480, 128, 8, 35, 3, 1, 280),
    "1T": (128, 25600, 160, 8, 64, 1, 1, 512),
}


def published(name, *, sequence_parallel=False, recompute="none"):
    layers, hidden, heads, tp, pp, v, micro, batch = PUBLISHED[name]
    cut = Layout(
        tp=tp,
        pp=pp,
        virtual_stages=v,
        schedule="interleaved" if v > 1 else "1f1b",
        micro_batch=micro,
        global_batch=batch,
        sequence_parallel=sequence_parallel,
        recompute=recompute,
        attention="unfused",
    )
    return describe(gpt(layers, hidden, heads, 51200, 2048), cut, 2048)


def small(**keys):
    return describe(gpt(8, 512, 8, 1024, 128), Layout(**({"micro_batch": 2, "global_batch": 32} | keys)), 128)


PER_NUMBER = {
    # Korthikanti et al., 2022, equations 1 to 6 and section 5, with 5 a s / h = 5 x 8 x 128 / 512 = 10 and t = 4: bytes for
    # each of the s b h / c numbers that a rank of c keeps of a layer's input. Fused attention keeps no scores but a float32
    # statistic for each query of each head, 4 a / h = 1 / 16.
    ("none", "unfused", False): 10 + 24 / 4 + 10 / 4,
    ("none", "unfused", True): (34 + 10) / 4,
    ("selective", "unfused", False): 10 + 24 / 4,
    ("selective", "unfused", True): 34 / 4,
    ("full", "unfused", False): 2,
    ("full", "unfused", True): 2 / 4,
    ("none", "fused", False): 10 + 24 / 4 + 1 / 64,
    ("none", "fused", True): 34 / 4 + 1 / 64,
    ("selective", "fused", False): 10 + 24 / 4 + 1 / 64,
    ("selective", "fused", True): 34 / 4 + 1 / 64,
    ("full", "fused", False): 2,
    ("full", "fused", True): 2 / 4,
}


@pytest.mark.parametrize("cp", [1, 2])
@pytest.mark.parametrize(("recompute", "attention", "sequence_parallel"), PER_NUMBER)
def test_a_layers_activations_worked_by_hand(recompute, attention, sequence_parallel, cp):
    keys = {"recompute": recompute, "attention": attention, "sequence_parallel": sequence_parallel}
    expected = PER_NUMBER[recompute, attention, sequence_parallel] * 128 * 2 * 512 / cp
    assert activation_bytes(small(tp=4, cp=cp, **keys)) == pytest.approx(8 * expected)  # eight layers


@pytest.mark.parametrize("attention", ["fused", "unfused"])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_stage_that_recomputes_also_holds_the_block_that_is_recomputed_worked_by_hand(sequence_parallel, attention):
    # One micro-batch, no pipeline: eight inputs, or layers without scores, and beside them one whole layer, or one layer's
    # scores; the mask of the embedding's dropout, and the inputs of the last norm and of the head (2 bytes each).
    numbers = 128 * 2 * 512
    split = 4 if sequence_parallel else 1
    ends = (1 + 2 + 2) / split
    whole = PER_NUMBER["none", attention, sequence_parallel]
    for recompute in ("none", "selective", "full"):
        stored = PER_NUMBER[recompute, attention, sequence_parallel]
        again = {"none": 0.0, "selective": whole - stored, "full": whole}[recompute]
        held = 8 * stored + again + ends
        work = small(tp=4, attention=attention, recompute=recompute, sequence_parallel=sequence_parallel)
        assert stage_memory(work, 0).activations == pytest.approx(held * numbers)


@given(
    recompute=st.sampled_from(["none", "selective", "full"]),
    attention=st.sampled_from(["fused", "unfused"]),
    tp=st.sampled_from([1, 2, 4, 8]),
    cp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([1, 2, 4]),
    micro_batch=st.sampled_from([1, 2, 4]),
)
def test_what_a_rank_keeps_shrinks_with_sequence_parallelism_recomputation_and_degrees(
    recompute, attention, tp, cp, pp, micro_batch
):
    def kept(**keys):
        cut = {"recompute": recompute, "attention": attention, "tp": tp, "cp": cp, "pp": pp, "micro_batch": micro_batch}
        return activation_bytes(small(**(cut | keys)))

    # Under sequence parallelism nothing of a layer stands whole on a rank, so that tp cuts all of it.
    assert kept(sequence_parallel=True) == pytest.approx(kept(tp=1) / tp)
    assert kept(sequence_parallel=True) <= kept() * (1 + 1e-12)
    assert kept() == pytest.approx(kept(cp=1) / cp)
    assert kept() == pytest.approx(micro_batch * kept(micro_batch=1))
    assert kept(recompute="full") <= kept(recompute="selective") <= kept(recompute="none")


@pytest.mark.reference
def test_published_memory_is_met(reference):
    # bounds: activations 3 % mean, parameters with optimizer 6 % mean (the figure counts a stage without embedding or head,
    # so the mean over stages is held against it)
    data = json.loads((reference / "published" / "step_times.json").read_text())
    activations, states = [], []
    for name, row in data["korthikanti_fig1_memory_GiB"]["rows"].items():
        base = published(name)
        present = published(name, sequence_parallel=True, recompute="selective")
        activations.append(activation_bytes(base) / GIB / row["act_tp"] - 1)
        activations.append(activation_bytes(present) / GIB / row["act_present"] - 1)
        stages = [stage_memory(base, stage).model_state for stage in range(base.layout.pp)]
        states.append(sum(stages) / len(stages) / GIB / row["par_opt"] - 1)
    for name, row in data["korthikanti_fig7_activation_pct"]["rows"].items():
        whole = activation_bytes(published(name))
        for key, kind in (
            ("seq", {"sequence_parallel": True}),
            ("sel", {"recompute": "selective"}),
            ("seqsel", {"sequence_parallel": True, "recompute": "selective"}),
            ("full", {"recompute": "full"}),
        ):
            activations.append(100 * activation_bytes(published(name, **kind)) / whole / row[key] - 1)
    assert sum(map(abs, activations)) / len(activations) < 0.03
    assert sum(map(abs, states)) / len(states) < 0.06


@pytest.mark.parametrize(
    ("keys", "bytes_per_parameter"),
    [
        ({}, 18.0),  # 2 weight, 4 gradient, 12 master weight and moments
        ({"fp32_gradients": False}, 16.0),
        ({"zero": 1}, 6 + 12 / 4),
        ({"distributed_optimizer": True}, 6 + 12 / 4),
        ({"zero": 2}, 2 + 16 / 4),
        ({"zero": 3}, 18 / 4),
        ({"zero": 3, "pp": 4}, 18 / 4),
        ({"zero": 3, "shard_group": 2}, 18 / 2),
        ({"optimizer_bytes": 1, "zero": 1}, 6 + (4 + 2 * 1) / 4),  # master weight in float32, moments in 8 bits
        ({"framework": "megatron", "optimizer_bytes": 2, "zero": 1}, 6 + (2 + 2 * 2) / 4),  # masters: what 16 bits lack
        ({"precision": "autocast", "zero": 1}, 4 + 2 + 4 + 8 / 4),  # weights and their 16-bit copies, gradients, moments
        ({"framework": "fsdp2", "zero": 3, "optimizer_bytes": 1}, (4 + 4 + 2 * 1) / 4),
    ],
)
def test_sharding_leaves_its_share_of_the_model_state(keys, bytes_per_parameter):
    work = small(dp=4, **keys)
    for stage, held in enumerate(work.stages):
        assert stage_memory(work, stage).model_state == pytest.approx(bytes_per_parameter * held.parameters)


@pytest.mark.parametrize(
    ("keys", "bucket_bytes"),
    [
        ({"zero": 2}, 2 * 5e8),  # one bucket of 16 bits and the sum's flat copy
        ({"zero": 2, "overlap_dp": True}, 2 * 2 * 5e8),
        ({"zero": 1, "precision": "fp16", "overlap_dp": True}, 2 * 4 * 5e8),  # ZeRO-1 stages gradients as they are summed
    ],
)
def test_buckets_of_deepspeed_have_their_full_size_worked_by_hand(keys, bucket_bytes):
    work, plain = small(dp=4, framework="deepspeed", **keys), small(dp=4, **keys)
    width = 4 if keys["zero"] == 1 else 2
    flat, own = width * work.stages[0].parameters, 4 * work.stages[0].parameters
    buffers = [stage_memory(one, 0).buffers for one in (work, plain)]
    loss = (12 - 10) * 2 * 128 * 1024  # of each logit, as PyTorch's loss holds it
    assert buffers[0] - buffers[1] == pytest.approx(bucket_bytes + flat - own + loss)


@pytest.mark.parametrize(("fp32_gradients", "zero"), [(True, 1), (True, 2), (False, 2), (True, 3), (False, 3)])
def test_an_update_of_deepspeed_holds_its_part_of_the_gradients_twice_worked_by_hand(fp32_gradients, zero):
    # The part as it is summed, and a flat copy: 4 + 4 bytes of each of 1,000 parameters, or 2 + 2 with 4 in float32
    layout = Layout(
        **{"micro_batch": 1, "global_batch": 1, "framework": "deepspeed", "precision": "fp16"},
        **{"zero": zero, "fp32_gradients": fp32_gradients},
    )
    assert updated_bytes(layout, 1e3) == 8e3
    assert updated_bytes(layout, 3e9) == (24e9 if zero < 3 else 3e9 * layout.gradient_bytes + 1e9 * (8 - layout.gradient_bytes))
    assert updated_bytes(layout.model_copy(update={"offload": "optimizer"}), 1e3) == 0


def test_where_an_update_holds_more_than_a_backward_pass_it_decides():
    # One layer of 12 x 8192^2 = 0.8 billion parameters, a sequence of 2: next to nothing is kept but for an update
    keys = {"micro_batch": 1, "global_batch": 1, "zero": 2, "precision": "fp16", "fp32_gradients": False}
    shape = gpt(4, 8192, 64, 2, 2)
    work = describe(shape, Layout(**keys, framework="deepspeed"), 2)
    held = stage_memory(work, 0)
    assert (held.gradients, held.activations, held.buffers) == (8 * work.stages[0].parameters, 0, 0)
    assert stage_memory(describe(shape, Layout(**keys), 2), 0).gradients == 2 * work.stages[0].parameters


def test_the_first_stage_keeps_as_many_micro_batches_as_there_are_stages():
    work = small(pp=4)
    assert activation_bytes(work, 0) == 4 * activation_bytes(work, 3)


def test_zero_bubble_h1_keeps_no_more_than_1f1b_and_2p_nearly_twice():
    plain, h1, double = (activation_bytes(small(pp=4, schedule=s), 0) for s in ("1f1b", "zb-h1", "zb-2p"))
    assert h1 == plain
    assert double == pytest.approx(plain * 7 / 4)


def test_full_recomputation_keeps_inputs_until_the_backward_pass_and_more_for_the_weight_gradient_worked_by_hand():
    # Two stages of four layers, fused attention: a layer's input is 2 bytes a number; for its weight gradient it has again
    # all activations of the layer. ZB-H1 keeps two inputs on the first stage, or one and one such layer; on the last two such.
    work = small(pp=2, schedule="zb-h1", recompute="full")
    numbers = 128 * 2 * 512
    again = activation_bytes(small(pp=2, schedule="zb-h1", micro_batch=2, global_batch=2), 0)  # of one micro-batch
    assert activation_bytes(work, 0) == pytest.approx(max(2 * 4 * 2 * numbers, 4 * 2 * numbers + again))
    assert activation_bytes(work, 1) == pytest.approx(2 * again)


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-2p"])
def test_full_recomputation_saves_a_zero_bubble_pipeline_what_waits_for_backward_passes_alone(schedule):
    stored, again, plain = (
        small(pp=4, attention="unfused", **keys)
        for keys in ({"schedule": schedule}, {"schedule": schedule, "recompute": "full"}, {"recompute": "full"})
    )
    for stage in range(4):
        assert activation_bytes(plain, stage) <= activation_bytes(again, stage) <= activation_bytes(stored, stage)


def test_uneven_interleaving_keeps_what_its_rounds_are_long():
    # four stages, two chunks: seven micro-batches in one round keep (6 + 7 + 1) / 2 on the first stage, eight in two
    # rounds (6 + 4 + 1) / 2
    keys = {"pp": 4, "schedule": "interleaved", "virtual_stages": 2}
    seven, eight = (activation_bytes(small(global_batch=2 * m, **keys)) for m in (7, 8))
    one = activation_bytes(small(pp=4, global_batch=2))
    assert (seven, eight) == (pytest.approx(7 * one), pytest.approx(5.5 * one))


def test_the_peak_is_the_largest_of_all_stages():
    full = {"pp": 4, "recompute": "full"}
    for keys in (
        {"pp": 4},
        {"pp": 8},
        {"pp": 3, "global_batch": 48},
        full,
        full | {"schedule": "zb-h1"},
        full | {"zero": 3, "dp": 2},
    ):
        work = small(**keys)
        assert peak_memory(work)[1].total == max(stage_memory(work, s).total for s in range(work.layout.pp))


EXPERTS = gpt(8, 512, 8, 1024, 128, is_head_tied=False, num_experts=8, experts_per_token=2)


def test_ranks_along_the_sequence_share_the_experts_too_worked_by_hand():
    # dp 2 and cp 2 are four ranks, which hold two different sets of experts: four shards of the rest, two of each expert.
    work = describe(EXPERTS, Layout(dp=2, cp=2, ep=2, zero=3, micro_batch=2, global_batch=32), 128)
    held = work.stages[0]
    assert held.expert_parameters > 0
    assert stage_memory(work, 0).model_state == pytest.approx(18 * (held.dense_parameters / 4 + held.expert_parameters / 2))


def test_fsdp2_has_two_chunks_of_a_stages_gradients_whole_worked_by_hand():
    # While those of one of four chunks are reduced, those of the next one are computed: half of 4 bytes, the rest in shards.
    work = small(framework="fsdp2", zero=2, dp=4, pp=2, schedule="interleaved", virtual_stages=4)
    assert stage_memory(work, 0).gradients == pytest.approx(4 * (1 / 2 + 1 / 2 / 4) * work.stages[0].parameters)


@pytest.mark.parametrize(("vocabulary", "length", "expected"), [(65536, 128, "loss"), (2, 4096, "last"), (2, 16, "first")])
def test_reduced_gradients_of_fsdp2_are_of_a_stream_of_their_own_worked_by_hand(vocabulary, length, expected):
    # The allocator holds all gradients in addition to all else. Tensors are those at the worst moment: none
    # at the loss or in the last layer of a single micro-batch, all in the first of eight layers, which has its own eighth.
    keys = {"framework": "fsdp2", "zero": 3, "dp": 2, "micro_batch": 2}
    shape = gpt(8, 64, 1, vocabulary, 4096)
    single, several = (describe(shape, Layout(global_batch=batch, **keys), length) for batch in (4, 8))
    held, more = stage_memory(single, 0), stage_memory(several, 0)
    gradients = 4 / 2 * single.stages[0].parameters
    missing = {"loss": gradients, "last": gradients, "first": 7 / 8 * held.activations}[expected]
    assert held.gradients == more.gradients == gradients
    assert held.total == more.total
    assert held.total - held.runtime - held.allocated == pytest.approx(missing)
    assert more.allocated == more.total - more.runtime


@pytest.mark.parametrize(("framework", "more"), [("fsdp2", 2 * 96), ("deepspeed", 2 * 96 + 2 * 4 * 64)])
def test_what_compiled_layers_compute_again_is_not_kept_worked_by_hand(framework, more):
    # Both factors of a gate's product, 2 bytes of 96 numbers of a token; 4 bytes of 64 in each of two norms of transformers.
    shape = gpt(2, 64, 1, 64, 128, is_gated=True, feed_forward=96, norm_vectors=1)
    layouts = (Layout(framework=framework, compile=so, micro_batch=2, global_batch=2) for so in (False, True))
    eager, compiled = (activation_bytes(describe(shape, layout, 128)) for layout in layouts)
    assert eager - compiled == 2 * 2 * 128 * more


def test_a_device_of_just_the_bytes_fits_and_one_of_a_byte_less_does_not():
    peak = peak_memory(small())
    check_fits(peak, peak[1].total)
    with pytest.raises(PlanError, match="a rank of stage 0 needs"):
        check_fits(peak, peak[1].total - 1)


def test_digits_of_a_refusal_tell_need_and_capacity_apart():
    assert compared_gb(85.51e9, 84.9e9) == ("85.5 GB", "84.9 GB", "0.6 GB")
    assert compared_gb(84.934e9, 84.9e9) == ("84.934 GB", "84.900 GB", "0.034 GB")
    for short_bytes in (1, 999, 10**5, 10**7, 99_999_999, 10**8, 10**10):
        need, has, short = compared_gb(84.9e9 + short_bytes, 84.9e9)
        assert need != has
        assert float(short.split()[0]) > 0


def test_what_does_not_fit_is_refused_with_the_number():
    work = published("22B")
    check_fits(peak_memory(work), 200e9)
    with pytest.raises(PlanError, match=r"needs 1\d\d\.\d GB .* a device has 80\.0 GB"):
        check_fits(peak_memory(work), 80e9)


def test_memory_makes_no_passes_and_micro_batches_of_any_size_share_what_stages_hold():
    shape = gpt(6, 768, 12, 51200, 2048)
    first, other = (describe(shape, Layout(pp=2, dp=2, micro_batch=size, global_batch=12, zero=1), 333) for size in (1, 3))
    assert peak_memory(first)[1].model_state == peak_memory(other)[1].model_state
    assert first.stages is other.stages
    assert "blocks" not in first.shared
