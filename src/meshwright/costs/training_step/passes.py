"""The time of a pass on one rank: kernels one after the other, overlapped with messages where that is allowed.

There are two clocks: the kernels', and for each axis that of its messages, one of them at a time. A message without companions
holds the kernels up; one with companions holds up what follows them. The host issues kernels and messages ahead of the device.
Where issuing takes as long as running, neither hides the other quite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

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

_OF_HOST = ("kernel", "message", "hook", "compiled_hook", "launch")

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


def sharding_slowdown(slowdown: float) -> float:
    """Return the slowdown while FSDP2 sends, in proportion to one that is asked for up to `SHARDING_SLOWDOWN`, never less."""
    share = min(1.0, (slowdown - 1.0) / (OVERLAP_SLOWDOWN - 1.0))
    return max(slowdown, 1.0 + share * (SHARDING_SLOWDOWN - 1.0))


def pass_time(
    items: Pass,
    kernels: KernelModel,
    message_s: Callable[[Message], float],
    element_bytes: int,
    slowdown: float = OVERLAP_SLOWDOWN,
) -> PassTime:
    """The time of a pass.

    Args:
        items: what is done, in order.
        kernels: prices kernels.
        message_s: prices messages.
        element_bytes: of one number in the working precision.
        slowdown: factor by which kernels and messages both take longer while they run side by side.
    """
    kernel_us, message_us, hook_us, compiled_us, launch_us = (kernels.host_us[f"host_us_per_{of}"] for of in _OF_HOST)
    launch_us = min(kernel_us, launch_us)
    hooked = sharding_slowdown(slowdown)
    clock = kernels_s = host_s = 0.0
    line: dict[str, float] = {}
    exposed: dict[str, float] = {}
    hidden: dict[str, float] = {}
    waits: list[tuple[int, float, float, float, Message]] = []
    for place, item in enumerate((*items, None)):
        for wait in [w for w in waits if w[0] == place] if waits else ():
            waits.remove(wait)
            _, end, whole_s, begun, message = wait
            exposed_s = max(0.0, end - clock)
            beside_s = min(whole_s - min(exposed_s, whole_s), clock - begun)
            exposed_s += ((hooked if message.is_hooked else slowdown) - 1.0) * beside_s
            clock += exposed_s
            _put(exposed, message.axis, exposed_s)
            _put(hidden, message.axis, beside_s)
        if item is None:
            break
        if isinstance(item, Message):
            whole_s = message_s(item)
            if item.is_hooked or whole_s:
                of_hook_us = compiled_us if item.is_compiled else hook_us
                host_s += (of_hook_us if item.is_hooked else message_us) / 1e6
            begun = max(clock, line.get(item.axis, 0.0))
            if not item.num_concurrent:
                _put(exposed, item.axis, begun + whole_s - clock)
                clock = line[item.axis] = begun + whole_s
                continue
            first_s = whole_s / item.chunks if item.chunks > 1 else 0.0
            _put(exposed, item.axis, first_s)
            clock += first_s
            line[item.axis] = max(begun, clock - first_s) + whole_s
            waits.append((place + 1 + item.num_concurrent, line[item.axis], whole_s - first_s, clock, item))
        else:
            seconds = kernels.kernel_s(item, element_bytes)
            clock += seconds
            kernels_s += seconds
            if isinstance(item, Sweep):
                host_s += item.num_kernels * kernel_us / 1e6
            else:
                loops = item.num_launches - 1 if isinstance(item, Product) else 0
                host_s += (kernel_us + loops * launch_us) / 1e6
    return PassTime(kernels_s, exposed, hidden, host_s)


def _put(times: dict[str, float], axis: str, seconds: float) -> None:
    if seconds:
        times[axis] = times.get(axis, 0.0) + seconds


def _sum(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return {axis: one.get(axis, 0.0) + other.get(axis, 0.0) for axis in {**one, **other}}
