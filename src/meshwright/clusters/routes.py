"""All shortest paths of a graph of directed links, counted and not listed: there may be very many.

The links that lie on some shortest path from a node form a graph without cycles. Counting its paths backward from the
source gives each path a number, and each link the share of the paths that cross it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Carried = tuple[tuple[int, float], ...]
"""Links that a message crosses, each with the part of its bytes that crosses it."""


@dataclass(frozen=True)
class ShortestPaths:
    """The paths of fewest links from one node to every other.

    Attributes:
        source: where they begin.
        before: for each node the links that lead to it on a shortest path, as ``(link, node it comes from)``.
        distance: links from the source to each node; -1 where there is no way.
        num_paths: to each node; 1 to the source itself.
    """

    source: int
    before: tuple[tuple[tuple[int, int], ...], ...]
    distance: tuple[int, ...]
    num_paths: tuple[int, ...]
    _carried: dict[int, Carried] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_source(cls, num_nodes: int, links: Sequence[tuple[int, int]], source: int) -> ShortestPaths:
        """Return the breadth first from a node.

        Args:
            num_nodes: nodes ``0..num_nodes - 1``.
            links: tail and head of each directed link; several may join the same two nodes.
            source: node.
        """
        leaving: list[list[tuple[int, int]]] = [[] for _ in range(num_nodes)]
        for link, (tail, head) in enumerate(links):
            leaving[tail].append((link, head))
        distance, count = [-1] * num_nodes, [0] * num_nodes
        before: list[list[tuple[int, int]]] = [[] for _ in range(num_nodes)]
        distance[source], count[source] = 0, 1
        queue = [source]
        for node in queue:  # grows while it is read, nearest nodes first
            for link, head in leaving[node]:
                if distance[head] < 0:
                    distance[head] = distance[node] + 1
                    queue.append(head)
                if distance[head] == distance[node] + 1:
                    before[head].append((link, node))
                    count[head] += count[node]
        return cls(source, tuple(tuple(sorted(one)) for one in before), tuple(distance), tuple(count))

    def path(self, target: int, number: int) -> tuple[int, ...]:
        """Return a path by its number, from ``0`` to ``num_paths[target] - 1``: its links in order.

        Paths are in the order of their last links, of equal ones in that of those before.
        """
        links, node = [], target
        while node != self.source:
            for link, tail in self.before[node]:
                if number < self.num_paths[tail]:
                    links.append(link)
                    node = tail
                    break
                number -= self.num_paths[tail]
        return tuple(reversed(links))

    def carried(self, target: int) -> Carried:
        """Return each link of a shortest path with the share of the paths that cross it."""
        if target not in self._carried:
            through = {target: 1.0}
            results: dict[int, float] = {}
            queue = [target]
            for node in queue:
                # All ways on from this node have been followed: nodes come farthest first.
                for link, tail in self.before[node]:
                    results[link] = through[node] * (self.num_paths[tail] / self.num_paths[node])
                    if tail not in through:
                        through[tail] = 0.0
                        queue.append(tail)
                    through[tail] += results[link]
            self._carried[target] = tuple(sorted(results.items()))
        return self._carried[target]
