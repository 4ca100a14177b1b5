"""`train_operators`: imitation of a search and PPO from a config to a run folder.

Each update of PPO places some instances of about the same size several times; a placement better than the mean of its instance
becomes likelier, decision by decision. The same seed gives the same numbers, also when the run was stopped and resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ... import files
from ...envs.operators.batch import PlacementBatch
from ...envs.operators.benchmark import PlacementBenchmark, load_placement_benchmark
from ...errors import ConfigError, NothingToLearnError
from ...models.operators.graphs import OperatorGraphs, batch, features
from ...models.operators.player import RULE
from ...models.operators.playing import PlayedPlacements, play
from ...models.operators.policy import OperatorPolicy
from ...models.operators.saved import SavedOperatorPolicy
from ...planners.operators.place import place
from ...planners.operators.request import PlacementRequest
from ...simulation.operators.instance import OperatorInstance
from ..hooks.callback import TrainingCallback
from ..hooks.reporter import ReportedMeasure, RunReporter
from ..placing.run import PlacingProgress, run_placing
from ..placing.trainer import PlacingTrainer
from ..run_folder import AnyRunFolder
from .imitation import imitation_loss, searched
from .minibatches import part_of
from .settings import OperatorTrainSettings

REPORTED = ReportedMeasure("operators", f"over_{RULE}", "validation", "update", "updates")
_WINDOW = 4
"""Instances of an update are drawn from so many times as many that are next to each other in size."""


class OperatorRunFolder(AnyRunFolder[OperatorTrainSettings]):
    """The run folder of a policy that places ops."""

    kind = OperatorTrainSettings
    ending = ".pt"

    @property
    def placements(self) -> Path:
        """The placements of the search that is imitated."""
        return self.path / "placements.pt"


def train_operators(
    chosen: OperatorTrainSettings,
    folder: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    command: Sequence[str] = (),
    progress: Callable[[PlacingProgress], None] = lambda now: None,
    prepared: Callable[[int, int], None] = lambda done, total: None,
    callbacks: Sequence[TrainingCallback] = (),
) -> OperatorRunFolder:
    """Train a policy and leave a run folder.

    Args:
        chosen: the config.
        folder: the run folder; new unless ``resume`` or ``overwrite``.
        resume: go on from the folder's checkpoint, or from the start where it has none yet.
        overwrite: replace an existing run folder.
        command: the command line, for the record.
        progress: called after each update.
        prepared: called while instances are drawn and searched, with how many of how many.
        callbacks: called at the start, after every update and validation, and at the end.

    Raises:
        NothingToLearnError: planners and random placements come to the same on all validation instances.
        MeshwrightError: the config is wrong, or the folder exists already. Nothing is written then.
    """
    run = OperatorRunFolder.of(folder, chosen, resume=resume, overwrite=overwrite)
    reporter = RunReporter(chosen, folder, REPORTED, chosen.total_updates, callbacks)
    torch.set_num_threads(chosen.num_threads)
    benchmark = load_placement_benchmark(chosen.benchmark, changes=chosen.changes)
    benchmark.placement.check_default_form()
    if benchmark.placement.most_instances < chosen.num_training_instances:
        problem = "instances of files are those of the test; train on drawn ones"
        raise ConfigError(problem, field="benchmark", value=chosen.benchmark)
    key = files.digest(
        chosen.model_dump(exclude={"name", "num_threads", "log"}), benchmark.model_dump(exclude={"placement": {"form"}})
    )
    restored = _Trainer.checkpoint(run.checkpoint, key) if resume and run.checkpoint.exists() else None
    trainer = _Trainer(chosen, benchmark, prepared)
    if not resume:
        OperatorRunFolder.create(folder, chosen, command, overwrite=overwrite)
    if restored is not None:
        trainer.restore(restored)
    return run_placing(trainer, run, chosen, key, reporter, progress, resume=resume)


class _Trainer(PlacingTrainer[OperatorPolicy]):
    """Instances and generators of a run, and what is learned of them."""

    format_version = 2

    def __init__(
        self, chosen: OperatorTrainSettings, benchmark: PlacementBenchmark, prepared: Callable[[int, int], None]
    ) -> None:
        self.chosen, self.benchmark, self._prepared = chosen, benchmark, prepared
        objective, total = benchmark.placement.objective, chosen.num_training_instances
        first = chosen.seed * chosen.num_training_instances
        instances: list[OperatorInstance] = []
        for number in range(total):
            instances.append(benchmark.placement.instance("training", first + number))
            if number % 100 == 0:
                prepared(number, total)
        self.looked_at = [benchmark.placement.instance("validation", seed) for seed in range(benchmark.num_validation_seeds)]
        prepared(total, total)
        instances.sort(key=lambda each: (each.num_ops, each.num_devices))
        self.features = [features(each, objective) for each in instances]
        ppo = chosen.ppo
        side_by_side = ppo.instances_per_update * ppo.samples_per_instance
        if chosen.imitation is not None:
            side_by_side = max(side_by_side, chosen.imitation.minibatch)
        self.episodes = PlacementBatch(instances, objective, side_by_side)
        self.validation = PlacementBatch(self.looked_at, objective, len(self.looked_at))
        self.validation_features = [features(each, objective) for each in self.looked_at]
        request = PlacementRequest(objective=objective)
        rule = [place(each, RULE, request).value_s for each in self.looked_at]
        self.rule = np.array(rule) / self.validation.stacked.scale_s
        self._check_something_to_learn()
        torch.manual_seed(chosen.seed)
        super().__init__(chosen, OperatorPolicy(chosen.network), ppo.learning_rate, ppo.most_gradient)
        self.generator = torch.Generator().manual_seed(chosen.seed)
        self.searched: list[NDArray[np.int64]] = []

    def search(self, folder: Path) -> None:
        """Find the placements that are imitated, where the imitation begins or was stopped."""
        chosen = self.chosen.imitation
        if chosen is None or self.stage != "imitation" or self.searched:
            return
        objective, path = self.benchmark.placement.objective, OperatorRunFolder(folder).placements
        self.searched = searched(self.episodes.instances, objective, chosen, path, self._prepared)

    def imitate(self) -> None:
        """A minibatch of instances of about the same size."""
        chosen = self.chosen.imitation
        assert chosen is not None
        self.set_learning_rate(chosen.learning_rate, 1.0 - self.update / chosen.steps)
        size = min(chosen.minibatch, len(self.features))
        first = int(self.rng.integers(len(self.features) - size + 1))
        numbers = np.arange(first, first + size)  # about the same size
        graphs = batch([self.features[number] for number in numbers])
        placements = [self.searched[number] for number in numbers]
        loss = imitation_loss(self.policy, graphs, self.episodes, numbers, placements)
        self.descend(loss)
        self.told = {"cross_entropy": float(loss.detach())}

    def improve(self) -> None:
        """Some instances of about the same size, each placed several times."""
        ppo, left = self.chosen.ppo, self.left
        self.set_learning_rate(ppo.learning_rate, left)
        numbers = self._drawn_numbers()
        graphs = batch([self.features[number] for number in numbers])
        samples = ppo.samples_per_instance
        played = play(self.policy, graphs, self.episodes, numbers, samples=samples, generator=self.generator)
        values = torch.from_numpy(np.minimum(played.values, 1e3)).float().reshape(-1, samples)
        mean = values.mean(dim=1, keepdim=True)
        beyond = ((values - mean) / mean.clamp(min=1e-6)).reshape(-1)
        num_parts = min(ppo.minibatches, len(numbers))
        parts = [part_of(graphs, played, beyond, part) for part in np.array_split(np.arange(len(numbers)), num_parts)]
        for epoch in range(ppo.epochs):
            for part in parts:
                log_p, entropies, foreseen = self._judged(part.graphs, part.played)
                if epoch == 0:
                    part.advantage = self._advantage(part.played, part.beyond, foreseen)
                is_live = part.played.is_live
                ratio = (log_p - part.played.log_p).exp()
                gain = torch.minimum(ratio * part.advantage, ratio.clamp(1 - ppo.clip, 1 + ppo.clip) * part.advantage)
                entropy = entropies[is_live].mean()
                loss = -gain[is_live].mean() - ppo.entropy * left * entropy
                error = ((foreseen - part.beyond[:, None]) ** 2)[is_live].mean()
                loss = loss + ppo.value * error / part.beyond.var().clamp(min=1e-4)
                self.descend(loss)
        self.told = {"sampled": float(mean.mean()), "entropy": float(entropy.detach())}

    def validated(self) -> float:
        """Greedy placements over the rule's."""
        graphs = batch(self.validation_features)
        played = play(self.average, graphs, self.validation, np.arange(len(self.looked_at)))
        return float(np.mean(np.minimum(played.values, 1e3) / self.rule))

    def saved(self, trained: dict[str, Any]) -> SavedOperatorPolicy:
        """With the benchmark that it was trained on."""
        placement = self.benchmark.placement
        most_slowdown = placement.devices.most_slowdown
        of = {"benchmark": self.benchmark.name, "changes": list(self.chosen.changes), "most_slowdown": most_slowdown}
        return SavedOperatorPolicy.of(self.average, placement.objective, trained | of)

    def generators(self) -> dict[str, Any]:
        """That of torch."""
        return {"generator": self.generator.get_state()}

    def restore_generators(self, data: dict[str, Any]) -> None:
        """That of torch."""
        self.generator.set_state(data["generator"])

    def _advantage(self, played: PlayedPlacements, beyond: Tensor, foreseen: Tensor) -> Tensor:
        """How much better than foreseen each decision made the outcome, ``(E, t)``, scaled to a standard deviation of 1.

        Generalised advantage estimation (Schulman et al. 2016) without a discount: rewards come at the end alone.
        """
        seen, live = foreseen.detach(), played.is_live
        advantage, later = torch.zeros_like(seen), torch.zeros_like(beyond)
        after = beyond
        for step in range(seen.shape[1] - 1, -1, -1):
            here = live[:, step]
            change = -(after - seen[:, step])
            later = torch.where(here, change + self.chosen.ppo.gae_lambda * later, later)
            after = torch.where(here, seen[:, step], after)
            advantage[:, step] = later
        chosen = advantage[live]
        return (advantage - chosen.mean()) / (chosen.std() + 1e-6)

    def _judged(self, graphs: OperatorGraphs, played: PlayedPlacements) -> tuple[Tensor, Tensor, Tensor]:
        """Logarithm of each decision's probability, its entropy, and values foreseen, ``(E, t)`` each."""
        logits, foreseen = self.policy.episode_logits(graphs, played)
        log_all = torch.log_softmax(logits, dim=2)
        entropy = -(log_all.exp() * log_all.masked_fill(log_all == -torch.inf, 0.0)).sum(dim=2)
        return log_all.gather(2, played.actions[..., None])[..., 0], entropy, foreseen

    def _drawn_numbers(self) -> NDArray[np.int64]:
        """Instances of about the same size, which lie next to each other."""
        count, total = self.chosen.ppo.instances_per_update, len(self.features)
        window = min(total, _WINDOW * count)
        start = int(self.rng.integers(total - window + 1))
        return start + self.rng.choice(window, min(count, window), replace=False)

    def _check_something_to_learn(self) -> None:
        """Refuse a benchmark on which every placement that is tried comes to the same.

        Raises:
            NothingToLearnError: the rule and two random placements are equal on every validation instance.
        """
        rng, found = np.random.default_rng(0), PlacementBatch(self.looked_at, self.validation.objective, len(self.looked_at))
        for _ in range(2):
            found.begin(np.arange(len(self.looked_at)))
            while found.is_live.any():
                weights = np.where(found.state.can_place, rng.random(found.state.can_place.shape), -1.0)
                found.step(weights.argmax(axis=1))
            if not np.allclose(found.state.value_s / found.stacked.scale_s, self.rule, rtol=1e-9):
                return
        raise NothingToLearnError(
            "random placements are as good as the rule's on every validation instance: there is nothing to learn",
            field="placement",
            value=self.benchmark.name,
        )
