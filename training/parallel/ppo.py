"""`DataParallelPPO`: one algorithm, whose rollouts and gradients several processes share out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch

from ...models.network import CandidateNetwork
from ..rollouts.grouped import GroupedPPO
from ..rollouts.overlap import Begin
from ..updates.flat import FlatAdam
from ..updates.gradient import Weights
from .workers import LearningWorkers, num_processes


class DataParallelPPO(GroupedPPO):
    """PPO whose environments belong to workers, each of which differentiates its own decisions of every minibatch.

    Minibatches, their normalisation, the step and the weights are those of one process: only the order in which the
    gradient is added up is another one, and it is always the same.

    Attributes:
        workers: who do that; to be set before `learn`. Their `LearningWorkers.play` collects (see `Groups`).

    Source:
        Wijmans et al., "DD-PPO: learning near-perfect PointGoal navigators from 2.5 billion frames", 2020: workers that collect
        and learn in step. There, each has minibatches of its own; here, each minibatch is drawn from the decisions of all.
    """

    workers: LearningWorkers

    def _gradients(self, network: CandidateNetwork, weights: Weights) -> tuple[int, Callable[[torch.Tensor], torch.Tensor]]:
        """See `CandidatePPO`."""
        buffer = self.rollout_buffer
        advantages, returns = (torch.from_numpy(array).T.flatten() for array in (buffer.advantages, buffer.returns))
        self.workers.begin(advantages, returns, weights)
        return len(advantages), self.workers.differentiate

    def _flat_adam(self) -> FlatAdam:
        self._flat = self.workers.flat
        return super()._flat_adam()


@contextmanager
def workers_of(model: DataParallelPPO, number: int) -> Iterator[Begin]:
    """Start a model's workers for the time of the context; returns what collects its rollouts."""
    network = model.policy.get_submodule("network")
    assert isinstance(network, CandidateNetwork)
    assert isinstance(model.policy.optimizer, torch.optim.Adam)
    with LearningWorkers(network, model.policy.optimizer, number, num_processes(number)) as model.workers:
        yield lambda player, tasks: partial(model.workers.play, player, tasks)
