"""Training strategies by the event path: steps that traces hold, lowered and run, against which closed forms are held."""

from __future__ import annotations

import numpy as np

from meshwright.costs.settings import CostSettings
from meshwright.costs.training.gossip import round_s, rounds_of
from meshwright.costs.training.replicas import shown
from meshwright.costs.work.step_work import StepWork
from meshwright.planning.job_work import JobWork
from meshwright.planning.training import simulated_training_s
from meshwright.plans.compression import AnyCompression
from meshwright.plans.training import AnyTraining, DiLoCo, Gossip, LocalSgd, PostLocalSgd
from meshwright.simulation.layouts.running import run_layout
from meshwright.simulation.step import kernel
from meshwright.simulation.training.phases import local_period
from meshwright.simulation.training.rounds import gossip_rounds

LOWERED_STEPS = 3
"""Steps of a period that are lowered; what a longer one has in addition are steps without sums, which take as long each."""

ROUNDS = 64
"""Steps of gossip that are run; the second half counts."""


def is_run(training: AnyTraining) -> bool:
    """Whether a strategy is lowered: steps and then one average, gossip, or sums in every step."""
    if isinstance(training, DiLoCo):
        return not training.overlap and training.fragments == 1
    return training.kind in ("synchronous", "masked", "local-sgd", "post-local-sgd", "gossip")


def event_s(
    maker: JobWork,
    work: StepWork,
    training: AnyTraining,
    compression: AnyCompression | None = None,
    costs: CostSettings | None = None,
) -> float:
    """Mean seconds of a step of a strategy of which `is_run` holds, where no replica is late."""
    costs = (costs or maker.costs).of_layouts
    if isinstance(training, Gossip):
        replicas = maker.replicas(work)
        found = rounds_of(replicas, training.topology)
        return gossip_s(np.tile(replicas.workers_s, (ROUNDS, 1)), found, [round_s(replicas, one) for one in found])
    if not isinstance(training, LocalSgd | PostLocalSgd | DiLoCo):
        return simulated_training_s(maker, work, training, compression, costs)
    place = maker.cluster, maker.devices(work.layout.world), costs

    def period_s(every: int, share: float) -> float:
        lowered = min(every, LOWERED_STEPS)
        ran = run_layout(local_period(maker.simulated(work), lowered, share), *place, num_steps=2 * lowered)
        ends = ran.timeline.finish_s[ran.lowered.optimizers].max(axis=1)
        alone_s = run_layout(maker.simulated(shown(work).with_gradient_share(0.0)), *place).step_s
        return float(ends[2 * lowered - 1] - ends[lowered - 1] + (every - lowered) * alone_s) / every

    share = training.quantise_bits / 32 if isinstance(training, DiLoCo) else 1.0
    first = training.warmup_steps / training.num_steps if isinstance(training, PostLocalSgd) else 0.0
    return first * period_s(1, share) + (1 - first) * period_s(training.every, share)


def gossip_s(times_s, found, rounds_s):  # type: ignore[no-untyped-def]
    """Mean seconds of a step of gossip over whole cycles of its rounds; arguments are those of `gossip_rounds`."""
    put, lasts = gossip_rounds(times_s, found, rounds_s)
    finish_s = kernel.schedule(put.execution())[1]
    counted = max(1, (len(lasts) // 2) // len(found)) * len(found)
    last_s, first_s = (finish_s[lasts[place]].max() for place in (-1, -1 - counted))
    return float(last_s - first_s) / counted
