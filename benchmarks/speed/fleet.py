"""Decisions a second of the compiled fleet, with and without shared links, and of the plain one.

A synthetic menu: eight types of jobs, seven degrees of two layouts each. The rule starts the first job of the queue that fits on
8, 16 or 32 devices, by its number, packed. It passes where none fits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from meshwright.compiled import njit
from meshwright.simulation.fleet import dynamics
from meshwright.simulation.fleet.menu_table import MenuTable
from meshwright.simulation.fleet.network import FleetNetwork, fleet_network
from meshwright.simulation.fleet.state import FleetProblem, FleetState, PlacementRule, SharingMode, new_state
from tests.oracles.plain_fleet import PlainFleet
from tests.simulation.fleet.samples import clos, menu_of, problem_of, ring

from .measure import BenchmarkFigure, median_s

NUM_EPISODES, NUM_JOBS, NUM_TYPES = 8, 300, 8
DEGREES = (1, 2, 4, 8, 16, 32, 64)
LOAD = 0.8
NUM_PLAIN_JOBS = 30


def fleet_figures() -> list[BenchmarkFigure]:
    """Yield fleets of 256 and 1,024 devices, each with and without sharing."""
    results = []
    for num_hosts in (32, 128):
        network = fleet_network(clos(num_hosts, 8, 4, num_spines=4, oversubscription=4, nics_per_host=4)).arrays
        menu = _menu(network)
        for sharing in (SharingMode.NONE, SharingMode.FAIR):
            problem, state = _episodes(network, menu, sharing)
            counted = _play(problem, state)
            per_s = counted / median_s(lambda problem=problem, state=state: _play(problem, state))  # type: ignore[misc]
            on = f"{8 * num_hosts:,} devices, sharing {sharing.name.lower()}, {NUM_EPISODES} episodes of {NUM_JOBS} jobs"
            results.append(BenchmarkFigure("fleet", per_s, "decisions/s", on))
    problem, state = _episodes(network, menu, SharingMode.FAIR)
    return [*results, BenchmarkFigure("fleet, plain reference", _plain_per_s(problem, state), "decisions/s", on)]


def _menu(network: FleetNetwork) -> MenuTable:
    rng = np.random.default_rng(0)
    types, work_device_s = [], []
    for _ in range(NUM_TYPES):
        work_s, num_bytes = 10 ** rng.uniform(-1, 1.5), 10 ** rng.uniform(8, 9.5)
        entries = [
            (degree, _step_s(degree, work_s * (1 + 0.05 * layout), num_bytes), lambda *_: 0.0, ring(num_bytes, 8))
            for degree in DEGREES
            for layout in range(2)
        ]
        types.append(entries)
        work_device_s.append(work_s)
    return menu_of(network, types, work_device_s=work_device_s, state_bytes=[1e9] * NUM_TYPES)


def _step_s(degree: int, work_s: float, num_bytes: float) -> Callable[[int, int, int], float]:
    """Return the seconds of a step in each placement class: work and, between hosts, bytes at 50 GB/s."""

    def step_s(_: int, part: int, spread: int) -> float:
        across_s = 0.0 if degree == part else num_bytes / 50e9 * (1.2 if spread < 4 else 1.0)
        return work_s / degree + across_s

    return step_s


def _episodes(network: FleetNetwork, menu: MenuTable, sharing: SharingMode) -> tuple[FleetProblem, FleetState]:
    rules = [(rule, 0) for rule in (PlacementRule.PACKED, PlacementRule.SPREAD, PlacementRule.NEAREST)]
    problem = problem_of(network, menu, rules=rules, sharing=int(sharing), queue_capacity=64, visible_waiting=8)
    state, rng = new_state(problem, NUM_EPISODES, NUM_JOBS), np.random.default_rng(0)
    work = rng.lognormal(0, 1, state.job_type.shape) * 1000
    state.arrival_s[:] = np.cumsum(rng.exponential(work.mean() / LOAD / problem.num_devices, work.shape), axis=1)
    state.job_type[:] = rng.integers(0, NUM_TYPES, work.shape)
    state.num_steps[:] = np.maximum(1, np.round(work / menu.work_device_s[state.job_type]))
    return problem, state


@njit
def _choose(problem, state, e):  # type: ignore[no-untyped-def]
    for place in range(problem.visible_waiting):
        job = state.offered[e, place]
        if job < 0:
            break
        begin = problem.menu.first_entry[state.job_type[e, job]]
        for number in range(problem.entries_per_job):
            if problem.menu.degree[begin + number] == 8 << (job % 3):
                action = 1 + (place * problem.entries_per_job + number) * len(problem.rule)
                if state.can_act[e, action]:
                    return action
    return 0


@njit
def _play(problem, state):  # type: ignore[no-untyped-def]
    """Play all episodes; the number of decisions."""
    count = 0
    for e in range(len(state.now_s)):
        dynamics.start(problem, state, e)
        while not state.is_over[e]:
            dynamics.act(problem, state, e, _choose(problem, state, e))
            count += 1
    return count


def _plain_per_s(problem: FleetProblem, state: FleetState) -> float:
    """Return the first jobs of the first episode."""
    names = ("arrival_s", "job_type", "num_steps", "deadline_s")
    fleet = PlainFleet(problem, *(getattr(state, name)[0, :NUM_PLAIN_JOBS] for name in names))
    began, count = time.perf_counter(), 0
    episode = fleet.play()
    possible: Any = next(episode, None)
    while possible is not None:
        count += 1
        try:
            possible = episode.send(_plain_choice(problem, fleet, possible))
        except StopIteration:
            break
    return count / (time.perf_counter() - began)


def _plain_choice(problem: FleetProblem, fleet: Any, possible: set[int]) -> int:
    for place, job in enumerate(fleet.waiting[: problem.visible_waiting]):
        for number, entry in enumerate(fleet.menu[job.kind]):
            action = 1 + (place * problem.entries_per_job + number) * len(problem.rule)
            if entry.degree == 8 << (job.number % 3) and action in possible:
                return action
    return 0
