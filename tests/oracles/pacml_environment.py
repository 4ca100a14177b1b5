"""The published environment: one step is one arrival, the action the largest number of pieces of an op."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.simulation.pacml.demands import draw_demands
from meshwright.simulation.pacml.episode import INTERARRIVAL_S, Episode
from meshwright.simulation.pacml.simulator import Simulator

from .pacml_features import Extremes, Features, observe

NUM_DECISIONS = 1000


@dataclass
class Environment:
    """Episodes of one distribution of deadlines.

    Attributes:
        simulator: cluster, jobs and defects.
        distribution: of the deadlines, ``A`` to ``D``.
        num_decisions: arrivals that are decided in an episode.
        interarrival_s: seconds between arrivals.
        apply_mask: whether an action that the mask forbids turns the job away, as in the published training.
    """

    simulator: Simulator
    distribution: str
    num_decisions: int = NUM_DECISIONS
    interarrival_s: float = INTERARRIVAL_S
    apply_mask: bool = True

    def __post_init__(self) -> None:
        self._rng: np.random.Generator | None = None
        self.episode: Episode | None = None

    def reset(self, seed: int | None = None, *, graphs: Sequence[str] | None = None) -> Features:
        """Begin an episode.

        As published, only the first seed counts: later episodes go on from where the generator stands. Without the
        defect `reset_ignores_seed` each seed begins its own episode.

        Args:
            seed: of the episode.
            graphs: names of the graphs in the pool; all by default.
        """
        if self._rng is None or (seed is not None and not self.simulator.defects.reset_ignores_seed):
            self._rng = np.random.default_rng(seed)
        names = list(graphs or self.simulator.jobs)
        pool = draw_demands(self._rng, names, self.distribution, self.num_decisions + 1, self.simulator.defects)
        self.episode = Episode(self.simulator, pool, self.num_decisions, self.interarrival_s)
        self._extremes = Extremes.of(self.simulator, pool)
        return observe(self.episode, self._extremes)

    def step(self, degree: int) -> tuple[Features, int, bool]:
        """Decide the current job.

        Returns:
            The observation of the next job (of the one that arrives at the end, once the episode is over), the
            reward, and whether the episode is over.
        """
        assert self.episode is not None, "reset comes first"
        mask = self.episode.mask()
        if self.apply_mask and not (0 <= degree < len(mask) and mask[degree]):
            degree = 0
        decision = self.episode.decide(degree)
        return observe(self.episode, self._extremes), decision.reward, self.episode.is_over
