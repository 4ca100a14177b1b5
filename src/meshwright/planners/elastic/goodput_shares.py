"""Fair shares of goodput by genetic search, with batches that jobs choose themselves (Pollux).

Each job counts by its speed-up over an equal share of the cluster, by the model that it has fitted to its own steps. The search
maximises the harmonic mean of speed-ups. A job that would restart counts less, the less it has run between restarts. A node has
at most one job of several nodes, a job at most twice the ranks that it has run on.

Source:
    Qiao et al., "Pollux", OSDI 2021, section 4.2, with the operators and constants of its artifact. There NSGA-II also keeps
    allocations of high utilisation and takes none of them; here only the mean counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...simulation.elastic.batch_size import fitted_goodput
from ...simulation.elastic.rounds import is_active
from ...simulation.elastic.simulation import ElasticSimulation
from ...simulation.elastic.state import BatchRule

POPULATION = 100
GENERATIONS = 100
# Chances of a row to be reset to the present allocation, of a row to lose nodes, and of each of its nodes to be lost.
_RESET, _LOSING, _LOST = 0.1, 0.1, 0.1
# Added to a speed-up, so that one job without devices does not make all allocations equal.
_LEAST_SPEEDUP = 1e-3


class GoodputShares:
    """Genetic search for fair goodput.

    Args:
        seed: of the search.
        generations: of each round's search.
        first: number of the first episode, which seeds its search, too.
    """

    batch_rule = BatchRule.ESTIMATED

    def __init__(self, seed: int = 0, generations: int = GENERATIONS, first: int = 0) -> None:
        self._seed, self._generations, self._first = seed, generations, first

    def begin(self, simulation: ElasticSimulation) -> None:
        """See `ElasticScheduler`."""
        episodes, jobs = simulation.jobs.application.shape
        self._rngs = [np.random.default_rng([self._seed, self._first + e]) for e in range(episodes)]
        self._populations = np.zeros((episodes, POPULATION, jobs, simulation.cluster.num_nodes), np.int8)

    def allocate(self, simulation: ElasticSimulation) -> NDArray[np.int16]:
        """See `ElasticScheduler`."""
        node_of_rank = np.full_like(simulation.jobs.node_of_rank, -1)
        cluster = simulation.cluster
        for e, rng in enumerate(self._rngs):
            best = _search(
                simulation.apps,
                simulation.jobs,
                e,
                simulation.most_ranks,
                (cluster.devices_per_node, cluster.restart_s, self._generations),
                self._populations[e],
                rng,
            )
            write_ranks(best, node_of_rank[e])
        return node_of_rank


@njit
def write_ranks(counts, node_of_rank):  # type: ignore[no-untyped-def]
    """Write the node of each rank from the ranks on each node, nodes in their order.

    Args:
        counts: ``(j, nodes)``.
        node_of_rank: filled with -1, ``(j, d)``.
    """
    for j in range(len(counts)):
        rank = 0
        for node in range(counts.shape[1]):
            for _ in range(counts[j, node]):
                node_of_rank[j, rank] = node
                rank += 1


@njit
def _search(apps, jobs, e, most_ranks, constants, population, rng):  # type: ignore[no-untyped-def]
    """Return ranks of each job on each node, ``(j, nodes)``; the population continues from the last round."""
    devices_per_node, restart_s, generations = constants
    num_nodes = population.shape[2]
    order = _by_service(jobs, e)
    num = len(order)
    result = np.zeros(population.shape[1:], np.int8)
    if num == 0:
        return result
    base = np.zeros((num, num_nodes), np.int8)
    limits, factors = np.empty(num, np.int64), np.empty(num)
    for i, j in enumerate(order):
        for rank in range(jobs.num_ranks[e, j]):
            base[i, jobs.node_of_rank[e, j, rank]] += 1
        limits[i] = min(
            max(2 * jobs.max_profiled_ranks[e, j], 1), num_nodes * devices_per_node, most_ranks[jobs.application[e, j]]
        )
        age_s = jobs.now_s[e] - jobs.submission_s[e, j]
        factors[i] = max(age_s - max(jobs.num_restarts[e, j], 0) * restart_s, 0.0) / (age_s + restart_s)
    speedups = np.full((num, num_nodes + 1, limits.max() + 1), -1.0)
    equal_share = -(-num_nodes * devices_per_node // num)
    shares = np.array([_goodput(apps, jobs, e, j, 1, equal_share) for j in order])

    # Parents in the first half, children in the second.
    pool = np.zeros((2 * POPULATION, num, num_nodes), np.int8)
    fitness = np.empty(2 * POPULATION)
    for k in range(POPULATION):
        for i in range(num):
            pool[k, i] = population[k, order[i]]
    pool[0] = base
    for k in range(POPULATION):
        _repair(pool[k], limits, devices_per_node, rng)
        fitness[k] = _fitness(apps, jobs, e, order, pool[k], base, factors, shares, speedups)
    for _ in range(generations):
        for k in range(POPULATION, 2 * POPULATION):
            mother, father = _tournament(fitness, rng), _tournament(fitness, rng)
            cut = rng.integers(0, num)
            pool[k, :cut] = pool[father, :cut]
            pool[k, cut:] = pool[mother, cut:]
            _mutate(pool[k], base, devices_per_node, rng)
            _repair(pool[k], limits, devices_per_node, rng)
            fitness[k] = _fitness(apps, jobs, e, order, pool[k], base, factors, shares, speedups)
        _survive(pool, fitness)
    for k in range(POPULATION):
        for i in range(num):
            population[k, order[i]] = pool[k, i]
    best = fitness[:POPULATION].argmax()
    for i in range(num):
        result[order[i]] = pool[best, i]
    return result


@njit
def _by_service(jobs, e):  # type: ignore[no-untyped-def]
    """Return the active jobs, least attained service first, then the earliest."""
    active = np.array([j for j in range(jobs.num_jobs[e]) if is_active(jobs, e, j)], np.int64)
    active = active[np.argsort(jobs.submission_s[e][active], kind="mergesort")]
    return active[np.argsort(jobs.service_s[e][active], kind="mergesort")]


@njit
def _goodput(apps, jobs, e, j, num_hosts, num_ranks):  # type: ignore[no-untyped-def]
    """Return goodput by the job's own model; before its first step in proportion to its ranks."""
    if jobs.fitted[e, j, 6] == 0.0:
        return float(num_ranks)
    model = (jobs.fitted[e, j], jobs.grad_sqr[e, j], jobs.grad_var[e, j])
    return fitted_goodput(apps, jobs.application[e, j], model, num_hosts, num_ranks)[0]


