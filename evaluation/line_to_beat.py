"""`LineToBeat`: plays rules on the validation episodes of a training run, and says whether the policy that is kept is better.

Rules are played before training; the best one is the line to beat. All play the first `FIRST` episodes, the best `KEPT` of them
the others too. At the end the kept policy plays the same episodes, and its difference to the rule is paired.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from .. import files
from ..models.policy_files import LINE_TO_BEAT, POLICY_FILES, VERDICT, keep_verdict
from ..training.hooks.callback import RunEnd, RunStart, TrainingCallback
from .statistics import excludes_zero, paired
from .worlds.evaluated_world import Options, ValidationEpisodes
from .worlds.registry import load_worlds

FIRST, KEPT = 4, 6
"""Episodes that all rules play, and rules that play the others too."""


@dataclass
class LineToBeat(TrainingCallback):
    """Prints the line to beat before training, and the verdict at the end.

    The run folder keeps them as ``line_to_beat.json``. The policy's file holds the verdict (see `models.policy_files.decided`).

    Args:
        out: where; standard output by default.
        graphs: folder of profiles.
        built: scenario or fleet of a benchmark by its spelling, to save its set-up.
    """

    out: TextIO | None = None
    graphs: Path | None = None
    built: Mapping[str, Any] = field(default_factory=dict)

    def on_start(self, start: RunStart) -> None:
        """Play the rules."""
        self._validation = self._episodes(start.config)
        self._path = start.folder / LINE_TO_BEAT
        self._measure = self._validation.measure or start.measure.replace("_", " ")
        self.rule, self.values, means = _raced(self._validation)
        self._line: dict[str, Any] = {"rule": self.rule, "value": float(np.mean(self.values)), "rules": means}
        former: dict[str, Any] = files.read_json(self._path) if self._path.is_file() else {}
        files.write_json(self._path, self._line | {key: former[key] for key in (VERDICT,) if key in former})
        self._print(f"rules played on {self._validation.num_episodes} validation episodes: {', '.join(means)}")
        self._print(f"line to beat: {self._measure} {self.value:.4g} by {self.rule}")

    @property
    def value(self) -> float:
        """The value of the best rule."""
        return float(self._line["value"])

    def on_end(self, end: RunEnd) -> None:
        """Play the kept policy and the rule on as many further episodes, on which neither was chosen, and print the verdict.

        A run that failed, was interrupted or kept no policy has none.
        """
        finished = [] if end.ending not in ("done", "stopped") else [self._path.with_name(name) for name in POLICY_FILES]
        if (policy := next(filter(Path.is_file, finished), None)) is None:
            return
        validation = self._validation
        rule = validation.spelled.get(self.rule, self.rule)
        fresh = range(validation.num_episodes, 2 * validation.num_episodes)
        values, of_rule = validation.play(str(policy), fresh), validation.play(self.rule, fresh)
        difference = paired(values, of_rule)
        sign = excludes_zero(difference) * (1 if validation.is_less_better else -1)
        word = "better" if sign < 0 else "not better"
        ends = "" if difference["low"] is None else f" [{difference['low']:+.3g}, {difference['high']:+.3g}]"
        sentence = f"{word} than {self.rule} on {len(fresh)} further episodes: {self._measure} {difference['mean']:+.3g}{ends}"
        verdict = {"policy_value": float(np.mean(values)), "rule_value": float(np.mean(of_rule)), "difference": difference}
        verdict |= {"is_better": sign < 0, "sentence": sentence}
        files.write_json(self._path, {**self._line, VERDICT: verdict})
        keep_verdict(policy, {"rule": rule, "benchmarks": self._benchmarks, "is_better": sign < 0, "sentence": sentence})
        self._print(sentence if sign < 0 else f"{sentence}; {rule} plays in its place")

    def _episodes(self, config: Mapping[str, Any]) -> ValidationEpisodes:
        names, worlds = [config["benchmark"], *config.get("mixed", ())], []
        for name in names:
            (world,) = load_worlds(name, tuple(config["changes"]), Options(graphs=self.graphs))
            world.built = self.built.get(name)
            worlds.append(world)
        self._benchmarks = [world.benchmark.name for world in worlds]
        return worlds[0].validation(config, worlds[1:])

    def _print(self, text: str) -> None:
        out = self.out or sys.stdout
        out.write(text + "\n")
        out.flush()


def _raced(episodes: ValidationEpisodes) -> tuple[str, list[float], dict[str, float]]:
    """Return the best rule, its value in each episode, and the mean of each rule over the episodes that it has played."""
    sign = 1.0 if episodes.is_less_better else -1.0
    first = min(FIRST, episodes.num_episodes)
    values = {rule: episodes.play(rule, range(first)) for rule in episodes.rules}
    best = sorted(values, key=lambda rule: sign * float(np.mean(values[rule])))[:KEPT]
    for rule in best:
        values[rule] += episodes.play(rule, range(first, episodes.num_episodes))
    means = {rule: float(np.mean(of)) for rule, of in values.items()}
    rule = min(best, key=lambda one: sign * means[one])
    return rule, values[rule], means
