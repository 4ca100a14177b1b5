"""Small instances of operator placement, drawn and worked by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from meshwright.simulation.operators.instance import OperatorInstance

from ...draws import num_cases

AT_LENGTH = 200
"""Cases of the long form of a law, where it names no other number."""


def short_and_long(
    number: int, short: st.SearchStrategy[Any], long: st.SearchStrategy[Any], at_length: int = AT_LENGTH
) -> Callable[[Any], Any]:
    """A decorator: a law of one instance, of ``number`` small ones and, marked slow, of ``at_length`` larger ones."""
    forms = {"short": (num_cases(number), short), "long": (at_length, long)}

    def stated(law: Callable[[Any], None]) -> Any:
        def play(form: str) -> None:
            max_examples, drawn = forms[form]
            limits = settings(max_examples=max_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow])
            limits(given(drawn)(law))()

        return pytest.mark.parametrize("form", ["short", pytest.param("long", marks=pytest.mark.slow)])(play)

    return stated


def chain(**options: Any) -> OperatorInstance:
    """Four ops of 1 s in a row, outputs of 1 GB, two equal devices, 1 GB/s."""
    edges = [(0, 1), (1, 2), (2, 3)]
    return OperatorInstance.of_outputs("chain", np.ones((4, 2)), edges, 1e9, **{"bandwidth_bytes_per_s": 1e9, **options})


def fork(**options: Any) -> OperatorInstance:
    """a (1 s) feeds b and c (3 s each), both feed d (1 s); outputs of 1 GB, two equal devices, 1 GB/s."""
    times_s = np.array([[1.0] * 2, [3.0] * 2, [3.0] * 2, [1.0] * 2])
    edges = [(0, 1), (0, 2), (1, 3), (2, 3)]
    return OperatorInstance.of_outputs("fork", times_s, edges, 1e9, **{"bandwidth_bytes_per_s": 1e9, **options})


@st.composite
def small_instances(
    draw: st.DrawFn, *, most_ops: int = 8, most_devices: int = 3, is_training: bool | None = None, has_groups: bool = True
) -> OperatorInstance:
    """Few ops on few devices, some of them equal: groups, tight memory, hosts, and ops that not all devices can run."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    training = bool(rng.random() < 0.4) if is_training is None else is_training
    n = draw(st.integers(1, most_ops))
    m = draw(st.integers(1, most_devices))
    num_forward = (n + 1) // 2 if training else n
    group = np.arange(n)
    is_backward = np.zeros(n, np.bool_)
    edges = [(a, b) for a in range(num_forward) for b in range(a + 1, num_forward) if rng.random() < 0.4]
    if training:
        is_backward[num_forward:] = True
        for op in range(num_forward, n):  # op num_forward + i is the backward of i, the last has none in front of it
            group[op] = op - num_forward if rng.random() < 0.85 else n + op
            edges.append((op - num_forward, op))
        edges += [(num_forward + b, num_forward + a) for a, b in edges if b < n - num_forward and a < b]
    if has_groups and n > 2 and rng.random() < 0.3:
        first, second = rng.choice(num_forward, 2) if num_forward > 1 else (0, 0)
        group[group == group[second]] = group[first]
    times = rng.integers(0, 9, (n, 1)).astype(float) * np.ones((1, m))
    num_types = int(rng.integers(1, m + 1))
    for device in range(num_types, m):
        times[:, device] = times[:, 0]
    for device in range(1, num_types):
        times[:, device] = rng.integers(0, 9, n)
        times[rng.random(n) < 0.1, device] = np.inf
    memory: Any = np.inf
    resident = rng.integers(0, 5, n).astype(float)
    workspace = rng.integers(0, 3, n).astype(float)
    if rng.random() < 0.4:
        memory = np.full(m, float(np.ceil(resident.sum() * rng.uniform(1.0, 1.6) / m) + workspace.max()))
        memory = np.maximum(memory, np.bincount(np.unique(group, return_inverse=True)[1], resident).max() + workspace.max())
    is_host = np.zeros(m, np.bool_)
    bandwidth: Any = 1.0
    if num_types > 1 and rng.random() < 0.5:
        is_host[num_types - 1] = True
    if rng.random() < 0.3:
        bandwidth = rng.choice([0.5, 1.0, 2.0], (m, m))
    latency = 0.25 if rng.random() < 0.3 else 0.0
    return OperatorInstance.of_outputs(
        "drawn",
        times,
        edges,
        rng.integers(0, 5, n).astype(float),
        group=group,
        is_backward=is_backward,
        memory_bytes=memory,
        resident_bytes=resident,
        workspace_bytes=workspace,
        bandwidth_bytes_per_s=bandwidth,
        latency_s=latency,
        is_host=is_host,
    )


def renamed(instance: OperatorInstance, order: NDArray[np.int64]) -> OperatorInstance:
    """The same instance with its devices in another order, ``(m,)``."""
    return replace(
        instance,
        times_s=instance.times_s[:, order],
        device_names=tuple(instance.device_names[device] for device in order),
        device_types=tuple(instance.device_types[device] for device in order),
        memory_bytes=instance.memory_bytes[order],
        latency_s=instance.latency_s[np.ix_(order, order)],
        bandwidth_bytes_per_s=instance.bandwidth_bytes_per_s[np.ix_(order, order)],
        is_host=instance.is_host[order],
    )


BETTER: dict[str, Callable[[OperatorInstance], OperatorInstance]] = {
    "speed": lambda one: replace(one, times_s=one.times_s * np.where(np.arange(one.num_devices) == 0, 0.5, 1.0)),
    "links": lambda one: replace(one, bandwidth_bytes_per_s=one.bandwidth_bytes_per_s * 2),
    "memory": lambda one: replace(one, memory_bytes=one.memory_bytes * 1.5),
}
"""The same instance with better devices, by what of them is better."""
