"""The time of a pass on one rank: kernels one after the other, overlapped with messages where that is allowed.

There are two clocks: the kernels', and for each axis that of its messages, one of them at a time. A message without companions
holds the kernels up; one with companions holds up what follows them. The host issues kernels and messages ahead of the device.
Where issuing takes as long as running, neither hides the other quite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache

from ..settings import LAYOUT_DEFAULTS
from ..work.operations import Message, Pass, Product, Sweep
from .kernels import KernelModel

HOST_POWER = 3.0
"""Time of a block's pass from the device's time ``d`` and the host's ``h``: ``(d^p + h^p)^(1/p)``. That is between their
maximum (the host always far ahead) and their sum (never). Each block is taken by itself. vTrain's times are sums of blocks to
the last digit, so no block's device time hides another's host time. The power was chosen by cross-validation inside the
calibration set: parts of vTrain's rows of hidden size 1024, by micro-batch, predicted from the others. 2, 2.5, 3 and 4 were
tried.
"""


OVERLAP_SLOWDOWN: float = LAYOUT_DEFAULTS["overlap_slowdown"]
"""Factor by which kernels and messages both take longer while they run side by side, where nothing else is asked for."""

SHARDING_SLOWDOWN = 1.4
"""The same of FSDP2's gathers and scatters, which move all weights and float32 gradients while a layer's kernels run.

Sources say 1.13 (whole steps, `OVERLAP_SLOWDOWN`), 1.19 in the mean and 1.40 at most (Lee et al.). For single kernels of an
A100 during an all-gather they say 1.8 (NVIDIA/nccl issue 1428). Lee et al., "Characterizing compute-communication overlap in
GPU-accelerated distributed deep learning", 2025, arXiv 2507.03114, measured A100 and H100 among others. The largest of whole
steps is an upper choice. It was made with torchtitan's published rows on A100 in sight: they are no independent check of it.
"""


@dataclass(frozen=True, slots=True)
class PassTime:
    """Parts of the time of a pass.

    Attributes:
        kernels_s: the device's kernels.
        exposed_s: by axis, waiting for messages that nothing hides.
        hidden_s: by axis, messages that overlapped with kernels.
        host_s: time of the host to issue all of it.
    """

    kernels_s: float = 0.0
    exposed_s: dict[str, float] = field(default_factory=dict)
    hidden_s: dict[str, float] = field(default_factory=dict)
    host_s: float = 0.0

    @property
    def device_s(self) -> float:
        """The device's time."""
        return self.kernels_s + sum(self.exposed_s.values())

    @property
    def seconds(self) -> float:
        """The pass's time, the host's with it."""
        return float((self.device_s**HOST_POWER + self.host_s**HOST_POWER) ** (1 / HOST_POWER))

    def __add__(self, other: PassTime) -> PassTime:
        return PassTime(
            self.kernels_s + other.kernels_s,
            _sum(self.exposed_s, other.exposed_s),
            _sum(self.hidden_s, other.hidden_s),
            self.host_s + other.host_s,
        )

    def __mul__(self, times: float) -> PassTime:
        return PassTime(
            times * self.kernels_s,
            {axis: times * value for axis, value in self.exposed_s.items()},
            {axis: times * value for axis, value in self.hidden_s.items()},
            times * self.host_s,
        )


_NOTHING: dict[str, float] = {}
"""Of most passes, and never changed."""

NO_TIME = PassTime(0.0, _NOTHING, _NOTHING)


def sharding_slowdown(slowdown: float) -> float:
    """Return the slowdown while FSDP2 sends, in proportion to one that is asked for up to `SHARDING_SLOWDOWN`, never less."""
    share = min(1.0, (slowdown - 1.0) / (OVERLAP_SLOWDOWN - 1.0))
    return max(slowdown, 1.0 + share * (SHARDING_SLOWDOWN - 1.0))


Steps = list[Message | tuple[float, float]]
"""The messages and kernels of a pass in order, kernels as seconds of the device and of the host."""


