"""Low-rank adapters: products worked by hand, memory of a rank, equal times on both paths, and refusals."""

import pytest

from meshwright.clusters import load_cluster
from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.memory import stage_memory
from meshwright.costs.work.operations import Message, Product, Sweep
from meshwright.costs.work.work import describe
from meshwright.errors import PlanError
from meshwright.evaluation.validation.step_times.published_runs import LLAMA
from meshwright.evaluation.validation.step_times.published_step import gpt
from meshwright.planners.layouts.request import SearchRequest
from meshwright.planners.layouts.space import LayoutSpace
from meshwright.plans.frameworks.limits import LayoutOfModel
from meshwright.plans.frameworks.table import FRAMEWORKS
from meshwright.plans.partition import Layout
from meshwright.simulation.layouts.running import run_layout
from meshwright.simulation.layouts.step_model import TransformerStep

SHAPE = gpt(4, 512, 8, 1024, 128, **LLAMA, num_key_value_heads=2, feed_forward=1024, is_gated=True)
EXPERTS = SHAPE.model_copy(update={"num_experts": 8, "experts_per_token": 2})
LENGTH = 128
# Of a layer: queries 512 and keys and values 2 x 128 wide, output, up and gate, down
MATRICES = [(768, 512), (512, 512), (2048, 512), (512, 1024)]


def layout(**keys):
    return Layout(**{"micro_batch": 2, "global_batch": 8, "trainable": "lora(4)"} | keys)


def products(items, *, is_weight):
    return [(item.m, item.n, item.k) for item in items if isinstance(item, Product) and item.is_weight == is_weight]


def test_products_of_a_layer_worked_by_hand():
    rows, layer = 2 * LENGTH, describe(SHAPE, layout(), LENGTH).layer
    forward = [one for out, inside in MATRICES for one in ((rows, out, inside), (rows, 4, inside), (rows, out, 4))]
    assert products(layer.forward, is_weight=False) == forward
    back = [one for out, inside in MATRICES for one in ((rows, inside, out), (rows, 4, out), (rows, inside, 4))]
    assert sorted(products(layer.backward, is_weight=False)) == sorted(back)
    thin = [one for out, inside in MATRICES for one in ((out, 4, rows), (4, inside, rows))]
    assert sorted(products(layer.backward, is_weight=True)) == sorted(thin)


def test_frozen_matrices_of_four_bits_are_widened_before_each_product():
    layer = describe(SHAPE, layout(frozen_bits=4), LENGTH).layer
    for items in (layer.forward, layer.backward):
        swept = [item.moved_bytes for item in items if isinstance(item, Sweep) and item.name.endswith("widened")]
        assert sorted(swept) == pytest.approx(sorted((4.127 / 8 + 2) * out * inside for out, inside in MATRICES))


def test_a_rank_holds_frozen_weights_and_trains_the_adapters_alone():
    adapters = 4 * sum(4 * (out + inside) for out, inside in MATRICES)
    plain = describe(SHAPE, layout(trainable="all"), LENGTH).stages[0].parameters
    work = describe(SHAPE, layout(dp=2), LENGTH)
    held = work.stages[0]
    assert (held.parameters, held.optimizer_parameters, held.frozen_bytes) == (adapters, adapters, 2 * plain)
    assert [(one.axis, one.payload_bytes) for one in held.sync] == [("dp_cp", 4 * adapters)]
    memory = stage_memory(work, 0)
    assert memory.parameters == 2 * adapters + 2 * plain
    assert (memory.gradients, memory.optimizer) == (4 * adapters, 12 * adapters)


def test_embedding_and_head_make_no_gradients_and_experts_have_no_adapters():
    work = describe(EXPERTS, layout(dp=2, ep=2), LENGTH)
    for block in (work.blocks["embedding"], work.blocks["head"]):
        assert not [one for one in block.backward if isinstance(one, Product | Sweep) and one.is_weight]
    names = [one.name for one in (*work.layer.forward, *work.layer.backward) if isinstance(one, Product)]
    assert not [name for name in names if name.startswith(("experts", "router")) and ("adapter" in name or "weight" in name)]
    assert work.stages[0].expert_parameters == 0
    assert work.stages[0].frozen_expert_bytes == 2 * 4 * 4 * 3 * 512 * 1024
    assert not [one for one in work.stages[0].sync if one.axis == "expert_dp"]


