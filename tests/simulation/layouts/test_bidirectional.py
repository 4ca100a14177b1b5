"""DualPipe and DualPipeV of whole layouts: analytic, simulated, and in memory."""

import numpy as np
import pytest

from meshwright.costs.network import RankNetwork
from meshwright.costs.settings import CostSettings
from meshwright.costs.training_step.step_time import Pricer
from meshwright.costs.work.memory import peak_memory, stage_memory
from meshwright.costs.work.operations import Message
from meshwright.costs.work.work import describe
from meshwright.plans.partition import Layout
from meshwright.simulation.layouts.running import layout_step, num_tasks, run_layout
from meshwright.simulation.layouts.step_model import TransformerStep

from ...costs.uneven import drawn_matrix
from .grid import cluster, mixed_shapes, shapes

INDEPENDENT = CostSettings(contention="independent")
SHAPES = shapes() | mixed_shapes()
CASES = [
    ("experts", "dgx-a100-8x8", "pp=4,ep=4,dp=4,micro_batch=1,global_batch=40"),
    ("deepseek", "clos-64-4to1", "pp=4,ep=8,dp=8,micro_batch=1,global_batch=64,recompute=full"),
    ("deepseek", "dgx-a100-8x8", "pp=4,ep=2,dp=2,micro_batch=1,global_batch=32,zero=1"),
    ("gpt2", "host-8", "pp=2,dp=2,tp=2,micro_batch=2,global_batch=24"),
    ("llama-7b", "ramp-4x4x2", "pp=4,tp=2,sequence_parallel=true,zero=3,dp=2,micro_batch=1,global_batch=16"),
    ("gemma", "dgx-a100-8x8", "pp=2,cp=2,micro_batch=1,global_batch=12,first_stage_less_layers=1"),
]
BOTH = ("dualpipe", "dualpipev")


def work_of(name, text, schedule):
    shape, length = SHAPES[name]
    return describe(shape, Layout.parse(f"{text},schedule={schedule}", hides_unasked=True), length)


def simulated_s(work, where, costs, pricer):
    return run_layout(TransformerStep(work, pricer), where, costs=costs).step_s


@pytest.mark.every(3)
@pytest.mark.parametrize("schedule", BOTH)
@pytest.mark.parametrize(("name", "place", "text"), CASES)
def test_both_paths_agree_to_rounding(name, place, text, schedule):
    work, where = work_of(name, text, schedule), cluster(place)
    pricer = Pricer.from_cluster(where, INDEPENDENT)
    priced = pricer.price_work(work)
    assert simulated_s(work, where, INDEPENDENT, pricer) == pytest.approx(priced.step_s, rel=1e-9)
    assert sum(priced.breakdown_s.values()) == pytest.approx(priced.step_s, rel=1e-9)
    assert pricer.step_s(work) == priced.step_s
    slower = CostSettings(contention="independent", overlap_slowdown=1.1)
    pricer = Pricer.from_cluster(where, slower)
    assert simulated_s(work, where, slower, pricer) == pytest.approx(pricer.step_s(work), rel=0.03)


@pytest.mark.parametrize("schedule", BOTH)
def test_a_pair_hides_what_experts_send(schedule):
    name, place, text = CASES[0]
    pricer = Pricer.from_cluster(cluster(place), INDEPENDENT)
    for number, share in ((40, 0.6), (400, 0.1)):
        many = text.replace("global_batch=40", f"global_batch={number}")
        plain, paired = (pricer.price_work(work_of(name, many, one)).breakdown_s["exposed ep"] for one in ("1f1b", schedule))
        # 1F1B shows every message of its micro-batches; here only those show that fill and empty the pipeline
        assert paired < share * plain