def steps_of(items: Pass, kernels: KernelModel, element_bytes: int) -> Steps:
    """Return the steps of a pass, wherever its ranks are.

    Args:
        items: what is done, in order.
        kernels: prices kernels.
        element_bytes: of one number in the working precision.
    """
    kernel_us = kernels.host_us["host_us_per_kernel"]
    launch_us = min(kernel_us, kernels.host_us["host_us_per_launch"])
    steps: Steps = []
    for item in items:
        if isinstance(item, Message):
            steps.append(item)
            continue
        if isinstance(item, Sweep):
            host_us = item.num_kernels * kernel_us
        else:
            host_us = kernel_us + (item.num_launches - 1 if isinstance(item, Product) else 0) * launch_us
        steps.append(_kernel(kernels.kernel_s(item, element_bytes), host_us / 1e6))
    return steps


@lru_cache(maxsize=65_536)
def _kernel(device_s: float, host_s: float) -> tuple[float, float]:
    """Return the seconds of a kernel, of equal ones the same object: a search keeps some hundred thousand of a few thousand."""
    return device_s, host_s


def pass_time(
    items: Pass,
    kernels: KernelModel,
    message_s: Callable[[Message], float],
    element_bytes: int,
    slowdown: float = OVERLAP_SLOWDOWN,
) -> PassTime:
    """Return the time of a pass.

    Args:
        items, kernels, element_bytes: as of `steps_of`.
        message_s: prices messages.
        slowdown: factor by which kernels and messages both take longer while they run side by side.
    """
    return time_of(steps_of(items, kernels, element_bytes), kernels, message_s, slowdown)


def time_of(steps: Steps, kernels: KernelModel, message_s: Callable[[Message], float], slowdown: float) -> PassTime:
    """Return the time of the steps of a pass; arguments as of `pass_time`."""
    clock = kernels_s = host_s = 0.0
    line: dict[str, float] = {}
    exposed: dict[str, float] = {}
    hidden: dict[str, float] = {}
    waits: list[tuple[int, float, float, float, Message]] = []
    next_wait = len(steps) + 1
    for place, step in enumerate((*steps, None)):
        if place == next_wait:
            for wait in [w for w in waits if w[0] == place]:
                waits.remove(wait)
                _, end, whole_s, begun, message = wait
                exposed_s = max(0.0, end - clock)
                overlapped_s = min(whole_s - min(exposed_s, whole_s), clock - begun)
                exposed_s += ((sharding_slowdown(slowdown) if message.is_hooked else slowdown) - 1.0) * overlapped_s
                clock += exposed_s
                _put(exposed, message.axis, exposed_s)
                _put(hidden, message.axis, overlapped_s)
            next_wait = min((w[0] for w in waits), default=len(steps) + 1)
        if isinstance(step, tuple):
            device_s, issued_s = step
            clock += device_s
            kernels_s += device_s
            host_s += issued_s
        elif step is not None:
            whole_s = message_s(step)
            if step.is_hooked or whole_s:
                host_us = kernels.host_us
                of_hook = "host_us_per_compiled_hook" if step.is_compiled else "host_us_per_hook"
                host_s += host_us[of_hook if step.is_hooked else "host_us_per_message"] / 1e6
            axis, begun = step.axis, line.get(step.axis, 0.0)
            if begun < clock:
                begun = clock
            if not step.num_concurrent:
                shown_s = begun + whole_s - clock
                if shown_s:
                    exposed[axis] = exposed.get(axis, 0.0) + shown_s
                clock = line[axis] = begun + whole_s
                continue
            first_s = whole_s / step.chunks if step.chunks > 1 else 0.0
            _put(exposed, axis, first_s)
            clock += first_s
            line[axis] = max(begun, clock - first_s) + whole_s
            waits.append((place + 1 + step.num_concurrent, line[axis], whole_s - first_s, clock, step))
            next_wait = min(next_wait, waits[-1][0])
    return PassTime(kernels_s, exposed or _NOTHING, hidden or _NOTHING, host_s)


def _put(times: dict[str, float], axis: str, seconds: float) -> None:
    if seconds:
        times[axis] = times.get(axis, 0.0) + seconds


def _sum(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {axis: one.get(axis, 0.0) + other.get(axis, 0.0) for axis in {**one, **other}}
