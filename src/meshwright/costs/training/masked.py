"""Partially masked training in closed form: a cycle of two phases, each by a plan of its own or both by one.

Legend: ``k_c, k_f`` steps of the core and of the whole model in a cycle, ``t_c, t_f`` seconds of a step of each, ``t_r`` seconds
in which weights and optimizer go from the places of one plan to those of the other.

Source:
    Mohtashami, Jaggi and Stich, "Masked training of neural networks with partial gradients", 2022, arXiv 2106.08895.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...plans.rank_order import coordinates
from ...plans.strategies.masked import Masked
from ..process_groups.group_network import GroupNetwork
from ..resharding.model_state import ModelPlace, moved_s, state_tasks
from ..training_step.stage_crossings import sending_ways
from ..work.memory import StageMemory
from ..work.step_work import StepWork
from .core_work import core_work
from .replicas import Replicas
from .synchronisation import synchronous_s


def cycle_s(core_s: float, full_s: float, training: Masked, resharding_s: float = 0.0) -> float:
    """Seconds of a cycle: ``k_c t_c + k_f t_f + 2 t_r``."""
    return training.core_steps * core_s + training.full_steps * full_s + 2.0 * resharding_s


def cycle_bytes(core_bytes: float, full_bytes: float, training: Masked) -> float:
    """Bytes that a rank sums over its replicas in a cycle: ``k_c mu W + k_f W``."""
    return training.core_steps * core_bytes + training.full_steps * full_bytes


def joint_saving(core_s: float, full_s: float, training: Masked, resharding_s: float = 0.0) -> float:
    """What one training of both models saves against one of each, of equal steps: ``1 - t_joint / (t_full + t_core)``."""
    joint_s = cycle_s(core_s, full_s, training, resharding_s) / training.num_steps
    return 1.0 - joint_s / (full_s + core_s)


class PhaseStep(NamedTuple):
    """Steps of one phase.

    Attributes:
        name: ``core`` or ``full``.
        num_steps: in a cycle.
        step_s: seconds of each.
    """

    name: str
    num_steps: int
    step_s: float


class MaskedStep(NamedTuple):
    """The steps of both phases of a masked job under a layout.

    Attributes:
        core, full: the phases.
        sent_bytes: of gradients for each step and rank, in the mean.
        share: of the weights that the core has, ``mu``.
    """

    core: PhaseStep
    full: PhaseStep
    sent_bytes: float
    share: float

    def remark(self, training: Masked) -> str:
        """What the core has, and what one training of both models saves, for people."""
        saving = joint_saving(self.core.step_s, self.full.step_s, training)
        return (
            f"the core has {self.share:.1%} of the weights and takes {1e3 * self.core.step_s:.3f} ms a step, the whole model "
            f"{1e3 * self.full.step_s:.3f} ms; one training of both takes {saving:.0%} less than one of each"
        )


def masked_step(training: Masked, full: Replicas, core: Replicas, share: float) -> MaskedStep:
    """Steps of both phases.

    Args:
        training: the cycle.
        full, core: replicas of each phase, by its own plan.
        share: of the weights that the core has, see `core_work.parameter_share`.
    """
    return MaskedStep(
        PhaseStep("core", training.core_steps, synchronous_s(core)),
        PhaseStep("full", training.full_steps, synchronous_s(full)),
        cycle_bytes(core.sent_bytes, full.sent_bytes, training) / training.num_steps,
        share,
    )


def core_replicas(replicas: Replicas, training: Masked) -> Replicas:
    """The core by the same plan.

    Raises:
        GraphError, PlanError: the job has no such core, or the layout cannot cut it.
    """
    return replace(replicas, work=core_work(replicas.work, training.core, replicas.pricer.device.kernel_launch_s))


def core_memory(whole: StageMemory, core: StageMemory) -> StageMemory:
    """What a rank holds in a step of the core: the whole model and optimizer, gradients and activations of the core."""
    return core._replace(parameters=whole.parameters, optimizer=whole.optimizer)


def model_place(work: StepWork, order: str, hosts: NDArray[np.int64]) -> ModelPlace:
    """The places of the parts of a job's model.

    Args:
        work: of the whole job, by the plan of a phase.
        order: how ranks are numbered.
        hosts: of each rank's device, in that order, ``(world,)``.
    """
    layout, parts = work.layout, work.weight_parts
    return ModelPlace(layout, parts.sizes, parts.chunks, coordinates(layout, order), tuple(hosts.tolist()), parts.number_bytes)


def resharding_s(source: ModelPlace, target: ModelPlace, wires: GroupNetwork) -> float:
    """Seconds in which weights and optimizer go from the places of one plan to those of another; none between equal ones.

    A host sends over the cards of all its devices, a part each.

    Raises:
        PlanError: plans between which the state is not priced, see `model_state.state_tasks`.
    """
    tasks = state_tasks(source, target)
    ways = sending_ways(source.hosts, wires)
    return moved_s(tasks, ways.between_s, ways.inside_s)
