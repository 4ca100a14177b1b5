"""Small models and clusters for searches, and a search by brute force that shares nothing with the real one."""

from functools import cache
from itertools import product

from pydantic import ValidationError

from meshwright.costs.process_groups.group_network import HostNetwork
from meshwright.costs.process_groups.regular_groups import is_regular
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.memory import peak_memory
from meshwright.costs.work.model_chunks import is_legal
from meshwright.costs.work.work import describe
from meshwright.devices import device_type
from meshwright.jobs.readers.huggingface import shape_of
from meshwright.plans import Layout
from meshwright.plans.rank_order import ORDERS

A100 = device_type("a100")
GPT = shape_of(
    {"model_type": "gpt2", "n_embd": 256, "n_layer": 4, "n_head": 4, "n_positions": 256, "vocab_size": 1024}, name="gpt"
)
MIXTURE = shape_of(
    {
        "model_type": "mixtral",
        "hidden_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 512,
        "vocab_size": 1024,
        "max_position_embeddings": 256,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
    name="mixture",
)
MIXED = shape_of(
    {
        "model_type": "deepseek_v3",
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 2048,
        "moe_intermediate_size": 256,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 2,
        "q_lora_rank": 96,
        "kv_lora_rank": 64,
        "qk_nope_head_dim": 32,
        "qk_rope_head_dim": 16,
        "v_head_dim": 32,
        "vocab_size": 1024,
        "max_position_embeddings": 256,
    },
    name="mixed",
)
"""Dense layers before those with experts, which are no larger: more chunks in a pipeline spread them otherwise."""

BOTH_WAYS = ("dualpipe", "dualpipev")
LENGTH = 128
PAIRS = HostNetwork(2, 300e9, 25e9)
"""Hosts of two devices with one card."""


@cache
def every_layout(shape, world, batch):
    """All legal layouts whatever they are worth, twins included, from nothing but the keys' ranges."""
    return tuple(_every_layout(shape, world, batch))


def _every_layout(shape, world, batch):
    degrees = range(1, world + 1)
    for tp, cp, pp, dp in product(degrees, repeat=4):
        if tp * cp * pp * dp != world:
            continue
        for ep, v, schedule, micro_batch, is_cut, recompute, zero in product(
            range(1, dp * cp + 1),
            range(1, shape.num_layers + 1),
            ("1f1b", "eager-1f1b", "gpipe", "interleaved", "zb-h1", "zb-2p", *BOTH_WAYS),
            range(1, batch + 1),
            (False, True),
            ("none", "selective", "full"),
            (0, 1, 2, 3),
        ):
            if (dp * cp) % ep:  # with experts that are cut less than dense layers, which is searched where it is named
                continue
            if schedule in BOTH_WAYS and (pp == 1 or ep == 1):  # tried where there are experts' messages to hide
                continue
            try:
                layout = Layout(
                    tp=tp,
                    cp=cp,
                    pp=pp,
                    dp=dp,
                    ep=ep,
                    virtual_stages=v,
                    schedule=schedule,
                    micro_batch=micro_batch,
                    global_batch=batch,
                    sequence_parallel=is_cut,
                    recompute=recompute,
                    zero=zero,
                    overlap_dp=schedule not in BOTH_WAYS,
                    overlap_pp=v > 1 or schedule in ("eager-1f1b", *BOTH_WAYS),
                )
            except ValidationError:
                continue
            if is_legal(shape, layout, LENGTH):
                yield layout


def canonical(layout):
    """The one of several equal layouts that a search lists."""
    changes = {}
    if layout.tp == 1:
        changes["sequence_parallel"] = False
    if layout.recompute == "selective":
        changes["recompute"] = "none"
    if layout.dp * layout.cp == 1:
        changes["zero"] = 0
    elif layout.zero == 2 and layout.pp > 1:
        changes["zero"] = 1
    if layout.pp == 1 or (layout.schedule == "interleaved" and layout.virtual_stages == 1):
        changes["schedule"] = "1f1b"
        changes["overlap_pp"] = False
    return layout.model_copy(update=changes)


@cache
def brute_force(shape, world, batch, wires, capacity_bytes):
    """Seconds and bytes of every canonical layout that fits, in its best order: ``{layout: (step_s, memory_bytes)}``.

    A layout that does not fit without recomputation recomputes the first layers of each chunk, as few as possible. One that
    recomputes every layer and does not fit takes groups of layers, of the size with the least memory.
    """
    priced = _priced(shape, world, batch, wires)
    result = {layout: figures for layout, figures in priced.items() if figures[1] <= capacity_bytes}
    for layout in (one for one, figures in priced.items() if figures[1] > capacity_bytes and one.recompute == "none"):
        for number in range(1, -(-shape.num_layers // (layout.pp * layout.virtual_stages))):
            again = layout.model_copy(update={"recompute": "full", "recompute_method": "block", "recompute_num_layers": number})
            if peak_memory(describe(shape, again, LENGTH))[1].total <= capacity_bytes:
                result[again] = figures_of(shape, again, wires)
                break
    for layout in (one for one, figures in priced.items() if figures[1] > capacity_bytes and one.recompute == "full"):
        chunks = [chunk.num_layers for chunk in describe(shape, layout, LENGTH).chunks]
        sizes = [size for size in range(2, shape.num_layers + 1) if not any(number % size for number in chunks)]
        grouped = [layout.model_copy(update={"recompute_num_layers": size}) for size in sizes]
        held = [peak_memory(describe(shape, one, LENGTH))[1].total for one in grouped]
        if grouped and min(held) <= capacity_bytes:
            leanest = grouped[held.index(min(held))]
            result[leanest] = figures_of(shape, leanest, wires)
    return result


@cache
def _priced(shape, world, batch, wires):
    every = {canonical(layout) for layout in every_layout(shape, world, batch)}
    result = {layout: figures_of(shape, layout, wires) for layout in every}
    return {layout: figures for layout, figures in result.items() if figures is not None}


@cache
def _pricers(wires):
    return {order: Pricer(A100, wires, order=order) for order in ORDERS}


def figures_of(shape, layout, wires):
    """Seconds and bytes of a layout in its best order; None where no order is regular."""
    orders = {_numbering(layout, order): order for order in ORDERS if is_regular(layout, wires.devices_per_host, order)}
    work = describe(shape, layout, LENGTH)
    if not orders:
        return None
    return min(_pricers(wires)[order].step_s(work) for order in orders.values()), peak_memory(work)[1].total


def _numbering(layout, order):
    """The part of an order that numbers the ranks of a layout: its axes of more than one rank."""
    return tuple(axis for axis in order.split("-") if getattr(layout, axis) > 1)
