"""Elastic jobs over rounds: the compiled core against plain Python, and the laws of a round."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import ConfigError, PolicyError
from meshwright.simulation.elastic.state import BatchRule

from ...draws import draws
from ...elastic_samples import simulation_of, workload, write_applications
from ...oracles.elastic_reference import PlainCluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_applications(tmp_path_factory.mktemp("elastic") / "applications")


@pytest.fixture(scope="module")
def simulations(folder):
    """Without interference and with."""
    return [simulation_of(folder, interference=interference) for interference in (0.0, 0.3)]


@pytest.fixture(scope="module")
def simulation(simulations):
    return simulations[0]


def drawn_nodes(rng, jobs, num_nodes=3, devices=4):
    """Ranks of each job, in random order of nodes, never more than there are devices."""
    free = [devices] * num_nodes
    result = []
    for _ in range(jobs):
        nodes = []
        for node in rng.permutation(num_nodes).tolist():
            taken = int(rng.integers(0, free[node] + 1)) if rng.random() < 0.5 else 0
            free[node] -= taken
            nodes += [node] * taken
        result.append(nodes)
    return result


def as_array(simulation, nodes_of_jobs):
    result = np.full(simulation.jobs.node_of_rank.shape, -1, np.int16)
    for j, nodes in enumerate(nodes_of_jobs):
        result[0, j, : len(nodes)] = nodes
    return result


JOB = st.tuples(st.integers(0, 300), st.integers(0, 1), st.integers(1, 6), st.sampled_from([48, 50, 64]))


@given(
    st.lists(JOB, min_size=1, max_size=5),
    st.integers(0, 2**32),
    st.sampled_from([BatchRule.FIXED, BatchRule.KNOWN]),
    st.booleans(),
)
@draws(12)
def test_the_compiled_rounds_are_those_of_plain_python_bit_for_bit(simulations, jobs, seed, rule, interferes):
    simulation, rng = simulations[interferes], np.random.default_rng(seed)
    simulation.reset([workload(jobs)], rule)
    plain = PlainCluster(simulation, workload(jobs), rule)
    nodes = [[] for _ in jobs]
    for _ in range(60):
        if plain.is_over:
            break
        if rng.random() < 0.3:
            nodes = drawn_nodes(rng, len(jobs))
        simulation.step(as_array(simulation, nodes))
        plain.step(nodes)
        state = simulation.jobs
        for j, job in enumerate(plain.jobs):
            assert state.progress[0, j] == job.progress
            messages = [x[0, j] for x in (state.epoch, state.service_s, state.restart_s, state.num_restarts)]
            assert messages == [job.epoch, job.service, job.restarting, job.restarts]
            assert state.completion_s[0, j] == (-1 if job.ended is None else job.ended)
    assert simulation.is_over == plain.is_over


def test_one_job_worked_by_hand(simulation):
    # On one rank a step of 16 samples takes .25 (.02 + .16) + .001 = .046 s and is worth one step: 302 + 300 of them. The
    # job comes at 0, starts at 60, restarts until 90; 302 steps take 13.892 s, told as 14, the next 300 take 13.8 s, told as 14.
    simulation.reset([workload([(0, 0, 1, 16)])], BatchRule.FIXED)
    simulation.step(as_array(simulation, [[2]]))
    assert simulation.jobs.completion_s.tolist() == [[90 + 14 + 14]]
    assert simulation.jobs.service_s.tolist() == [[58]]
    assert simulation.is_over


def test_episodes_side_by_side_are_those_played_alone(simulation):
    loads = [workload([(0, 1, 1, 64), (70, 0, 1, 64)]), workload([(30, 0, 1, 64)])]

    def played(workloads):
        simulation.reset(workloads, BatchRule.ESTIMATED)
        for _ in range(3):
            ranks = np.full(simulation.jobs.node_of_rank.shape, -1, np.int16)
            ranks[:, 0, :5] = (0, 0, 0, 0, 1)
            simulation.step(ranks)
        return [simulation.jobs.progress[e, : len(each.job_names)].tolist() for e, each in enumerate(workloads)]

    assert played(loads) == played(loads[:1]) + played(loads[1:])


@pytest.mark.parametrize(
    "nodes",
    [[0, 0, 0, 0, 0], [3], [0, 1, 0], [-1, 0]],
    ids=["more than a node has", "no such node", "ranks of a node apart", "a rank behind a gap"],
)
def test_impossible_ranks_are_refused_by_name(simulation, nodes):
    simulation.reset([workload([(0, 0, 1, 64)])], BatchRule.FIXED)
    with pytest.raises(PolicyError, match="job-0"):
        simulation.step(as_array(simulation, [nodes]))


def test_a_step_that_was_never_measured_is_refused(simulation):
    simulation.reset([workload([(0, 0, 1, 16)])], BatchRule.FIXED)
    with pytest.raises(ConfigError, match=r"job-0: .*not measured"):  # 2 samples a rank, at least 4 were measured
        simulation.step(as_array(simulation, [[0] * 4 + [1] * 4]))


def test_a_job_that_wants_more_than_the_cluster_is_refused(simulation):
    with pytest.raises(ConfigError, match=r"job-0: .*12 devices"):
        simulation.reset([workload([(0, 0, 13, 64)])], BatchRule.FIXED)
