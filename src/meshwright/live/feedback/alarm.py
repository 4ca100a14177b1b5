"""An alarm for a job that runs slower than predicted, with the host at fault where ranks show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..decisions import JobDecision, Observation
from ..state import some
from .runs import counted_steps

SLOWER = 1.2
"""Times the prediction beyond which a step is slow."""

STEPS_ON_END = 50
"""Slow steps, one after the other, after which a job is."""

STANDS_OUT = 1.05
"""Times the median of the other hosts beyond which a host's steps are longer than theirs."""


def slow_stretch(decision: JobDecision, observed: Sequence[Observation]) -> str | None:
    """Name the last `STEPS_ON_END` or more measured steps on end that took over `SLOWER` times the prediction; None without any.

    The prediction is that of the plan: as earlier runs were observed, where the plan says so.
    """
    predicted = decision.predicted
    usual_s = predicted.get("observed_step_s", predicted.get("step_s"))
    if usual_s is None or decision.plan is None:
        return None
    results: list[tuple[int, float]] = []
    stretch: list[tuple[int, float]] = []
    for step, step_s in counted_steps(observed):
        if step_s <= SLOWER * usual_s:
            stretch = []
            continue
        stretch.append((step, step_s))
        results = stretch if len(stretch) >= STEPS_ON_END else results
    if not results:
        return None
    first, last = results[0][0], results[-1][0]
    ratio = float(np.median([step_s for _, step_s in results])) / usual_s
    host_of = {rank["rank"]: rank["host"] for rank in decision.plan["ranks"]}
    blamed = _to_blame([one for one in observed if first <= one.step <= last], host_of)
    return f"{decision.id}: steps {first} to {last} took {ratio:.3g} times what was predicted; {blamed}"


def _to_blame(observed: Sequence[Observation], host_of: Mapping[int, str]) -> str:
    """Return the hosts of slow steps in a few words."""
    every = tuple(dict.fromkeys(host_of.values()))
    if len(every) == 1:
        return f"its only host is {every[0]}"
    times: dict[str, list[float]] = {}
    for one in observed:
        if one.rank in host_of:
            times.setdefault(host_of[one.rank], []).append(one.step_s)
    medians = {host: float(np.median(values)) for host, values in times.items()}
    if len(medians) < 2:
        return f"ranks of one host alone were measured; it runs on {some(every)}"
    slowest = max(medians, key=lambda host: medians[host])
    if medians[slowest] > STANDS_OUT * np.median([value for host, value in medians.items() if host != slowest]):
        return f"a slow host: {slowest}, whose steps take longest"
    return f"no host differs, so a neighbour on the links between them, or all are slow: {some(every)}"
