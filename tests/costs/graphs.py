"""Small job graphs made to measure or drawn, and wires that are easy to count with."""

from itertools import combinations, pairwise

import numpy as np
from hypothesis import strategies as st

from meshwright.costs.collectives.groups import Group

from ..samples.sample_graphs import profile


class Line:
    """One byte takes one second, a collective as long as one of its buffers."""

    devices_per_host = 8

    def group_s(self, operation: str, payload_bytes: float, group: Group) -> float:
        return payload_bytes if group.size > 1 else 0.0

    def flat_s(self, operation: str, payload_bytes: float, group: Group) -> float:
        return self.group_s(operation, payload_bytes, group)

    def provenance(self, operation: str, payload_bytes: float, group: Group) -> str:
        return "estimated"


class Hosts(Line):
    """Hosts of two devices: a second for each byte between hosts, a tenth of that inside."""

    devices_per_host = 2

    def group_s(self, operation: str, payload_bytes: float, group: Group) -> float:
        inside = group.per_host == group.size
        return payload_bytes * (0.1 if inside else 1.0) if group.size > 1 else 0.0


def graph_of(forward_s, edges, activation_bytes, parameter_bytes, samples=4, **rest):
    """Backward takes twice as long as forward."""
    costs = {"activation_bytes": activation_bytes, "parameter_bytes": parameter_bytes}
    return profile("g", forward_s, 2 * np.array(forward_s, float), edges, samples_per_step=samples, **costs, **rest)


# a -> b -> c -> d, and a -> d: what a gives is kept for d on the way
CHAIN = graph_of([4, 4, 4, 4], [(0, 1), (1, 2), (2, 3), (0, 3)], [8.0, 4.0, 2.0, 1.0], [0, 0, 0, 6.0])


@st.composite
def drawn_graphs(draw, least=1, most=7, **rest):
    """Ops with whole-number costs, many ties and zeros, in a random order of numbers."""
    n = draw(st.integers(least, most))
    numbers = draw(st.permutations(range(n)))
    pairs = [(numbers[a], numbers[b]) for a in range(n) for b in range(a + 1, n)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=2 * n)) if pairs else []
    costs = st.lists(st.integers(0, 5), min_size=n, max_size=n)
    return graph_of(draw(costs), edges, draw(costs), draw(costs), workspace_bytes=np.array(draw(costs), float), **rest)


def all_cuts(graph, num_chunks):
    """Every way to cut the topological order into so many runs."""
    for inner in combinations(range(1, graph.num_ops), num_chunks - 1):
        yield (0, *inner, graph.num_ops)


def sizes(cuts):
    return [last - first for first, last in pairwise(cuts)]
