"""`train_tasklets`: imitation of a search and PPO from a config to a run folder.

Each update of PPO groups the devices of networks that are drawn anew, each several times; a grouping better than the mean of its
network becomes likelier, decision by decision. On a CPU the same seed gives the same numbers, also when the run was stopped and
resumed.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ... import files
from ...envs.tasklets.batch import FillingBatch
from ...envs.tasklets.benchmark import TaskletBenchmark, load_tasklet_benchmark
from ...errors import CheckpointError, NothingToLearnError
from ...models.tasklets.graphs import tasklet_features, tasklet_graphs
from ...models.tasklets.playing import play, replayed
from ...models.tasklets.policy import TaskletPolicy
from ...models.tasklets.saved import SavedTaskletPolicy
from ...models.tensor_file import load_tensors, save_tensors
from ...planners.arrangement.arrange import CHAIN, ArrangementRequest, arrange
from ..checkpoint import DIGEST, digest_of
from ..device import pick_device
from ..hooks.callback import TrainingCallback
from ..hooks.reporter import ReportedMeasure, RunReporter
from ..run_folder import AnyRunFolder
from ..updates.adam import EagerAdam
from .imitation import an_order, imitation_loss, searched
from .settings import TaskletTrainSettings

FORMAT_VERSION = 1
REPORTED = ReportedMeasure("tasklets", f"over_{CHAIN}", "validation", "update", "updates")
_REFERENCE = ArrangementRequest(num_rounds=1)
"""The search that the validation is held against."""
_FIRST_OF_PPO = 100_000
"""PPO draws from the seeds of training from here on, the imitation from those below."""


class TaskletRunFolder(AnyRunFolder[TaskletTrainSettings]):
    """Paths inside it."""

    kind = TaskletTrainSettings
    ending = ".pt"

    @property
    def placements(self) -> Path:
        """Those of the search that is imitated."""
        return self.path / "placements.pt"


@dataclass(frozen=True)
class TaskletProgress:
    """What a progress display may show.

    Attributes:
        update: steps of the imitation and updates of PPO done so far.
        value: of the greedy grouping over a short search's, mean of the latest validation.
        best: the best so far.
    """

    update: int
    value: float
    best: float


def train_tasklets(
    chosen: TaskletTrainSettings,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
    progress: Callable[[TaskletProgress], None] = lambda now: None,
    searching: Callable[[int, int], None] = lambda done, total: None,
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
        searching: called while networks are searched, with how many of how many.
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
    restored = _load_checkpoint(run.checkpoint, key) if resume and run.checkpoint.exists() else None
    trainer = _Trainer(chosen, benchmark, device, searching)
    if not resume:
        TaskletRunFolder.create(folder, chosen, command, overwrite=overwrite)
        run = TaskletRunFolder(folder)
    if restored is not None:
        trainer.restore(restored)
    with reporter.running(trainer.curve, trainer.update, is_resumed=resume):
        while True:
            if trainer.is_validation_due:
                trainer.look(run)
                trainer.save(run, key)
                reporter.validated(trainer.curve[-1], trainer.stage)
            progress(TaskletProgress(trainer.update, trainer.curve[-1]["validation"], trainer.best))
            reporter.updated(trainer.stage, trainer.update, trainer.told)
            if reporter.is_stopping:
                trainer.save(run, key)
                reporter.stop_if_asked()
            if trainer.update >= chosen.total_updates:
                break
            trainer.learn(run)
    return run


class _Trainer:
    """Network, optimiser and generators of a run."""

    def __init__(
        self,
        chosen: TaskletTrainSettings,
        benchmark: TaskletBenchmark,
        device: torch.device,
        searching: Callable[[int, int], None],
    ) -> None:
        self.chosen, self.benchmark, self.device, self._searching = chosen, benchmark, device, searching
        looked_at = [benchmark.instance("validation", seed) for seed in range(benchmark.num_validation_seeds)]
        self.validation = FillingBatch(looked_at, len(looked_at))
        self.validation_graphs = tasklet_graphs([tasklet_features(each) for each in looked_at])
        self.searched_s = np.array([arrange(each, _REFERENCE).value_s for each in looked_at])
        self._check_something_to_learn()
        torch.manual_seed(chosen.seed)
        self.policy = TaskletPolicy(chosen.network).to(device)
        self.average = copy.deepcopy(self.policy)
        self.optimizer = EagerAdam(self.policy.parameters(), lr=chosen.ppo.learning_rate)
        self.rng = np.random.default_rng([chosen.seed, 1])
        self._imitated: FillingBatch | None = None
        self._groupings: list[NDArray[np.int64]] = []
        self.update = 0
        self.curve: list[dict[str, Any]] = []
        self.best = np.inf
        self.told: dict[str, float] = {}
        self._began, self._cpu_began, self._before = time.perf_counter(), time.process_time(), (0.0, 0.0)

    @property
    def stage(self) -> str:
        """``imitation`` while it lasts, then ``ppo``."""
        return "imitation" if self.update < self.chosen.imitation_steps else "ppo"

    @property
    def is_validation_due(self) -> bool:
        """Whether the policy is to be looked at before the next update."""
        if self.curve and self.curve[-1]["update"] == self.update:
            return False
        first, imitation = self.chosen.imitation_steps, self.chosen.imitation
        if imitation is not None and self.update < first:
            return self.update % imitation.validate_every_steps == 0
        is_due = (self.update - first) % self.chosen.validate_every_updates == 0
        return is_due or self.update == self.chosen.total_updates

    def learn(self, run: TaskletRunFolder) -> None:
        """One step of the imitation, or one update of PPO."""
        if self.stage == "imitation":
            self._imitate(run)
        else:
            self._improve()
        share = max(self.chosen.averaging, 1.0 / (self.update + 1.0))
        with torch.no_grad():
            newest = [weight.detach() for weight in self.policy.parameters()]
            torch._foreach_lerp_([*self.average.parameters()], newest, share)
        self.update += 1

    def _imitate(self, run: TaskletRunFolder) -> None:
        chosen = self.chosen.imitation
        assert chosen is not None
        if self._imitated is None:
            seeds = range(self.chosen.seed * chosen.networks, (self.chosen.seed + 1) * chosen.networks)
            workers = self.chosen.num_workers
            self._groupings = searched(self.benchmark, seeds, chosen.rounds, run.placements, self._searching, workers)
            instances = [self.benchmark.instance("training", seed) for seed in seeds]
            self._imitated = FillingBatch(instances, self.chosen.num_threads)
        self._set_learning_rate(chosen.learning_rate, 1.0 - self.update / chosen.steps)
        numbers = self.rng.choice(chosen.networks, min(chosen.minibatch, chosen.networks), replace=False)
        graphs = tasklet_graphs([tasklet_features(self._imitated.instances[number]) for number in numbers])
        orders = [an_order(self._groupings[number], self.rng) for number in numbers]
        steps = replayed(self._imitated, numbers, np.arange(len(numbers)), orders, num_threads=self.chosen.num_threads)
        steps = steps.to(self.device)
        graphs = graphs.to(self.device)
        loss = imitation_loss(self.policy(graphs, steps), steps, graphs.num_replicas)
        self._descend(loss)
        self.told = {"cross_entropy": float(loss.detach())}

    def _set_learning_rate(self, most: float, left: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = most * max(0.05, left)

    def _descend(self, loss: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.chosen.ppo.most_gradient)
        self.optimizer.step()

    def _improve(self) -> None:
        ppo, left = self.chosen.ppo, 1.0 - (self.update - self.chosen.imitation_steps) / self.chosen.updates
        self._set_learning_rate(ppo.learning_rate, left)
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
                self._descend(-gain[steps.is_live].mean() - ppo.entropy * left * entropy)
                entropies.append(entropy.detach())
        self.told = {"sampled": float(mean.mean()), "entropy": float(torch.stack(entropies).mean())}

    def look(self, run: TaskletRunFolder) -> None:
        """Group the validation networks greedily, keep the best policy and the imitated one, write the learning curve."""
        numbers = np.arange(len(self.searched_s))
        scale_s = self.validation.stacked.scale_s
        graphs, threads = self.validation_graphs.to(self.device), self.chosen.num_threads
        found = play(self.average, graphs, self.validation, numbers, num_threads=threads).values
        value = float(np.mean(found * scale_s / self.searched_s))
        seconds = self._before[0] + time.perf_counter() - self._began
        cpu_s = self._before[1] + time.process_time() - self._cpu_began
        row = {"update": self.update, "stage": self.stage, "validation": value, "elapsed_s": seconds, "cpu_s": cpu_s, **self.told}
        self.curve.append(row)
        saved = self._saved(value)
        if value < self.best:
            self.best = value
            saved.save(run.policy)
        if self.chosen.imitation is not None and self.update == self.chosen.imitation_steps:
            saved.save(run.imitated)
        files.write_json(run.learning_curve, self.curve)

    def _saved(self, value: float) -> SavedTaskletPolicy:
        trained = {
            "config": self.chosen.name,
            "benchmark": self.benchmark.name,
            "seed": self.chosen.seed,
            "update": self.update,
            "validation": value,
        }
        return SavedTaskletPolicy.of(self.average, trained)

    def save(self, run: TaskletRunFolder, key: str) -> None:
        """Write a checkpoint."""
        data = {
            "format_version": FORMAT_VERSION,
            "key": key,
            "update": self.update,
            "policy": _on_cpu(self.policy.state_dict()),
            "average": _on_cpu(self.average.state_dict()),
            "optimizer": _on_cpu(self.optimizer.state_dict()),
            "numpy_generator": files.json_text(self.rng.bit_generator.state),
            "curve": self.curve,
            "best": self.best,
        }
        save_tensors(run.checkpoint, {**data, DIGEST: digest_of(data)})

    def restore(self, data: dict[str, Any]) -> None:
        """Go on where a checkpoint was written."""
        self.update, self.curve, self.best = data["update"], data["curve"], data["best"]
        self.policy.load_state_dict(data["policy"])
        self.average.load_state_dict(data["average"])
        self.optimizer.load_state_dict(data["optimizer"])
        self.rng.bit_generator.state = files.parse_json(data["numpy_generator"])
        self._before = (self.curve[-1]["elapsed_s"], self.curve[-1]["cpu_s"])

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


def _on_cpu(data: Any) -> Any:
    """The same tensors and plain data, readable where there is no GPU."""
    if isinstance(data, torch.Tensor):
        return data.detach().cpu()
    if isinstance(data, dict):
        return {name: _on_cpu(value) for name, value in data.items()}
    return data


def _likely(logits: torch.Tensor, steps: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Logarithms of the probabilities of the decisions, ``(E, t)``, and the mean entropy."""
    log_all = torch.log_softmax(logits, dim=2)
    entropy = -(log_all.exp() * log_all.masked_fill(~steps.can_join, 0.0)).sum(dim=2)[steps.is_live].mean()
    return log_all.gather(2, steps.joined[..., None])[..., 0], entropy


def _load_checkpoint(path: Path, key: str) -> dict[str, Any]:
    data = load_tensors(path)
    if not isinstance(data, dict) or data.get("format_version") != FORMAT_VERSION or "numpy_generator" not in data:
        raise CheckpointError(f"is no checkpoint of version {FORMAT_VERSION}", file=path)
    if data.pop(DIGEST, None) != digest_of(data):
        raise CheckpointError("is damaged: it is not as it was written", file=path)
    if data["key"] != key:
        raise CheckpointError("belongs to another config or benchmark than this run's", file=path)
    return data
