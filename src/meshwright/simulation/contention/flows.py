"""Flows: messages over the links of a cluster, as flat arrays that the kernel of `fair_sharing` reads.

Legend: ``f`` flows, ``p`` links in all paths together, ``L`` links.

This is a *fluid* model: a flow is not cut into packets. It has a rate at each moment, on every link of its path at once. The
latency of the path delays the arrival of its bytes and takes no bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...clusters.topologies.topology import Links
from ...errors import ClusterError, GraphError
from ..ragged import joined_rows


@dataclass(frozen=True, eq=False)
class Flows:
    """Messages with the path that each one takes.

    Attributes:
        path_start: links of flow ``i`` are ``path_start[i]:path_start[i + 1]`` of ``path_links``, ``(f + 1,)``.
        path_links: link numbers, ``(p,)``. A link that appears twice in a path carries twice the flow's rate, and its latency is
            paid twice. An empty path takes no time.
        payload_bytes: bytes of each flow, ``(f,)``; a flow of zero bytes pays its latencies alone.
        start_s: when each flow begins, ``(f,)``.

    Raises:
        GraphError: arrays of unequal length, negative or non-finite bytes, a non-finite start.
    """

    path_start: NDArray[np.int64]
    path_links: NDArray[np.int64]
    payload_bytes: NDArray[np.float64]
    start_s: NDArray[np.float64]

    def __post_init__(self) -> None:
        if not len(self.payload_bytes) == len(self.start_s) == len(self.path_start) - 1:
            counts = f"{len(self.path_start) - 1} paths, {len(self.payload_bytes)} sizes, {len(self.start_s)} starts"
            raise GraphError("the flows have arrays of unequal length", field="flows", value=counts)
        for field, values, is_bad in (
            ("payload_bytes", self.payload_bytes, ~(np.isfinite(self.payload_bytes) & (self.payload_bytes >= 0))),
            ("start_s", self.start_s, ~np.isfinite(self.start_s)),
        ):
            if is_bad.any():
                first = int(np.flatnonzero(is_bad)[0])
                expected = "finite and not negative" if field == "payload_bytes" else "finite"
                raise GraphError(f"must be {expected}", field=f"flows.{first}.{field}", value=float(values[first]))

    @classmethod
    def from_paths(cls, paths: Sequence[Sequence[int]], payload_bytes: ArrayLike, start_s: ArrayLike) -> Flows:
        """Return the flows of paths given as one sequence of link numbers each, as `Cluster.path` does."""
        return cls(*joined_rows(paths), np.array(payload_bytes, np.float64), np.array(start_s, np.float64))

    def __len__(self) -> int:
        return len(self.payload_bytes)

    def path(self, flow: int) -> list[int]:
        """Return the links of one flow in order."""
        return [int(link) for link in self.path_links[self.path_start[flow] : self.path_start[flow + 1]]]

    def latency_s(self, links: Links) -> NDArray[np.float64]:
        """Return the sum of the latencies on each path, ``(f,)``."""
        flow = np.repeat(np.arange(len(self)), np.diff(self.path_start))
        return np.bincount(flow, links.latency_s[self.path_links], len(self)).astype(np.float64)

    def check_on(self, links: Links) -> None:
        """Refuse links that carry nothing, and paths over links that are not there.

        Raises:
            ClusterError: a bandwidth that is not positive and finite, a latency that is negative or not finite, or an
                absent link.
        """
        for field, values, is_good in (
            ("bandwidth_bytes_per_s", links.bandwidth_bytes_per_s, links.bandwidth_bytes_per_s > 0),
            ("latency_s", links.latency_s, links.latency_s >= 0),
        ):
            bad = np.flatnonzero(~(is_good & np.isfinite(values)))
            if len(bad):
                expected = "positive" if field == "bandwidth_bytes_per_s" else "not negative"
                where = f"links.{links.names[bad[0]]}.{field}"
                raise ClusterError(f"must be finite and {expected}", field=where, value=float(values[bad[0]]))
        absent = np.flatnonzero((self.path_links < 0) | (self.path_links >= len(links)))
        if len(absent):
            flow = int(np.searchsorted(self.path_start, absent[0], side="right")) - 1
            problem = f"names a link outside 0..{len(links) - 1}"
            raise ClusterError(problem, field=f"flows.{flow}.path", value=int(self.path_links[absent[0]]))


@dataclass(frozen=True, eq=False)
class FlowTimes:
    """Times of all flows.

    Attributes:
        sent_s: when the last byte of each flow left its source, ``(f,)``.
        finish_s: when it arrived, ``(f,)``.
        num_events: moments at which rates were computed anew.
    """

    sent_s: NDArray[np.float64]
    finish_s: NDArray[np.float64]
    num_events: int