@njit
def _fitness(apps, jobs, e, order, counts, base, factors, shares, speedups):  # type: ignore[no-untyped-def]
    """Return the harmonic mean of the speed-ups over a node's share."""
    total = 0.0
    for i in range(len(order)):
        hosts = ranks = 0
        moved = False
        for node in range(counts.shape[1]):
            ranks += counts[i, node]
            hosts += counts[i, node] > 0
            moved |= counts[i, node] != base[i, node]
        speedup = 0.0
        if ranks > 0:
            speedup = speedups[i, hosts, ranks]
            if speedup < 0.0:
                speedup = _goodput(apps, jobs, e, order[i], hosts, ranks) / shares[i]
                speedups[i, hosts, ranks] = speedup
        if moved:
            speedup *= factors[i]
        total += 1.0 / (speedup + _LEAST_SPEEDUP)
    return len(order) / total


@njit
def _tournament(fitness, rng):  # type: ignore[no-untyped-def]
    """Return the better of two parents."""
    one, other = rng.integers(0, POPULATION), rng.integers(0, POPULATION)
    return one if fitness[one] >= fitness[other] else other


@njit
def _mutate(counts, base, devices_per_node, rng):  # type: ignore[no-untyped-def]
    """Set rows back to the present, take nodes away, and give nodes with free devices to more ranks."""
    num, num_nodes = counts.shape
    for i in range(num):
        if rng.random() < _RESET:
            counts[i] = base[i]
        if rng.random() < _LOSING:
            for node in range(num_nodes):
                if rng.random() < _LOST:
                    counts[i, node] = 0
    for node in range(num_nodes):
        used = holders = 0
        for i in range(num):
            used += counts[i, node]
            holders += counts[i, node] > 0
        if used >= devices_per_node:
            continue
        for i in range(num):
            chance = 1.0 / num
            if counts[i, node] > 0:
                chance += (1.0 - chance) / holders
            if rng.random() < chance:
                counts[i, node] = rng.integers(counts[i, node], devices_per_node + 1)


@njit
def _repair(counts, limits, devices_per_node, rng):  # type: ignore[no-untyped-def]
    """Leave one job of several nodes on each node, no more ranks than a job's limit, no more than a node's devices."""
    num, num_nodes = counts.shape
    has_spread = np.zeros(num_nodes, np.bool_)
    left = np.full(num_nodes, devices_per_node, np.int64)
    for i in range(num):
        hosts = ranks = 0
        for node in range(num_nodes):
            hosts += counts[i, node] > 0
        if hosts > 1:
            for node in range(num_nodes):
                if counts[i, node] > 0:
                    if has_spread[node]:
                        counts[i, node] = 0
                    has_spread[node] = True
        for node in range(num_nodes):
            ranks += counts[i, node]
        while ranks > limits[i]:  # nodes lose ranks in random order
            node = rng.integers(0, num_nodes)
            lost = min(counts[i, node], ranks - limits[i])
            counts[i, node] -= lost
            ranks -= lost
        for node in range(num_nodes):
            counts[i, node] = min(counts[i, node], left[node])
            left[node] -= counts[i, node]


@njit
def _survive(pool, fitness):  # type: ignore[no-untyped-def]
    """Make the best of parents and children the parents; of equal ones the first."""
    ranking = np.argsort(-fitness, kind="mergesort")
    survivors = np.empty(POPULATION, np.int64)
    num = 0
    for again in range(2):
        for place in range(len(ranking)):
            k = ranking[place]
            if num == POPULATION or k < 0:
                continue
            if again == 0 and num > 0 and fitness[k] == fitness[survivors[num - 1]]:
                continue
            survivors[num] = k
            num += 1
            ranking[place] = -1
    choice, values = np.empty_like(pool[:POPULATION]), fitness[survivors]
    for i in range(POPULATION):
        choice[i] = pool[survivors[i]]
    pool[:POPULATION] = choice
    fitness[:POPULATION] = values
