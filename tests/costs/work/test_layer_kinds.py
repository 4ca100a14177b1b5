"""Layers of several kinds, latent attention, shared experts and norms of outputs and heads: what a layout makes of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.process_groups.group_network import HostNetwork
from meshwright.costs.training_step.step_figures import step_flops
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.activations.stage_activations import activation_bytes, layer_activation_bytes
from meshwright.costs.work.memory import stage_memory
from meshwright.costs.work.model_chunks import is_legal
from meshwright.costs.work.operations import FusedAttention, Message, input_part, weight_part
from meshwright.costs.work.work import describe
from meshwright.devices import device_type
from meshwright.errors import GraphError, PlanError
from meshwright.jobs.transformer import LatentAttention, LayerKind, TransformerShape
from meshwright.plans.partition import Layout

from .pass_flops import product_flops

PRICER = Pricer(device_type("a100"), HostNetwork(8, 300e9, 200e9))
LENGTH = 64
PLAIN = TransformerShape(
    name="plain",
    num_layers=8,
    hidden=256,
    num_heads=8,
    num_key_value_heads=8,
    head_dim=48,
    feed_forward=512,
    vocabulary=1000,
    max_positions=256,
)


def varied(**changes):
    return PLAIN.model_copy(update=changes)


LATENT = LatentAttention(query_rank=96, key_value_rank=64, rope_head_dim=16, value_head_dim=24)
MIXTURE = varied(
    latent=LATENT,
    num_experts=8,
    experts_per_token=2,
    feed_forward=128,
    shared_feed_forward=256,
    other_layers=(LayerKind(layers=(0, 1, 2), feed_forward=1024),),
)
LOCAL = varied(
    has_output_norms=True,
    has_head_norms=True,
    num_key_value_heads=4,
    window=16,
    is_head_tied=True,
    other_layers=(LayerKind(layers=(1, 3, 5, 7), feed_forward=512),),
)
SHAPES = {
    "side weights": varied(
        side_weights=256 * 64,
        more_parameters=500,
        other_layers=(LayerKind(layers=(1,), feed_forward=512, window=3, window_form="linear", side_weights=-256 * 128),),
    ),
    "an indexer": varied(latent=LATENT, indexer_width=128, side_weights=96 * 128, window=16),
    "mixture": MIXTURE,
    "local": LOCAL,
    "direct queries": varied(latent=LATENT.model_copy(update={"query_rank": None}), qkv_bias=True, output_bias=True),
    "dense and mixed in turn": varied(
        num_experts=4, experts_per_token=2, other_layers=(LayerKind(layers=(0, 2, 4), feed_forward=768, window=32),)
    ),
}
shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def layout(**keys):
    return Layout(**({"micro_batch": 2, "global_batch": 48} | keys))


@shapes
def test_one_rank_holds_the_parameters_and_does_the_operations_of_the_job_graph(shape):
    graph, alone = shape.graph(3, LENGTH), layout(micro_batch=3, global_batch=3)
    work = describe(shape, alone, LENGTH)
    assert 2 * work.stages[0].parameters == graph.parameter_bytes.sum()
    routers = [op for op, name in enumerate(graph.op_names) if name.endswith(".router")]  # which published counts leave out
    assert step_flops(work)[0] == 3 * (graph.forward_flops.sum() - graph.forward_flops[routers].sum())


def test_a_latent_layers_products_worked_by_hand():
    # Of a token: 256 x (96 + 64 + 16) down; 96 x 8 x 48 queries and 64 x 8 x (32 + 24) keys and values up; 8 x 24 x 256 out;
    # router 256 x 8; two experts and the shared one of three products of 256 x 128 and 256 x 256. Scores and context of half
    # the 64 keys: 8 heads of 48 and 24.
    weights = 256 * 176 + 96 * 384 + 64 * 448 + 192 * 256 + 256 * 8 + 3 * 256 * (2 * 128 + 256)
    attention = 8 * (48 + 24) * 64 / 2
    layer = describe(MIXTURE, layout(), LENGTH).layer
    assert product_flops(layer.forward) == 2 * 128 * (weights + attention)
    # backward twice the products, five products of fused attention in place of two
    assert product_flops(layer.backward) == 2 * 128 * (2 * weights + 2.5 * attention)
    # parameters: all eight experts by themselves, the shared one beside attention, two norms of 256 and those of 96 and 64
    assert layer.expert_parameters == 8 * 3 * 256 * 128
    norms = 2 * 256 + 96 + 64
    assert layer.dense_parameters == weights - 3 * 256 * 2 * 128 + norms


@given(tp=st.sampled_from([2, 4, 8]), is_cut=st.booleans())
def test_tensor_parallel_ranks_repeat_the_narrow_projections_and_share_the_rest(tp, is_cut):
    whole = describe(MIXTURE, layout(), LENGTH).layer
    part = describe(MIXTURE, layout(tp=tp, sequence_parallel=is_cut), LENGTH).layer
    repeated = 256 * 176 + 96 + 64 + 2 * 256 + 256 * 8  # narrow vectors with their norms, norms of the stream, router
    assert tp * part.dense_parameters == whole.dense_parameters + (tp - 1) * repeated
    assert tp * part.expert_parameters == whole.expert_parameters
    # where the sequence is cut each rank makes the narrow vectors of its own tokens, otherwise all make those of all
    again = 0 if is_cut else (tp - 1) * 2 * 128 * (256 * 176 + 256 * 8)
    assert tp * product_flops(part.forward) == product_flops(whole.forward) + again
    gathered = [i.payload_bytes for i in part.forward if isinstance(i, Message) and i.name == "latent vectors"]
    assert gathered == [2 * 128 * 176] * is_cut


@pytest.mark.parametrize(("is_cut", "zero", "shards"), [(True, 0, 1), (True, 2, 4), (False, 0, None)])
def test_gradients_of_what_ranks_repeat_on_their_own_tokens_are_summed_over_them(is_cut, zero, shards):
    # 256 x 176 weights and norms of 96 and 64 numbers in each of eight layers, four bytes each
    work = describe(MIXTURE, layout(tp=2, dp=4, zero=zero, sequence_parallel=is_cut), LENGTH)
    sums = [m.payload_bytes for m in work.stages[0].sync if m.axis == "tp"]
    assert sums == ([] if shards is None else [8 * (256 * 176 + 96 + 64) * 4 / shards])


@given(ep=st.sampled_from([1, 2, 4, 8]))
def test_shared_experts_stand_beside_the_routed_ones_on_every_rank(ep):
    whole = describe(MIXTURE, layout(dp=8), LENGTH).layer
    part = describe(MIXTURE, layout(dp=8, ep=ep), LENGTH).layer
    assert ep * part.expert_parameters == whole.expert_parameters
    assert part.dense_parameters == whole.dense_parameters
    assert product_flops(part.forward) == pytest.approx(product_flops(whole.forward))


@shapes
@given(pp=st.sampled_from([1, 2, 4, 8]), tp=st.sampled_from([1, 2, 4]))
def test_stages_together_hold_every_layer_of_each_kind_once(shape, pp, tp):
    whole, parts = describe(shape, layout(tp=tp), LENGTH).stages, describe(shape, layout(tp=tp, pp=pp), LENGTH).stages
    copy = shape.vocabulary / tp * shape.hidden if shape.is_head_tied and pp > 1 else 0
    assert sum(stage.parameters for stage in parts) == whole[0].parameters + copy
    held = [sum(stage.layers.get(name, 0) for stage in parts) for name in ("layer", "layer kind 1")]
    assert held == [shape.kind_counts[0], sum(shape.kind_counts[1:])]


@shapes
@given(recompute=st.sampled_from(["none", "selective", "full"]), attention=st.sampled_from(["fused", "unfused"]))
def test_activations_of_a_stage_are_those_of_its_layers_of_each_kind(shape, recompute, attention):
    cut = layout(tp=2, pp=4, recompute=recompute, attention=attention, sequence_parallel=True)
    work = describe(shape, cut, LENGTH)
    of_kind = [layer_activation_bytes(kind, cut, LENGTH, recompute) for kind in shape.kinds]
    names = ["layer", "layer kind 1"]
    for stage, flying in enumerate((4, 3, 2, 1)):
        counts = [work.stages[stage].layers.get(name, 0) for name in names[: len(of_kind)]]
        expected = flying * sum(number * one for number, one in zip(counts, of_kind, strict=True))
        assert activation_bytes(work, stage) == pytest.approx(expected)


def test_what_a_latent_layer_keeps_worked_by_hand():
    # Of a token, two bytes each: inputs of two norms and what they give (4 x 256), narrow vectors before and after their norms
    # (2 x 176), queries and keys (2 x 8 x 48), values and context (2 x 8 x 24); 8 statistics of four bytes. A dense layer's two
    # halves and their product (3 x 1024); or of two experts and the shared one 3 x (2 x 128 + 256) and the order of tokens.
    attention = 2 * (4 * 256 + 2 * 176 + 2 * 384 + 2 * 192) + 32
    alone = layout(micro_batch=1, global_batch=1)
    dense, experts = (layer_activation_bytes(kind, alone, LENGTH, "none") / LENGTH for kind in MIXTURE.kinds[::-1])
    assert dense == attention + 2 * 3 * 1024
    assert experts == attention + 2 * 3 * 512 + 2 * 2 * 2 * 256


CUTS = [
    layout(pp=4, dp=2),
    layout(pp=2, schedule="interleaved", virtual_stages=2, tp=2, recompute="full"),
    layout(pp=4, schedule="zb-h1", recompute="full"),
    layout(dp=4, zero=3, overlap_dp=True),
    layout(cp=2, tp=2, dp=2, distributed_optimizer=True, overlap_dp=True),
]


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_kinds_that_do_not_differ_are_one_kind(cut):
    """Times and memory are those of the plain model, whichever layers are said to be of another kind."""
    twin = varied(other_layers=(LayerKind(layers=(1, 4, 6), feed_forward=512), LayerKind(layers=(2,), feed_forward=512)))
    plain, same = describe(PLAIN, cut, LENGTH), describe(twin, cut, LENGTH)
    assert PRICER.price_work(same).step_s == pytest.approx(PRICER.price_work(plain).step_s, rel=1e-9)
    assert step_flops(same) == step_flops(plain)
    for stage in range(cut.pp):
        assert stage_memory(same, stage).total == pytest.approx(stage_memory(plain, stage).total)


@shapes
def test_parts_of_a_step_and_of_a_backward_pass_add_up_and_a_name_changes_nothing(shape):
    for cut in CUTS:
        work = describe(shape, cut, LENGTH)
        step = PRICER.price_work(work)
        assert sum(step.breakdown_s.values()) == pytest.approx(step.step_s)
        assert PRICER.step_s(describe(shape.model_copy(update={"name": "other"}), cut, LENGTH)) == step.step_s
        for block in work.blocks.values():
            first, second = input_part(block.backward), weight_part(block.backward)
            assert product_flops(first) + product_flops(second) == pytest.approx(product_flops(block.backward))


@pytest.mark.parametrize("framework", [None, "megatron", "fsdp2", "deepspeed"])
def test_pairs_within_windows_and_chunks_of_linear_attention_and_of_an_indexer_worked_by_hand(framework):
    # Of 56 tokens: two causal chunks of 24 and one of 8; the work of 3 tokens for each; 16 of all, which heads of 128 score.
    masked = 56 * 56 if framework in ("fsdp2", "deepspeed") else 0  # all pairs, where a mask stands for the window
    for window, form, width, pairs in (
        (24, "chunks", None, masked or (24**2 * 2 + 8**2) / 2),
        (3, "linear", None, 56 * 3),
        (16, None, 128, masked or 56 * (16 - 16**2 / 112)),
        (None, None, None, 56 * 56 / 2),
    ):
        shape = varied(window=window, window_form=form, indexer_width=width)
        forward = describe(shape, layout(micro_batch=1, framework=framework), 56).layer.forward
        (flops,) = (one.flops for one in forward if isinstance(one, FusedAttention))
        assert flops == 4 * 8 * 48 * pairs + (width or 0) * 56 * 56
        plain = describe(shape, layout(micro_batch=1, framework=framework, attention="unfused"), 56).layer.forward
        assert [one.flops for one in plain if one.name == "indexer scores"] == ([2 * width * 56 * 56] if width else [])


@pytest.mark.parametrize(
    ("shape", "keys", "message"),
    [
        (MIXTURE.model_copy(update={"shared_feed_forward": 130}), {"tp": 4}, "tp: does not divide the feed-forward width 130"),
        (varied(other_layers=(LayerKind(layers=(0,), feed_forward=514),)), {"tp": 4}, "feed-forward width 514"),
        (
            varied(num_experts=8, other_layers=(LayerKind(layers=(0,), feed_forward=512, num_experts=6),)),
            {"dp": 4, "ep": 4},
            r"ep: does not divide the 6 expert\(s\)",
        ),
    ],
)
def test_every_kind_of_layer_must_be_cut_evenly(shape, keys, message):
    assert not is_legal(shape, layout(**keys), LENGTH)
    with pytest.raises(PlanError, match=message):
        describe(shape, layout(**keys), LENGTH)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"other_layers": (LayerKind(layers=(8,), feed_forward=1),)}, "names each of the 8 layers once at most"),
        ({"other_layers": (LayerKind(layers=(1, 1), feed_forward=1),)}, "once at most"),
        ({"other_layers": (LayerKind(layers=tuple(range(8)), feed_forward=1),)}, "leaves some to the main kind"),
        ({"latent": LATENT.model_copy(update={"rope_head_dim": 48})}, r"latent\.rope_head_dim: must be less than head_dim 48"),
        ({"is_parallel": True, "latent": LATENT}, "is_parallel: only layers of a decoder"),
    ],
)
def test_an_impossible_shape_is_refused(changes, message):
    with pytest.raises(GraphError, match=message):
        TransformerShape(**(PLAIN.model_dump() | changes))