def test_fsdp2_without_resharding_keeps_shards_and_copies_of_frozen_weights():
    work = describe(SHAPE, layout(dp=4, zero=2, framework="fsdp2"), LENGTH)
    held = work.stages[0]
    assert stage_memory(work, 0).parameters == pytest.approx((4 / 4 + 2) * held.parameters + (1 + 1 / 4) * held.frozen_bytes)


def test_memory_falls_with_the_bits_of_what_is_frozen():
    held = [stage_memory(describe(SHAPE, layout(frozen_bits=bits), LENGTH), 0).parameters for bits in (16, 8, 4)]
    assert held == sorted(held, reverse=True)
    gathered = describe(SHAPE, layout(dp=2, zero=3, frozen_bits=8), LENGTH).layer.forward[0]
    assert isinstance(gathered, Message)
    layer = sum(out * inside for out, inside in MATRICES) + 2 * 512
    assert gathered.payload_bytes == layer + 2 * 4 * sum(out + inside for out, inside in MATRICES)


@pytest.mark.parametrize("bits", [16, 4])
@pytest.mark.parametrize(
    "keys",
    [
        {"tp": 2, "dp": 2, "sequence_parallel": True, "zero": 1},
        {"dp": 4, "zero": 3, "recompute": "full", "overlap_dp": True},
        {"dp": 4, "zero": 3, "framework": "fsdp2"},
        {"pp": 2, "dp": 2, "overlap_dp": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", [SHAPE, EXPERTS], ids=["dense", "experts"])
def test_both_paths_agree(shape, keys, bits):
    cluster, costs = load_cluster("preset:host-8"), CostSettings(contention="independent")
    work, pricer = describe(shape, layout(**keys, frozen_bits=bits), LENGTH), Pricer.from_cluster(cluster, costs)
    simulated_s = run_layout(TransformerStep(work, pricer), cluster, costs=costs).step_s
    assert simulated_s == pytest.approx(pricer.step_s(work), rel=1e-9)


def test_what_has_no_price_or_no_words_is_refused():
    with pytest.raises(PlanError, match=r"layout\.trainable: has no price with precision=fp8"):
        describe(SHAPE, layout(precision="fp8"), LENGTH)
    with pytest.raises(PlanError, match=r"layout\.recompute: counts products without adapters"):
        describe(SHAPE, layout(recompute="selective-ops"), LENGTH)
    for text, problem in (
        ("trainable=lora(0)", "trainable"),
        ("trainable=some", "trainable"),
        ("frozen_bits=4", r"frozen_bits=4 needs trainable=lora\(R\)"),
    ):
        with pytest.raises(PlanError, match=problem):
            Layout.parse(f"{text},micro_batch=1,global_batch=1")
    by = {
        name: {one.key for one in framework.refusals(LayoutOfModel(layout(dp=4, zero=3, framework="fsdp2")))}
        for name, framework in FRAMEWORKS.items()
    }
    assert [name for name, refused in by.items() if "trainable" not in refused] == ["fsdp2"]


def test_a_search_tries_what_has_a_price_alone():
    def tried(keep):
        return list(LayoutSpace(SHAPE, LENGTH, 8, 8, SearchRequest(keep=keep)).layouts(8))

    both = tried("trainable=all|lora(4),recompute=selective-ops")
    assert {one.trainable for one in both} == {"all"}
    assert {one.trainable for one in tried("trainable=lora(4)|all,frozen_bits=16|4") if one.frozen_bits == 4} == {"lora(4)"}
    assert {one.zero for one in tried("precision=autocast")} == {0, 1}
    for one in both:
        describe(SHAPE, one, LENGTH)
    with pytest.raises(PlanError, match=r"keep\.frozen_bits: needs trainable=lora\(R\)"):
        tried("frozen_bits=4")
