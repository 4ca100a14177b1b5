"""A small cluster, small graphs and simulators for the published simulator's tests."""

import numpy as np
import pytest

from meshwright.clusters import load_cluster
from meshwright.simulation.pacml.semantics import Defects
from meshwright.simulation.pacml.simulator import Simulator

from ...samples.sample_graphs import profile


def make_graph(forward_ms, backward_ms, activation, parameters, edges, name="toy", names=None, kinds=None):
    n = len(forward_ms)
    named = {"op_names": names or [f"node{i + 1}" for i in range(n)], "op_kinds": kinds or ["Linear"] * n}
    seconds = (np.array(times_ms) * 1e-3 for times_ms in (forward_ms, backward_ms))
    return profile(name, *seconds, edges, activation_bytes=activation, parameter_bytes=parameters, **named)


@pytest.fixture(scope="session")
def cluster():
    return load_cluster("preset:ramp-4x4x2")


@pytest.fixture(scope="session")
def branching():
    """An input, two branches of unequal length, an op that is never cut (no forward time) and a join."""
    return make_graph(
        [50.0, 3.0, 5.0, 0.0, 4.0],
        [0.0, 6.0, 9.0, 1.0, 8.0],
        [4e9, 2e10, 1e10, 1e10, 8e9],
        [0.0, 4e9, 8e9, 0.0, 2e9],
        [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)],
        kinds=["Input0", "Linear", "Linear", "Concat", "Linear"],
    )


@pytest.fixture(scope="session")
def simulator_of(cluster):
    def build(*graphs, defects=None, **settings):
        return Simulator(cluster, graphs, defects or Defects(), **settings)

    return build
