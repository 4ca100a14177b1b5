"""Stages filled device by device, in plain Python: the features and the value anew, in the same order of additions."""

from __future__ import annotations

import numpy as np

from meshwright.simulation.tasklets.filling import NUM_CANDIDATE_FEATURES
from meshwright.simulation.tasklets.instance import TaskletInstance
from meshwright.simulation.tasklets.values import matching_s


def share(seconds: float, unit_s: float) -> float:
    """A time in [0, 1)."""
    return seconds / (seconds + unit_s)


def added(seconds: list[float]) -> float:
    """The sum, one after another; Python's own is more exact from 3.12 on."""
    total = 0.0
    for each in seconds:
        total += each
    return total


class PlainFilling:
    """One episode; attributes as of `simulation.tasklets.filling`."""

    def __init__(self, instance: TaskletInstance, units_s: tuple[float, float]) -> None:
        self.instance, self.units_s, self.joined = instance, units_s, list[int]()
        self.reduce, self.hand = instance.reduce_s.tolist(), instance.hand_over_s.tolist()
        n = instance.num_devices
        self.left_reduce = [added(row) for row in self.reduce]
        self.left_hand = [added(row) for row in self.hand]
        self.slowest = self.path = 0.0
        self.everyone = range(n)

    @property
    def stage(self) -> list[int]:
        """Devices in the stage that is being filled."""
        p = self.instance.num_replicas
        return self.joined[len(self.joined) // p * p :]

    @property
    def previous(self) -> list[int]:
        """Devices of the stage before."""
        p = self.instance.num_replicas
        first = len(self.joined) // p * p
        return self.joined[first - p : first] if first else []

    @property
    def value_s(self) -> float:
        """Of what is filled."""
        return self.slowest + 2.0 * self.path

    def exchange(self, device: int, stage: list[int]) -> float:
        """Of a device with those in a stage, added in the order in which they joined."""
        return added([self.reduce[member][device] for member in stage])

    def join(self, device: int) -> None:
        """Let a device join."""
        p, previous = self.instance.num_replicas, self.previous
        self.joined.append(device)
        for other in self.everyone:
            self.left_reduce[other] -= self.reduce[device][other]
            self.left_hand[other] -= self.hand[device][other]
        full = len(self.joined) % p == 0
        stage = self.joined[-p:] if full else self.stage
        self.slowest = max([self.slowest, *(self.exchange(member, stage) for member in stage)])
        if full and previous:
            scratch = np.zeros((3, p), np.int64)
            self.path += matching_s(self.instance.hand_over_s, np.array(previous), np.array(stage), *scratch)

    def candidates(self) -> np.ndarray:
        """Features of all devices, ``(n, f)``."""
        instance, (unit_s, hand_unit_s) = self.instance, self.units_s
        n, p = instance.num_devices, instance.num_replicas
        stage, previous, left = self.stage, self.previous, [each for each in self.everyone if each not in self.joined]
        made = np.zeros((n, NUM_CANDIDATE_FEATURES), np.float32)
        stage_unit_s = unit_s * max(1, p - 1)

        def least_from(device: int) -> float:
            return min(self.hand[member][device] for member in previous)

        now_s = max([0.0, *(least_from(member) for member in stage)]) if previous else 0.0
        for device in left:
            stage_s = max(
                [self.exchange(device, stage), *(self.exchange(member, stage) + self.reduce[member][device] for member in stage)]
            )
            figures = {0: share(stage_s, stage_unit_s), 1: share(max(0.0, stage_s - self.slowest), stage_unit_s)}
            if stage:
                figures[2] = share(self.exchange(device, stage) / len(stage), unit_s)
                figures[3] = share(max(self.reduce[member][device] for member in stage), unit_s)
            others = [each for each in left if each != device]
            nearest = sorted(others, key=lambda other: self.reduce[device][other])[: p - 1 - len(stage)]
            if nearest:
                figures[4] = share(added([self.reduce[device][other] for other in nearest]) / len(nearest), unit_s)
            if previous:
                mean_s = added([self.hand[member][device] for member in previous]) / p
                hop_s = max(now_s, least_from(device))
                figures |= {5: share(least_from(device), hand_unit_s), 6: share(mean_s, hand_unit_s)}
                figures |= {7: share(hop_s, hand_unit_s), 8: share(hop_s - now_s, hand_unit_s)}
            if others:
                figures[9] = share(min(self.hand[device][other] for other in others), hand_unit_s)
                figures[10] = share(max(0.0, self.left_reduce[device] / len(others)), unit_s)
                figures[11] = share(max(0.0, self.left_hand[device] / len(others)), hand_unit_s)
            halfway_s = (min([each for u, each in enumerate(self.reduce[device]) if u != device], default=np.inf) + unit_s) / 2
            near = 1 + sum(self.reduce[device][other] <= halfway_s for other in others)
            figures |= {12: near / (near + p), 13: near % p / p, 14: float(not stage), 15: float(bool(previous))}
            for feature, value in figures.items():
                made[device, feature] = value
        return made

    def progress(self) -> np.ndarray:
        """Features of the episode, ``(5,)``."""
        instance, (unit_s, hand_unit_s) = self.instance, self.units_s
        n, k, p = instance.num_devices, instance.num_stages, instance.num_replicas
        inside, previous = len(self.stage), self.previous
        hop_s = max([0.0, *(min(self.hand[one][member] for one in previous) for member in self.stage)]) if previous else 0.0
        messages = [
            inside / p,
            (len(self.joined) - inside) / n,
            share(self.slowest, unit_s * max(1, p - 1)),
            share(self.path, hand_unit_s * max(1, k - 1)),
            share(hop_s, hand_unit_s),
        ]
        return np.array(messages, np.float32)
