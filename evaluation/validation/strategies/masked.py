"""Partially masked training: bytes of a cycle, and what plans of its own for each phase bring."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....clusters import load_cluster
from ....costs.settings import CostSettings
from ....costs.training.masked import core_work
from ....jobs.load import JobSource
from ....jobs.masked import Core
from ....planners.layouts.request import SearchRequest
from ....planning.job_work import JobWork
from ....planning.op_graph_work import work_of
from ....planning.phases.joint import JointSearch, joint_plan
from ....planning.training import price_training
from ....plans.partition import Layout
from ....plans.training import Masked, Synchronous
from ....simulation.step.execution import TaskKind
from ....simulation.training.phases import run_cycles
from ....simulation.training.strategy_step import simulated_training_s
from ..published_figures import PublishedFigure

SHARES = (0.5, 0.25)
"""Widths of cores."""

STEPS = 3
"""Of each phase of the cycle whose bytes are counted in the execution graph."""

WHERE = "preset:clos-64-25g"

KEPT = "tp=1,cp=1,zero=0|2|3,recompute=none,schedule=1f1b"


def figures() -> Iterator[PublishedFigure]:
    """Yield the bytes of a cycle against counted ones, a mask of ones on both paths, and phases that are planned together."""
    costs = CostSettings(contention="independent", overlap_slowdown=1.0, collectives="ring").of_layouts
    maker = work_of(JobSource("zoo:vgg16"), load_cluster(WHERE), costs, batch_size=128)
    work = maker.work(Layout(dp=16, micro_batch=8, global_batch=128, overlap_dp=True))
    for share in SHARES:
        training = Masked(core=Core(width=share), core_steps=STEPS, full_steps=STEPS)
        counted = _lowered_bytes(maker, work, training)
        ours = price_training(maker, work, training).sent_bytes * training.num_steps
        yield PublishedFigure(f"core of width {share:g}", "gradient bytes of a cycle", ours, f"{counted:.17g}", 1e-9)
    ones = Masked(core=Core(width=1.0), core_steps=2, full_steps=1)
    for name, seconds in (("closed form", lambda *of: price_training(*of).step_s), ("event path", simulated_training_s)):
        exact_s = seconds(maker, work, Synchronous())
        yield PublishedFigure(
            "mask of ones", f"step over the job's, {name}", seconds(maker, work, ones) / exact_s, "1.000000000", 1e-9
        )
    large = work_of(JobSource("zoo:gpt2-xl"), load_cluster(WHERE), CostSettings().of_layouts)
    result = JointSearch(large, SearchRequest(batch=64, devices="16", keep=KEPT), (16,))
    for cycle in (1, 100):
        made = joint_plan(result, Masked(core=Core(width=0.2), core_steps=9 * cycle, full_steps=cycle))
        yield PublishedFigure(
            f"gpt2-xl, cycles of {10 * cycle} steps",
            "planned together over one plan for both",
            made.price.step_s / made.single_s,
            "1.0",
            0.0,
            is_limit=True,
        )


def _lowered_bytes(maker: JobWork, work: Any, training: Masked) -> float:
    """Return the gradients that the first rank sums in a cycle, counted in the execution graph of all its steps."""
    core = core_work(work, training.core, 0.0)
    devices = maker.devices(work.layout.world)
    models = maker.simulated(work), maker.simulated(core)
    run = run_cycles(*models, training, maker.cluster, devices, maker.costs, num_cycles=1)
    execution = run.lowered.execution
    is_summed = (execution.kind == TaskKind.COLLECTIVE) & (execution.rank == 0)
    return float(execution.payload_bytes[is_summed].sum())
