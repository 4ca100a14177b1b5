"""The description of a layout: operations add up, the cut changes where work is done and not how much, bad cuts are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.work.layer import embedding, head
from meshwright.costs.work.model_chunks import is_legal
from meshwright.costs.work.operations import Message, Product, input_part, weight_part
from meshwright.costs.work.work import describe
from meshwright.errors import PlanError
from meshwright.evaluation.validation.step_times.published_step_times import gpt
from meshwright.jobs.transformer import TransformerShape
from meshwright.plans.partition import Layout

from .pass_flops import product_flops

SMALL = gpt(8, 512, 8, 1024, 128)
MIXTURE = TransformerShape(
    name="mixture",
    num_layers=4,
    hidden=512,
    num_heads=8,
    num_key_value_heads=4,
    head_dim=64,
    feed_forward=1024,
    vocabulary=1000,
    max_positions=256,
    num_experts=8,
    experts_per_token=2,
)


def layout(**keys):
    return Layout(**({"micro_batch": 2, "global_batch": 32} | keys))


def test_a_layers_products_worked_by_hand():
    # tokens 2 x 128; qkv 3 h^2, output h^2, mlp 8 h^2: 24 b s h^2; scores and context 4 b s^2 h
    work = describe(SMALL, layout(attention="unfused"), 128)
    assert product_flops(work.layer.forward) == 24 * 256 * 512**2 + 4 * 256 * 128 * 512
    assert product_flops(work.layer.backward) == 2 * product_flops(work.layer.forward)


@given(tp=st.sampled_from([1, 2, 4, 8]), sequence_parallel=st.booleans())
def test_tensor_parallel_ranks_share_the_products(tp, sequence_parallel):
    whole = describe(SMALL, layout(attention="unfused"), 128)
    part = describe(SMALL, layout(attention="unfused", tp=tp, sequence_parallel=sequence_parallel), 128)
    assert tp * product_flops(part.layer.forward) == product_flops(whole.layer.forward)
    assert tp * product_flops(part.blocks["head"].forward) == product_flops(whole.blocks["head"].forward)


@given(
    shape=st.sampled_from([SMALL, MIXTURE]),
    keys=st.fixed_dictionaries(
        {"cp": st.sampled_from([1, 2, 4]), "ep": st.sampled_from([1, 2]), "zero": st.sampled_from([0, 3])}
    ),
    framework=st.sampled_from([None, "fsdp2", "megatron", "deepspeed"]),
    recompute=st.sampled_from(["none", "full"]),
)
def test_embedding_and_head_are_those_of_the_ranks_tokens_and_shared_with_other_cuts(shape, keys, framework, recompute):
    asked = layout(dp=4, framework=framework, recompute=recompute, **(keys | {"ep": min(keys["ep"], shape.num_experts or 1)}))
    blocks, plain = describe(shape, asked, 128, checks=False).blocks, asked.model_copy(update={"recompute": "none"})
    assert (blocks["embedding"], blocks["head"]) == (
        embedding(shape, plain, 128),
        head(shape, plain, 128, not shape.is_head_tied),
    )
    same_tokens = asked.model_copy(update={"cp": 2 * asked.cp, "micro_batch": 2 * asked.micro_batch})
    assert describe(shape, same_tokens, 128, checks=False).blocks["head"] is blocks["head"]


def test_a_layer_under_tensor_parallelism_reduces_four_times():
    # two sums forward, two backward of 2 b s h bytes (Shoeybi et al., "Megatron-LM", 2019)
    work = describe(SMALL, layout(tp=4), 128)
    sums = [i for i in (*work.layer.forward, *work.layer.backward) if isinstance(i, Message)]
    assert [i.operation for i in sums] == ["all_reduce"] * 4
    assert {i.payload_bytes for i in sums} == {2 * 2 * 128 * 512}


def test_sequence_parallelism_moves_as_much_forward_by_gathering_and_scattering():
    work = describe(SMALL, layout(tp=4, sequence_parallel=True), 128)
    kinds = [i.operation for i in work.layer.forward if isinstance(i, Message)]
    assert kinds == ["all_gather", "reduce_scatter"] * 2


def test_a_parallel_block_halves_the_messages():
    two = describe(SMALL, layout(tp=4), 128)
    one = describe(gpt(8, 512, 8, 1024, 128, is_parallel=True), layout(tp=4), 128)

    def count(items):
        return sum(isinstance(i, Message) for i in items)

    assert 2 * count(one.layer.forward) == count(two.layer.forward)
    assert 2 * count(one.layer.backward) == count(two.layer.backward)
    assert product_flops(one.layer.backward) == product_flops(two.layer.backward)


def test_full_recomputation_does_the_forward_pass_again_and_selective_only_attentions_inside():
    full = describe(SMALL, layout(recompute="full", attention="unfused"), 128).layer
    assert full.recompute == full.forward
    inside = describe(SMALL, layout(recompute="selective", attention="unfused"), 128).layer
    assert product_flops(inside.recompute) == 4 * 256 * 128 * 512
    assert describe(SMALL, layout(recompute="selective"), 128).layer.recompute == ()


@given(tp=st.sampled_from([1, 4]), sequence_parallel=st.booleans(), overlap=st.booleans())
def test_the_two_parts_of_a_backward_pass_make_the_whole(tp, sequence_parallel, overlap):
    items = describe(SMALL, layout(tp=tp, sequence_parallel=sequence_parallel, overlap_tp=overlap), 128).layer.backward
    first, second = input_part(items), weight_part(items)
    assert len(first) + len(second) == len(items)
    assert all(i.is_weight for i in second)
    assert product_flops(first) + product_flops(second) == product_flops(items)
    for part in (first, second, items):
        for place, item in enumerate(part):
            assert not isinstance(item, Message) or place + item.num_concurrent < len(part)


@given(pp=st.sampled_from([1, 2, 3, 4]), v=st.sampled_from([1, 2]))
def test_chunks_hold_every_layer_once(pp, v):
    keys = {"schedule": "interleaved", "virtual_stages": v} if v > 1 and pp > 1 else {}
    cut = layout(pp=pp, global_batch=48, **keys)
    shape = gpt(24, 512, 8, 1024, 128)
    work = describe(shape, cut, 128)
    assert sum(chunk.num_layers for chunk in work.chunks) == 24
    assert [chunk.has_embedding for chunk in work.chunks].index(True) == 0
    assert work.chunks[-1].has_head
    assert len(work.stages) == pp


def test_all_ranks_together_hold_the_models_parameters():
    # 12 h^2 + 13 h a layer (Narayanan et al., 2021), table and positions once; two norms' biases are not cut by tp
    whole = describe(SMALL, layout(), 128).stages[0].parameters
    assert whole == 8 * (12 * 512**2 + 13 * 512) + (1024 + 128) * 512 + 2 * 512
    parts = describe(SMALL, layout(pp=4), 128).stages
    assert sum(stage.parameters for stage in parts) == whole + 1024 * 512  # the tied table has a copy at the end


def test_experts_share_their_parameters_over_ep_and_move_tokens_twice_each_way():
    one = describe(MIXTURE, layout(dp=4), 256)
    four = describe(MIXTURE, layout(dp=4, ep=4), 256)
    assert one.layer.expert_parameters == 4 * four.layer.expert_parameters == 8 * 3 * 512 * 1024
    moved = [i for i in (*four.layer.forward, *four.layer.backward) if isinstance(i, Message) and i.operation == "all_to_all"]
    # b s h top_k numbers of two bytes, dispatch and combine, forward and backward
    assert [i.payload_bytes for i in moved] == [2 * 2 * 256 * 512 * 2] * 4
    assert {m.axis for m in four.stages[0].sync} == {"dp_cp"}  # nobody shares these experts
    assert {m.axis for m in describe(MIXTURE, layout(dp=4, ep=2), 256).stages[0].sync} == {"dp_cp", "expert_dp"}


@pytest.mark.parametrize("kind", ["ring", "all-gather", "ulysses"])
def test_context_parallel_ranks_share_the_tokens(kind):
    whole = describe(SMALL, layout(), 128).layer
    part = describe(SMALL, layout(cp=4, context_parallel=kind), 128).layer
    assert 4 * product_flops(part.forward) == pytest.approx(product_flops(whole.forward))
    assert any(isinstance(i, Message) and i.axis == "cp" for i in part.forward)


@pytest.mark.parametrize(
    ("keys", "sync", "gather", "share"),
    [
        ({}, ["all_reduce"], [], 1),
        ({"zero": 1}, ["reduce_scatter"], ["all_gather"], 4),
        ({"distributed_optimizer": True}, ["reduce_scatter"], ["all_gather"], 4),
        ({"zero": 2}, [], ["all_gather"], 4),
        ({"zero": 3}, [], [], 4),
        ({"zero": 3, "shard_group": 2}, ["all_reduce"], [], 2),
    ],
)
def test_each_way_of_sharding_has_its_messages_and_its_share_of_the_optimizer(keys, sync, gather, share):
    stage = describe(SMALL, layout(dp=4, **keys), 128).stages[0]
    assert [m.operation for m in stage.sync] == sync
    assert [m.operation for m in stage.gather] == gather
    assert stage.optimizer_parameters == stage.parameters / share


def test_zero_3_gathers_for_each_pass_and_scatters_once():
    layer = describe(SMALL, layout(dp=4, zero=3, recompute="full"), 128).layer
    moved = [i for p in (layer.forward, layer.recompute, layer.backward) for i in p if isinstance(i, Message)]
    assert sorted(i.operation for i in moved) == ["all_gather"] * 3 + ["reduce_scatter"]
    assert {i.payload_bytes for i in moved} == {2 * layer.dense_parameters}


@pytest.mark.parametrize(
    ("keys", "is_tied", "gathers", "scattered"),
    [
        ({"zero": 1}, True, 0, None),
        ({"zero": 2}, True, 0, "once"),  # a tied table's gradients meet before they are sent
        ({"zero": 3}, True, 4, "once"),
        ({"zero": 3}, False, 4, "twice"),
        ({"zero": 3, "pp": 2}, True, 4, "twice"),  # each end holds a table
        ({"zero": 2, "pp": 2}, True, 0, None),
    ],
)
def test_the_tables_at_the_ends_are_gathered_and_scattered_as_well(keys, is_tied, gathers, scattered):
    work = describe(SMALL.model_copy(update={"is_head_tied": is_tied}), layout(dp=4, **keys), 128)
    moved = [
        item
        for end in (work.blocks["embedding"], work.blocks["head"])
        for item in (*end.forward, *end.recompute, *end.backward)
        if isinstance(item, Message) and item.axis == "shard"
    ]
    held = work.blocks["embedding"].dense_parameters, work.blocks["head"].dense_parameters
    table = SMALL.vocabulary * SMALL.hidden
    both = {None: 0, "once": sum(held) - table, "twice": sum(held)}[scattered]
    assert [item.operation for item in moved].count("all_gather") == gathers
    assert sum(item.payload_bytes for item in moved if item.operation == "all_gather") == gathers * sum(held)  # 2 bytes, 2 passes
    assert sum(item.payload_bytes for item in moved if item.operation == "reduce_scatter") == 2 * both


def test_under_a_zero_bubble_schedule_gradients_are_scattered_with_the_weight_gradients():
    layer = describe(SMALL, layout(pp=2, dp=4, zero=3, schedule="zb-h1"), 128).layer
    first, second = ([i.operation for i in part(layer.backward) if isinstance(i, Message)] for part in (input_part, weight_part))
    assert (first, second) == (["all_gather"], ["reduce_scatter"])


def test_the_ends_of_a_pipeline_sum_the_shards_that_they_have_of_a_tied_table():
    whole, sharded = (describe(SMALL, layout(pp=2, dp=4, zero=zero), 128).stages[0].sync for zero in (1, 3))
    tied = [[m.payload_bytes for m in sync if m.axis == "ends"] for sync in (whole, sharded)]
    assert tied == [[1024 * 512 * 4], [1024 * 512 * 4 / 4]]


def test_softmax_runs_kernel_by_kernel_where_the_fused_one_cannot_worked_by_hand():
    # two heads of one sequence: no multiple of four. 16 bits to float32 (6 bytes), scale, mask, softmax (8 each), back (6);
    # the fused kernel reads a triangle and writes all (3 bytes), backward it reads two (4)
    def sweeps(**keys):
        cut = layout(attention="unfused", micro_batch=1, **keys)
        layer = describe(SMALL, cut, 128).layer
        made = [i for i in (*layer.forward, *layer.backward) if i.name in ("softmax", "softmax gradient")]
        return [(i.moved_bytes / (128 * 128 * 8 / cut.tp), i.num_kernels) for i in made]

    assert sweeps(tp=4) == [(36, 5), (40, 5)]
    assert sweeps(tp=2) == [(3, 1), (4, 1)]
    assert sweeps(precision="fp32") == [(24, 3), (28, 3)]


@pytest.mark.parametrize(
    ("keys", "bytes_of_a_number"), [({}, 4), ({"fp32_gradients": False}, 2), ({"fused_accumulation": False}, 0)]
)
def test_products_of_weight_gradients_add_to_the_sum_where_they_may(keys, bytes_of_a_number):
    layer = describe(SMALL, layout(**keys), 128).layer
    products = [i for i in layer.backward if isinstance(i, Product)]
    assert {i.sum_bytes for i in products if i.is_weight} == {bytes_of_a_number}
    assert {i.sum_bytes for i in (*layer.forward, *products) if isinstance(i, Product) and not i.is_weight} == {0}


def test_weights_too_large_to_be_fetched_ahead_hide_behind_nothing():
    # 4 h^2 = 67 million parameters in the largest weight, more than the 50 million of the buffer
    large = gpt(2, 4096, 32, 1024, 128)
    late = describe(large, layout(dp=4, zero=3), 128).layer.forward[0]
    ahead = describe(large, layout(dp=4, zero=3, overlap_dp=True), 128).layer.forward[0]
    assert isinstance(late, Message)
    assert isinstance(ahead, Message)
    assert (late.num_concurrent, ahead.num_concurrent > 0) == (0, True)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"tp": 3}, r"layout\.tp: does not divide the 8 heads"),
        ({"pp": 9, "global_batch": 18}, "9 model chunks are more than the 8 layers"),
        ({"cp": 3}, "does not divide the sequence of 128 tokens"),
        ({"pp": 2, "schedule": "interleaved", "virtual_stages": 3}, "to divide the 8 layers"),
        ({"dp": 2, "ep": 2}, r"layout\.ep: does not divide the 1 expert"),
        ({"precision": "fp32"}, "fused kernel"),
    ],
)
def test_what_a_model_cannot_be_cut_into_is_refused_by_name(keys, message):
    cut = layout(**keys)
    assert not is_legal(SMALL, cut, 128)
    with pytest.raises(PlanError, match=message):
        describe(SMALL, cut, 128)


def test_products_count_their_operations():
    assert Product("p", 2, 3, 4, batch=5).flops == 240


def test_autocast_casts_the_weights_of_a_layer_before_its_forward_pass():
    plain, cast = (describe(SMALL, layout(precision=name), 256) for name in ("bf16", "autocast"))
    first, *rest = cast.layer.forward
    assert (first.moved_bytes, tuple(rest)) == (6 * plain.layer.dense_parameters, plain.layer.forward)
    assert {one.payload_bytes for one in describe(SMALL, layout(dp=4, zero=1, precision="autocast"), 256).stages[0].gather} == {
        2 * one.payload_bytes for one in describe(SMALL, layout(dp=4, zero=1), 256).stages[0].gather
    }
    assert [one.moved_bytes for one in cast.blocks["head"].forward if one.name == "weights cast"] == [6 * 1024 * 512]
    with pytest.raises(PlanError, match=r"layout\.precision: is of whole float32 weights"):
        describe(SMALL, layout(dp=4, zero=3, precision="autocast"), 256)
