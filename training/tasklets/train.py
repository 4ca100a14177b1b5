"""`train_tasklets`: imitation of a search and PPO from a config to a run folder.

Each update of PPO groups the devices of networks that are drawn anew, each several times; a grouping better than the mean of its
network becomes likelier, decision by decision. On a CPU the same seed gives the same numbers, also when the run was stopped and
resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ... import files
from ...envs.tasklets.batch import FillingBatch
from ...envs.tasklets.benchmark import TaskletBenchmark, load_tasklet_benchmark
from ...errors import NothingToLearnError
from ...models.tasklets.graphs import tasklet_features, tasklet_graphs
from ...models.tasklets.playing import play, replayed
from ...models.tasklets.policy import TaskletPolicy
from ...models.tasklets.saved import SavedTaskletPolicy
from ...planners.arrangement.arrange import CHAIN, ArrangementRequest, arrange
from ..device import pick_device
from ..hooks.callback import TrainingCallback
from ..hooks.reporter import ReportedMeasure, RunReporter
from ..placing.run import PlacingProgress, run_placing
from ..placing.trainer import PlacingTrainer
from ..run_folder import AnyRunFolder
from .imitation import an_order, imitation_loss, searched
from .settings import TaskletTrainSettings

REPORTED = ReportedMeasure("tasklets", f"over_{CHAIN}", "validation", "update", "updates")
_REFERENCE = ArrangementRequest(num_rounds=1)
"""The search that the validation is held against."""
_FIRST_OF_PPO = 100_000
"""PPO draws from the seeds of training from here on, the imitation from those below."""


class TaskletRunFolder(AnyRunFolder[TaskletTrainSettings]):
    """The run folder of a policy that groups distant devices."""

    kind = TaskletTrainSettings
    ending = ".pt"

    @property
    def placements(self) -> Path:
        """The file of placements of the search that is imitated."""
        return self.path / "placements.pt"


def train_tasklets(
    chosen: TaskletTrainSettings,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
    progress: Callable[[PlacingProgress], None] = lambda now: None,
    prepared: Callable[[int, int], None] = lambda done, total: None,
    callbacks: Sequence[TrainingCallback] = (),
) -> TaskletRunFolder:
    """Train a policy and leave a run folder.

    Args:
        chosen: the config.
        folder: the run folder; new unless ``resume`` or ``overwrite``.
        resume: go on from the folder's checkpoint, or from the start where it has none yet.
        overwrite: replace an existing run folder.
        command: the command line, for the record.
        progress: called after each update.
        prepared: called while networks are searched, with how many of how many.
        callbacks: called at the start, after every update and validation, and at the end.

    Raises:
        NothingToLearnError: a search and random groupings come to the same on all validation networks.
        MeshwrightError: the config is wrong, or the folder exists already. Nothing is written then.
    """
    run = TaskletRunFolder.of(folder, chosen, resume=resume, overwrite=overwrite)
    reporter = RunReporter(chosen, folder, REPORTED, chosen.total_updates, callbacks)
    device = torch.device(pick_device(chosen.device))
    torch.set_num_threads(chosen.num_threads)
    benchmark = load_tasklet_benchmark(chosen.benchmark, changes=chosen.changes)
    unlike = {"name", "num_threads", "num_workers", "device", "log"}
    key = files.digest(chosen.model_dump(exclude=unlike), benchmark.model_dump())
    restored = _Trainer.checkpoint(run.checkpoint, key) if resume and run.checkpoint.exists() else None
    trainer = _Trainer(chosen, benchmark, device, prepared)
    if not resume:
        TaskletRunFolder.create(folder, chosen, command, overwrite=overwrite)
    if restored is not None:
        trainer.restore(restored)
    return run_placing(trainer, run, chosen, key, reporter, progress, resume=resume)


class _Trainer(PlacingTrainer[TaskletPolicy]):
    """Networks of a run, and what is learned of them."""

    format_version = 1

    def __init__(
        self,
        chosen: TaskletTrainSettings,
        benchmark: TaskletBenchmark,
        device: torch.device,
        prepared: Callable[[int, int], None],
    ) -> None:
        self.chosen, self.benchmark, self.device, self._prepared = chosen, benchmark, device, prepared
        looked_at = [benchmark.instance("validation", seed) for seed in range(benchmark.num_validation_seeds)]
        self.validation = FillingBatch(looked_at, len(looked_at))
        self.validation_graphs = tasklet_graphs([tasklet_features(each) for each in looked_at])
        self.searched_s = np.array([arrange(each, _REFERENCE).value_s for each in looked_at])
        self._check_something_to_learn()
        torch.manual_seed(chosen.seed)
        ppo = chosen.ppo
        super().__init__(chosen, TaskletPolicy(chosen.network).to(device), ppo.learning_rate, ppo.most_gradient)
        self._imitated: FillingBatch | None = None
        self._groupings: list[NDArray[np.int64]] = []

    def search(self, folder: Path) -> None:
        """Group the networks that are imitated, once."""
        chosen = self.chosen.imitation
        if chosen is None or self.stage != "imitation" or self._imitated is not None:
            return
        seeds = range(self.chosen.seed * chosen.networks, (self.chosen.seed + 1) * chosen.networks)
        workers = self.chosen.num_workers
        self._groupings = searched(
            self.benchmark, seeds, chosen.rounds, TaskletRunFolder(folder).placements, self._prepared, workers
        )
        instances = [self.benchmark.instance("training", seed) for seed in seeds]
        self._imitated = FillingBatch(instances, self.chosen.num_threads)

    def imitate(self) -> None:
        """A minibatch of networks."""
        chosen = self.chosen.imitation
        assert chosen is not None, "there is an imitation"
        assert self._imitated is not None, "its networks have been searched"
        self.set_learning_rate(chosen.learning_rate, 1.0 - self.update / chosen.steps)
        numbers = self.rng.choice(chosen.networks, min(chosen.minibatch, chosen.networks), replace=False)
        graphs = tasklet_graphs([tasklet_features(self._imitated.instances[number]) for number in numbers])
        orders = [an_order(self._groupings[number], self.rng) for number in numbers]
        steps = replayed(self._imitated, numbers, np.arange(len(numbers)), orders, num_threads=self.chosen.num_threads)
        steps = steps.to(self.device)
        graphs = graphs.to(self.device)
        loss = imitation_loss(self.policy(graphs, steps), steps, graphs.num_replicas)
        self.descend(loss)
        self.told = {"cross_entropy": float(loss.detach())}

    def improve(self) -> None:
        """Networks that are drawn anew, each grouped several times."""
        ppo, left = self.chosen.ppo, self.left
        self.set_learning_rate(ppo.learning_rate, left)
        count, samples = ppo.networks_per_update, ppo.samples_per_network
        seeds = self.rng.integers(self.chosen.num_training_networks, size=count)
        batch = FillingBatch([self.benchmark.instance("training", _FIRST_OF_PPO + int(seed)) for seed in seeds], count)
        graphs = tasklet_graphs([tasklet_features(each) for each in batch.instances]).to(self.device)
        threads = self.chosen.num_threads
        played = play(self.policy, graphs, batch, np.arange(count), samples=samples, rng=self.rng, num_threads=threads)
        values = played.values.reshape(count, samples)
        mean = values.mean(axis=1, keepdims=True)
        better = (mean - values) / mean
        advantage = torch.from_numpy(better.reshape(-1) / (better.std() + 1e-6)).float().to(self.device)
        parts = []
        for part in np.array_split(np.arange(count), min(ppo.minibatches, count)):
            rows = (part[:, None] * samples + np.arange(samples)).reshape(-1)
            of = np.repeat(np.arange(len(part)), samples)
            steps = replayed(batch, part, of, [played.joined[row] for row in rows], num_threads=threads)
            old = np.zeros(steps.joined.shape, np.float32)
            for place, row in enumerate(rows):
                old[place, : len(played.log_p[row])] = played.log_p[row]
            few = graphs.some(torch.from_numpy(part).to(self.device))
            gained = advantage[torch.from_numpy(rows).to(self.device)]
            parts.append((few, steps.to(self.device), gained, torch.from_numpy(old).to(self.device)))
        entropies: list[torch.Tensor] = []
        for _ in range(ppo.epochs):
            for few, steps, gained, before in parts:
                log_p, entropy = _likely(self.policy(few, steps), steps)
                ratio, won = (log_p - before).exp(), gained[:, None]
                gain = torch.minimum(ratio * won, ratio.clamp(1 - ppo.clip, 1 + ppo.clip) * won)
                self.descend(-gain[steps.is_live].mean() - ppo.entropy * left * entropy)
                entropies.append(entropy.detach())
        self.told = {"sampled": float(mean.mean()), "entropy": float(torch.stack(entropies).mean())}

    def validated(self) -> float:
        """Greedy groupings over a short search's."""
        numbers = np.arange(len(self.searched_s))
        scale_s = self.validation.stacked.scale_s
        graphs, threads = self.validation_graphs.to(self.device), self.chosen.num_threads
        found = play(self.average, graphs, self.validation, numbers, num_threads=threads).values
        return float(np.mean(found * scale_s / self.searched_s))

    def saved(self, trained: dict[str, Any]) -> SavedTaskletPolicy:
        """With the benchmark that it was trained on."""
        return SavedTaskletPolicy.of(self.average, trained | {"benchmark": self.benchmark.name})

    def _check_something_to_learn(self) -> None:
        """Refuse a benchmark on which every grouping that is tried comes to the same.

        Raises:
            NothingToLearnError: the search and a random grouping are equal on every validation network.
        """
        rng = np.random.default_rng(0)
        batch = self.validation
        batch.begin(np.arange(len(self.searched_s)))
        while batch.is_live.any():
            batch.step(np.where(batch.state.can_join, rng.random(batch.state.can_join.shape), -1.0).argmax(axis=1))
        if np.allclose(batch.state.value_s, self.searched_s, rtol=1e-9):
            raise NothingToLearnError(
                "random groupings are as good as the search's on every validation network: there is nothing to learn",
                field="tasklets",
                value=self.benchmark.name,
            )


def _likely(logits: torch.Tensor, steps: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Logarithms of the probabilities of the decisions, ``(E, t)``, and the mean entropy."""
    log_all = torch.log_softmax(logits, dim=2)
    entropy = -(log_all.exp() * log_all.masked_fill(~steps.can_join, 0.0)).sum(dim=2)[steps.is_live].mean()
    return log_all.gather(2, steps.joined[..., None])[..., 0], entropy
