"""The candidates of a decision in words: what each would have given, and why it was not taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ....clusters.cluster import Cluster
from ...decisions import DecisionInputs, free_at_s
from ...state import some
from .rendering import counted, duration

SAME = 0.005
"""Difference of two times, as a share, below which they count as equal."""


class CandidateRow(NamedTuple):
    """A candidate.

    Attributes:
        degree: devices that compute.
        layout: how the job is cut, or by which rule it is placed.
        where: hosts, or the shape of the block.
        step_s, completion_s: predicted; None where it has no place.
        num_held: devices that it would hold.
        memory_bytes: of the fullest rank, where that is known.
        is_tight: whether that may not fit.
        leaves: devices that it would leave free, in words; empty where they are unknown.
        is_chosen: whether it was taken.
        why_not: a sentence; empty where it was taken.
    """

    degree: int
    layout: str
    where: str
    step_s: float | None
    completion_s: float | None
    num_held: int
    memory_bytes: float | None
    is_tight: bool
    leaves: str
    is_chosen: bool
    why_not: str


def candidate_rows(
    rows: Sequence[Mapping[str, Any]], inputs: DecisionInputs, cluster: Cluster, taken: Mapping[str, Sequence[int]]
) -> tuple[CandidateRow, ...]:
    """The candidates of a decision.

    Args:
        rows: as a decision keeps them.
        inputs: what it was made from.
        cluster: on which.
        taken: indices of the devices of the chosen one on each host.
    """
    chosen = next((row for row in rows if row["is_chosen"]), None)
    free = np.array(free_at_s(inputs.free) <= 0)
    sizes = dict(zip(cluster.host_names, np.bincount(cluster.device_host).tolist(), strict=True))
    whole = dict(zip(cluster.host_names, np.bincount(cluster.device_host, ~free, cluster.num_hosts) == 0, strict=True))
    found = []
    for row in rows:
        hosts = list(taken) if row["is_chosen"] and taken else row.get("hosts")
        held = sum(sizes.get(host, 0) for host in hosts) if inputs.whole_hosts and hosts else int(row["degree"])
        leaves = ""
        if row.get("completion_s") is not None:
            leaves = f"{counted(max(0, int(free.sum()) - held), 'device')}"
            if hosts:
                kept = sum(is_whole for host, is_whole in whole.items() if host not in hosts)
                leaves += f", {counted(int(kept), 'whole host')}"
        found.append(
            CandidateRow(
                int(row["degree"]),
                str(row.get("layout") or row.get("rule") or ""),
                _where(row, hosts),
                row.get("step_s"),
                row.get("completion_s"),
                held,
                row.get("memory_bytes"),
                bool(row.get("is_tight")),
                leaves,
                bool(row["is_chosen"]),
                "" if row["is_chosen"] else _why_not(row, chosen, inputs),
            )
        )
    return tuple(found)


def _where(row: Mapping[str, Any], hosts: Sequence[str] | None) -> str:
    if hosts:
        return some(list(dict.fromkeys(hosts)))
    return str(row["shape"]) if row.get("shape") else "no free block"


def _why_not(row: Mapping[str, Any], chosen: Mapping[str, Any] | None, inputs: DecisionInputs) -> str:
    """Return why a candidate was not taken, by its row."""
    completion_s, deadline_s = row.get("completion_s"), inputs.request.deadline_s
    if completion_s is None:
        return "no block of this size is free"
    if deadline_s is not None and completion_s > deadline_s:
        return f"would miss the deadline by {duration(completion_s - deadline_s)}"
    if row.get("is_offered") is False:
        return "could not be placed now"
    if inputs.request.devices is not None and inputs.request.devices != row["degree"]:
        return f"the job asks for {counted(inputs.request.devices, 'device')}"
    if chosen is None or chosen.get("completion_s") is None:
        return ""
    return _beside(completion_s / chosen["completion_s"], int(row["degree"]) - int(chosen["degree"]))


def _beside(ratio: float, more: int) -> str:
    """Compare a candidate with the chosen one, by the ratio of their times and by devices."""
    devices = f"{counted(abs(more), 'device')} {'more' if more > 0 else 'fewer'}"
    if abs(ratio - 1) <= SAME:
        told = f"as fast, on {devices}" if more else "as fast, on as many devices"
    else:
        speed = f"{ratio:.3g} times as long" if ratio > 1 else f"{1 / ratio:.3g} times as fast"
        told = f"{speed}, on {devices if more else 'as many devices'}"
    is_no_worse = ratio <= 1 + SAME and more <= 0
    return told + (": no worse by these figures, yet the policy preferred the other" if is_no_worse else "")
