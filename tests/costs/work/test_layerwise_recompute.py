"""Recomputation of some layers of each model chunk, and of groups of layers: between nothing and all, in both paths."""

import pytest

from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.step_figures import step_flops
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.activations.stage_activations import activation_bytes
from meshwright.costs.work.memory import peak_memory, stage_memory
from meshwright.costs.work.work import describe
from meshwright.errors import ConfigError, PlanError
from meshwright.plans.partition import Layout
from meshwright.settings import build_settings
from meshwright.simulation.layouts.running import run_layout
from meshwright.simulation.layouts.step_model import TransformerStep

from ...simulation.layouts.grid import cluster, mixed_shapes, shapes

INDEPENDENT = CostSettings(contention="independent")
HOST = cluster("host-8")
SHAPE, LENGTH = shapes()["config"]  # 8 layers


def chosen(**keys):
    return build_settings(Layout, {"micro_batch": 1, "global_batch": 8, "recompute": "full"} | keys)


def some(number, **keys):
    return chosen(recompute_method="block", recompute_num_layers=number, **keys)


def described(layout, shape=SHAPE):
    return describe(shape, layout, LENGTH)


def step_s(layout, shape=SHAPE):
    return Pricer.from_cluster(HOST, INDEPENDENT).step_s(described(layout, shape))


CUTS = {
    "one device": {},
    "1f1b": {"pp": 2, "tp": 2, "sequence_parallel": True},
    "interleaved": {"pp": 2, "virtual_stages": 2, "schedule": "interleaved"},
    "zero bubble": {"pp": 2, "schedule": "zb-h1"},
    "zero": {"dp": 2, "zero": 3, "overlap_dp": True},
    "fsdp2": {"dp": 2, "zero": 3, "framework": "fsdp2", "overlap_dp": True},
}


@pytest.mark.parametrize("keys", CUTS.values(), ids=CUTS)
def test_some_layers_stand_between_none_and_all(keys):
    layers = 8 // (keys.get("pp", 1) * keys.get("virtual_stages", 1))  # of a chunk
    steps = [chosen(recompute="none", **keys), *(some(number, **keys) for number in range(1, layers + 1))]
    works = [described(step) for step in steps]
    seconds, flops = [step_s(step) for step in steps], [step_flops(work)[1] for work in works]
    stored = [activation_bytes(work) for work in works]
    assert seconds == sorted(seconds)
    assert seconds[-1] > seconds[0]
    each = (flops[-1] - flops[0]) / layers
    assert flops == pytest.approx([flops[0] + n * each for n in range(layers + 1)])
    if not keys.get("schedule", "").startswith("zb"):  # that keeps more for weight gradients
        saved = (stored[0] - stored[-1]) / layers
        assert stored == pytest.approx([stored[0] - n * saved for n in range(layers + 1)])
        assert saved > 0
    # All of them are what it says without a number.
    everything = described(chosen(**keys))
    assert step_s(everything.layout) == pytest.approx(seconds[-1], rel=1e-12)
    assert step_flops(everything) == pytest.approx(step_flops(works[-1]))
    assert stage_memory(everything, 0) == stage_memory(works[-1], 0)


def test_the_step_on_one_device_grows_by_the_forward_pass_of_each_layer():
    # Of eight micro-batches: a layer that is computed again takes its forward pass once more.
    base = chosen(recompute="none")
    seconds = [step_s(base), *(step_s(some(number)) for number in range(1, 9))]
    each = (seconds[8] - seconds[0]) / 8
    assert seconds == pytest.approx([seconds[0] + number * each for number in range(9)], rel=1e-9)


@pytest.mark.parametrize("keys", CUTS.values(), ids=CUTS)
def test_both_paths_agree(keys):
    layout = some(1, **keys)
    work = described(layout)
    pricer = Pricer.from_cluster(HOST, INDEPENDENT)
    simulated_s = run_layout(TransformerStep(work, pricer), HOST, costs=INDEPENDENT).step_s
    assert simulated_s == pytest.approx(pricer.step_s(work), rel=0.01)
    assert simulated_s > step_s(chosen(recompute="none", **keys))


def test_layers_of_several_kinds_are_computed_again_from_the_first_on():
    shape, _ = mixed_shapes()["deepseek"]  # three dense layers, then five with experts
    held = described(some(4), shape)
    assert held.chunks[0].runs == (("layer kind 1", 3), ("layer", 1), ("layer, kept", 4))
    assert [held.blocks[name].recompute == () for name, _ in held.chunks[0].runs] == [False, False, True]


def test_each_chunk_of_an_interleaved_schedule_computes_its_own_first_layers_again():
    work = described(some(1, pp=2, virtual_stages=2, schedule="interleaved"))
    assert [chunk.runs for chunk in work.chunks] == [(("layer", 1), ("layer, kept", 1))] * 4


def test_groups_of_layers_keep_their_input_and_take_as_long():
    # 2,048 numbers of two bytes of each of 1,024 tokens are kept of a group, and its layers are all there while it is
    # computed again: of 8 layers in groups of 3 three inputs and three whole layers, of groups of 1 eight and one.
    inputs = 2 * 2048 * LENGTH
    whole = activation_bytes(described(chosen(recompute="none"))) / 8
    works = {size: described(chosen(recompute_num_layers=size)) for size in (1, 3, 8)}
    assert {size: activation_bytes(work) for size, work in works.items()} == {1: 8 * inputs, 3: 3 * inputs, 8: inputs}
    held = {size: stage_memory(work, 0).activations for size, work in works.items()}
    assert held[3] - held[1] == pytest.approx(2 * whole - 5 * inputs)
    assert held[8] - held[1] == pytest.approx(7 * whole - 7 * inputs)
    assert len({step_s(chosen(recompute_num_layers=size)) for size in (1, 3, 8)}) == 1


def test_a_pipeline_that_would_not_fit_fits_with_some_layers():
    keys = {"pp": 2, "micro_batch": 8, "global_batch": 64}
    peaks = [peak_memory(described(one))[1].total for one in (chosen(recompute="none", **keys), some(2, **keys), chosen(**keys))]
    assert peaks == sorted(peaks, reverse=True)


def test_what_cannot_be_said_is_refused():
    for keys in ({"recompute_method": "block"}, {"recompute_num_layers": 2}):
        with pytest.raises(ConfigError, match="says which layers recompute=full computes again, not recompute=selective"):
            chosen(recompute="selective", **keys)
    with pytest.raises(PlanError, match=r"recompute_num_layers: is more than any model chunk of config has layers \(got 5\)"):
        described(some(5, pp=2))
    with pytest.raises(ConfigError, match=r"recompute_method: .*did you mean 'block'"):
        chosen(recompute_method="blok")
