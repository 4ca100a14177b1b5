"""Playing many episodes of one benchmark, in one process or in several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import active_children, get_context
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal
from threading import current_thread, main_thread

from ..envs.benchmark import BenchmarkSettings
from ..envs.playing import play_episode
from ..errors import MeshwrightError
from ..planners.policy import Policy
from ..planning.policies import policy
from ..simulation.cluster.records import EpisodeRecord
from ..simulation.cluster.scenario import Scenario
from .bounds import beam_record, is_beam


@dataclass(frozen=True)
class Player:
    """Plays episodes of one benchmark, in this process or in several.

    Attributes:
        benchmark: what is played.
        scenario: built from it.
        graphs_dir: profiles by folder name.
        num_processes: how many episodes are played at a time; the records are the same for any number.
        latency_s: seconds that each decision took, by policy; they grow as episodes are played, and are never the same.
    """

    benchmark: BenchmarkSettings
    scenario: Scenario
    graphs_dir: Path | None = None
    num_processes: int = 1
    latency_s: dict[str, list[float]] = field(default_factory=dict, compare=False)

    def play_all(
        self, tasks: Sequence[tuple[str, int]], progress: Callable[[int, int], None] | None = None
    ) -> list[EpisodeRecord]:
        """A record for each (policy or beam search, seed), in the order of the tasks.

        Raises:
            MeshwrightError: a policy is unknown or does not fit.
        """
        specs = dict.fromkeys(spec for spec, _ in tasks)
        choosers = {spec: None if is_beam(spec) else policy(spec, self.scenario) for spec in specs}
        records: list[EpisodeRecord] = []

        def keep(spec: str, played: tuple[EpisodeRecord, list[float]]) -> None:
            records.append(played[0])
            self.latency_s.setdefault(spec, []).extend(played[1])
            if progress is not None:
                progress(len(records), len(tasks))

        if self.num_processes == 1 or len(tasks) < 2:
            for spec, seed in tasks:
                keep(spec, _timed(spec, choosers[spec], self.scenario, seed))
            return records
        workers = min(self.num_processes, len(tasks))
        not_ours = set(active_children())
        with ProcessPoolExecutor(workers, get_context("spawn"), _set_up, (self.benchmark, self.graphs_dir)) as pool:
            try:
                with _deaf_to_interrupts():
                    # Not `map`: it cancels what waits when interrupted, and a pool that then loses its processes trips over that.
                    results = [pool.submit(_play, task) for task in tasks]
                for (spec, _), result in zip(tasks, results, strict=True):
                    keep(spec, result.result())
            except BrokenProcessPool:
                raise MeshwrightError("a process that played episodes died; try fewer", field="jobs", value=workers) from None
            except KeyboardInterrupt:
                for process in set(active_children()) - not_ours:
                    process.terminate()
                raise
        return records


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes begun in this block ignore Ctrl-C, which a terminal sends to all: the one that began them stops them."""
    if current_thread() is not main_thread():  # only the main one may say what a signal does
        yield
        return
    before = signal(SIGINT, SIG_IGN)
    try:
        yield
    finally:
        signal(SIGINT, before)


# What a worker process keeps between tasks: the scenario and the policies used so far.
_scenario: Scenario
_choosers: dict[str, Policy | None]


def _set_up(benchmark: BenchmarkSettings, graphs_dir: Path | None) -> None:
    global _scenario, _choosers
    _scenario, _choosers = benchmark.build(graphs_dir=graphs_dir), {}


def _play(task: tuple[str, int]) -> tuple[EpisodeRecord, list[float]]:
    spec, seed = task
    if spec not in _choosers:
        _choosers[spec] = None if is_beam(spec) else policy(spec, _scenario)
    return _timed(spec, _choosers[spec], _scenario, seed)


def _timed(spec: str, chooser: Policy | None, scenario: Scenario, seed: int) -> tuple[EpisodeRecord, list[float]]:
    """One episode and how long each decision took; a beam search (no chooser) decides all at once and has none."""
    if chooser is None:
        return beam_record(spec, scenario, seed), []
    latency_s: list[float] = []
    return play_episode(chooser, scenario, seed, latency_s), latency_s
