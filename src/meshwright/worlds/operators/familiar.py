"""The part of an instance that is like a policy's training: without hosts, or devices far slower, if it met none.

The better of the policy's placement and a rule's is taken.

Legend of shapes: ``n`` ops, ``m`` devices of the whole instance, ``k`` devices of the part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...errors import GraphError, PlanError
from ...simulation.operators.instance import OperatorInstance
from ...simulation.operators.placement import OperatorPlacement, placed
from ..world import KnownPart


class FamiliarPart(KnownPart[OperatorInstance]):
    """An instance, without devices that are far slower than in training and hosts that were not in it, and a rule's placement.

    Args:
        whole: the instance.
        part: on the devices that are kept.
        devices: of these in ``whole``, ``(k,)``.
        rule: a rule's placement of ``whole``.
        note: why devices are left out; empty if none are.
    """

    def __init__(
        self,
        whole: OperatorInstance,
        part: OperatorInstance,
        devices: NDArray[np.int64],
        rule: OperatorPlacement,
        note: str,
    ) -> None:
        super().__init__(part)
        self.devices, self.note, self._whole, self._rule = devices, note, whole, rule

    def of_whole(self, outcome: OperatorPlacement, or_rule: bool = True) -> OperatorPlacement:
        """See `KnownPart`."""
        made = outcome
        if self.instance is not self._whole:
            devices = self.devices[outcome.device_of]
            made = placed(self._whole, devices, outcome.objective, outcome.planner, order=outcome.order, note=self.note)
        if not or_rule or made.value_s <= self._rule.value_s:
            return made
        notes = filter(None, (self.note, f"{self._rule.planner}'s placement is better and taken"))
        return replace(self._rule, planner=outcome.planner, note="; ".join(notes))


def familiar_part(
    whole: OperatorInstance,
    most_slowdown: float,
    by_rule: Callable[[OperatorInstance], OperatorPlacement],
    met_hosts: bool = True,
) -> KnownPart[OperatorInstance]:
    """Return an instance without its far slower devices, and without hosts if the policy met none in training.

    Where the others cannot run and hold all ops, those that a rule puts on such a device can run there alone.

    Args:
        whole: the instance.
        most_slowdown: an op takes at most so many times as long on the slowest device as on the fastest one in training.
        by_rule: places an instance, or raises `PlanError`.
        met_hosts: whether there were processors of hosts in training.
    """
    every, is_slow = np.arange(whole.num_devices), far_slower(whole, most_slowdown)
    if not met_hosts:
        is_slow |= whole.is_host
    try:
        rule = by_rule(whole)
    except PlanError:  # the network may find what the rule does not
        return KnownPart(whole)
    if not is_slow.any():
        return FamiliarPart(whole, whole, every, rule, "")
    others = "no " if met_hosts else "no host and no "
    note = f"the policy met {others}device over {most_slowdown:.3g} times as slow as the fastest in training: such are left out"
    try:
        devices = every[~is_slow]
        part = _on(whole, whole.times_s, devices)
        by_rule(part)
    except (GraphError, PlanError):
        on_slow = is_slow[rule.device_of]
        is_barred = (is_slow | on_slow[:, None]) & (every != rule.device_of[:, None])
        devices = np.union1d(every[~is_slow], rule.device_of)
        part = _on(whole, np.where(is_barred, np.inf, whole.times_s), devices)
        note += f", but for ops that {rule.planner} puts there, as the others cannot take all"
    return FamiliarPart(whole, part, devices, rule, note)


def far_slower(instance: OperatorInstance, most_slowdown: float) -> NDArray[np.bool_]:
    """Return which devices take more than so many times as long as another one for the ops that both can run, ``(m,)``."""
    runs = np.isfinite(instance.times_s)
    together_s = np.where(runs, instance.times_s, 0.0).T @ runs  # of a row's device for the ops that a column's runs too
    return np.asarray((together_s / most_slowdown > together_s.T * (1.0 + 1e-9)).any(axis=1))


def _on(whole: OperatorInstance, times_s: NDArray[np.float64], devices: NDArray[np.int64]) -> OperatorInstance:
    """Some devices of an instance, with other times, ``(n, m)``.

    Raises:
        GraphError: an op can run on none of them.
    """
    pairs = np.ix_(devices, devices)
    return replace(
        whole,
        times_s=times_s[:, devices],
        device_names=tuple(whole.device_names[device] for device in devices),
        device_types=tuple(whole.device_types[device] for device in devices),
        memory_bytes=whole.memory_bytes[devices],
        latency_s=whole.latency_s[pairs],
        bandwidth_bytes_per_s=whole.bandwidth_bytes_per_s[pairs],
        is_host=whole.is_host[devices],
    )