def test_dualpipe_holds_two_copies_and_sums_their_gradients():
    name, _, text = CASES[0]
    plain, both, folded = (work_of(name, text, one) for one in ("1f1b", *BOTH))
    for stage in range(4):
        own, mirrored = plain.stages[stage], plain.stages[3 - stage]
        assert both.stages[stage].parameters == pytest.approx(own.parameters + mirrored.parameters)
        # what is summed is as much as the rank updates, in 4 bytes
        (summed,) = [item for item in both.stages[stage].sync if item.axis == "mirror"]
        assert summed == Message(summed.name, "all_reduce", "mirror", 4.0 * both.stages[stage].optimizer_parameters)
    assert sum(one.parameters for one in folded.stages) == pytest.approx(sum(one.parameters for one in plain.stages))
    assert not [item for one in folded.stages for item in one.sync if item.axis in ("mirror", "ends")]


def test_a_tied_table_of_both_ends_of_the_model_is_held_once_where_both_are_on_a_rank():
    plain, both, folded = (work_of("gpt2", CASES[3][2], one) for one in ("1f1b", *BOTH))
    table = 50257 / 2 * 768
    assert both.stages[0].parameters == pytest.approx(sum(stage.parameters for stage in plain.stages) - table, rel=1e-3)
    assert folded.stages[0].parameters - folded.stages[1].parameters == pytest.approx(table, rel=0.05)
    assert [item.axis for item in both.stages[0].sync] == ["dp_cp", "mirror"]
    assert [item.axis for item in folded.stages[0].sync] == ["dp_cp"]


def test_activations_are_those_of_one_chunk_more_than_stages():
    shape, length = SHAPES["llama-7b"]

    def activations(schedule, number):
        layout = Layout.parse(f"pp=4,tp=2,micro_batch=1,global_batch={number},schedule={schedule}", hides_unasked=True)
        work = describe(shape, layout, length)
        return [stage_memory(work, stage).activations for stage in (1, 2)]

    # Eight layers in four stages: 1F1B keeps three micro-batches of two layers on its second stage, DualPipe five of two.
    plain, both, folded = (activations(one, 16) for one in ("1f1b", *BOTH))
    assert both[0] == pytest.approx(plain[0] * 5 / 3, rel=1e-9)
    assert folded[0] == pytest.approx(plain[0] * 9 / 6, rel=1e-9)
    assert activations("dualpipe", 64) == pytest.approx(both)


def test_the_number_of_tasks_is_told_before_they_are_made():
    name, place, text = CASES[3]
    for schedule in BOTH:
        step = layout_step(work_of(name, text, schedule), cluster(place), INDEPENDENT)
        run = run_layout(step, cluster(place), costs=INDEPENDENT)
        network = RankNetwork(cluster(place), np.arange(step.layout.world))
        assert num_tasks(step, network) == pytest.approx(run.lowered.execution.num_tasks, rel=0.35)


@pytest.mark.every(3)
@pytest.mark.parametrize("schedule", BOTH)
@pytest.mark.parametrize(
    ("name", "text", "within"),
    [
        ("gpt2", "pp=4,dp=2,micro_batch=1,global_batch=16,zero=1", 1e-9),
        ("experts", "pp=2,ep=2,dp=4,micro_batch=1,global_batch=32", 1e-5),
        ("gpt2", "pp=2,tp=2,dp=2,micro_batch=1,global_batch=16", 0.01),  # messages of one lane wait for its slowest group
        ("llama-7b", "pp=4,tp=2,micro_batch=1,global_batch=16", 0.01),
    ],
)
def test_both_paths_agree_where_hosts_are_not_alike(name, text, within, schedule):
    work = work_of(name, text, schedule)
    for seed in range(2):
        where = drawn_matrix(seed, devices_per_host=2)
        pricer = Pricer.from_cluster(where, INDEPENDENT)
        priced = pricer.price_work(work)
        assert simulated_s(work, where, INDEPENDENT, pricer) == pytest.approx(priced.step_s, rel=within)
        assert sum(priced.breakdown_s.values()) == pytest.approx(priced.step_s, rel=1e-9)


def test_a_rank_with_more_to_do_on_one_side_needs_the_memory_of_both():
    work = work_of("gemma", CASES[5][2], "dualpipe")
    stage, memory = peak_memory(work)
    assert memory.total == max(stage_memory(work, one).total for one in range(2))
    assert stage in (0, 1)
