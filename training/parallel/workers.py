"""`LearningWorkers`: who does the shares of a run, this process or others."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from multiprocessing import parent_process
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ...errors import LostWorkerWarning
from ...models.network import CandidateNetwork
from ..rollouts.group import GroupPlayer, GroupRollout, GroupTask
from ..rollouts.overlap import num_cpus
from ..updates.flat import FlatAdam
from ..updates.gradient import FIGURES, AdvantageScale, Weights
from .process import LostWorkerError, SharedVectors, ShareProcess
from .share import ShareRows, ShareUpdate, WorkerShare


class LearningWorkers:
    """Does the share of each worker; the numbers do not depend on which process does it.

    The first share is done here, the others in processes, as far as there are any: until they have started, and after they are
    lost, this process does theirs too. Each loss is told by a `LostWorkerWarning`.

    Args:
        network: whose gradients are computed; its weights move to memory that all processes have.
        optimizer: of its weights.
        number: of shares.
        num_processes: how many of them are done elsewhere.

    Attributes:
        number: of shares.
        flat: weights and gradient of the network.
    """

    def __init__(self, network: CandidateNetwork, optimizer: torch.optim.Adam, number: int, num_processes: int) -> None:
        self._shared = SharedVectors(number, sum(weight.numel() for weight in network.parameters()))
        self.number, self._num_processes, self._network = number, num_processes, network
        self.flat = FlatAdam(optimizer, self._shared.vectors[0])
        self._player: GroupPlayer | None = None
        self._processes: dict[int, ShareProcess] = {}
        self._done: list[list[tuple[str, Any]]] = [[] for _ in range(number)]
        self._here: dict[int, WorkerShare] = {}
        self._advantages = torch.empty(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._end()
        self._shared.close()

    def play(self, player: GroupPlayer, tasks: Sequence[GroupTask]) -> list[GroupRollout]:
        """Play groups, of which each worker has equally many. Their observations stay with the workers."""
        each = len(tasks) // self.number
        parts = [[*tasks[worker * each : (worker + 1) * each]] for worker in range(self.number)]
        if self._player is not player:
            self._end()
            self._player = player
            self._processes = {
                worker: ShareProcess(player, parts[worker], self._shared, worker) for worker in range(1, 1 + self._num_processes)
            }
        self._done, self._here = [[] for _ in parts], {}
        return [rollout for played in self._each("play", parts) for rollout in played]

    def begin(self, advantages: Tensor, returns: Tensor, weights: Weights) -> None:
        """Begin an update by the decisions ``(n,)`` that were played last, environment after environment."""
        self._advantages = advantages
        parts = zip(advantages.chunk(self.number), returns.chunk(self.number), strict=True)
        self._each("begin", [ShareUpdate(first.numpy(), second.numpy(), weights) for first, second in parts])

    def differentiate(self, rows: Tensor) -> Tensor:
        """Compute the gradient of a minibatch ``(m,)``, the sum of those of the shares in their order, and return `FIGURES`."""
        whole, (owner, own) = AdvantageScale.of(self._advantages[rows]), np.divmod(rows.numpy(), self._rows_of_each)
        parts = [ShareRows(own[owner == worker], whole) for worker in range(self.number)]
        figures, total = np.zeros(len(FIGURES)), torch.zeros_like(self.flat.gradient)
        for its_figures, gradient in self._each("differentiate", parts):
            figures += its_figures
            total.add_(gradient)
        self.flat.gradient.copy_(total)
        return torch.from_numpy(figures)

    @property
    def _rows_of_each(self) -> int:
        return len(self._advantages) // self.number

    def _each(self, call: str, arguments: Sequence[Any]) -> list[Any]:
        """What the shares return, in their order."""
        asked = {worker for worker in list(self._processes) if self._ask(worker, call, arguments[worker])}
        found = [
            self._answer(worker, call, argument) if worker in asked else self._do(worker, call, argument)
            for worker, argument in enumerate(arguments)
        ]
        if call != "differentiate":  # what another share goes on from
            for done, argument in zip(self._done, arguments, strict=True):
                done.append((call, argument))
        return found

    def _ask(self, worker: int, call: str, argument: Any) -> bool:
        """Ask a process, unless it has yet to start or this one has played what the share goes on from."""
        process = self._processes[worker]
        try:
            if worker in self._here or not process.is_ready():
                return False
            process.ask(call, argument)
        except LostWorkerError:
            self._lose(worker)
            return False
        return True

    def _answer(self, worker: int, call: str, argument: Any) -> Any:
        try:
            process = self._processes[worker]
            made = process.answer()
        except LostWorkerError:
            self._lose(worker)
            return self._do(worker, call, argument)
        return (made, process.gradient) if call == "differentiate" else made

    def _do(self, worker: int, call: str, argument: Any) -> Any:
        """Do a share's part here, after what was done of it elsewhere."""
        if worker not in self._here:
            assert self._player is not None
            self._here[worker] = WorkerShare(self._player, self._network, self.flat.gradient)
            for before, its_argument in self._done[worker]:
                getattr(self._here[worker], before)(its_argument)
        made = getattr(self._here[worker], call)(argument)
        return (made, self.flat.gradient.clone()) if call == "differentiate" else made

    def _lose(self, worker: int) -> None:
        process = self._processes.pop(worker)
        process.end()
        problem = f"worker {worker} (process {process.process_id}) has ended before its time; the run goes on without it"
        warnings.warn(problem, LostWorkerWarning, stacklevel=2)

    def _end(self) -> None:
        while self._processes:
            self._processes.popitem()[1].end()


def num_processes(num_workers: int) -> int:
    """Number of processes that pay off for a number of workers: no more than further CPUs, none in a worker of others."""
    if parent_process() is not None:
        return 0
    return min(num_workers, num_cpus()) - 1
