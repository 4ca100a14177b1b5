"""`EvaluatedWorld`: a benchmark of any kind as `evaluation.evaluate` plays it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ...errors import ConfigError
from ...jobs.seeds import FIRST_VALIDATION_SEED
from ...quantities import counted
from ..metrics import Metric
from ..progress import Progress
from ..workers import Workers

Row = dict[str, Any]

BASELINE, PLANNER, LEARNED, OWN, REFERENCE, PUBLISHED = "baseline", "planner", "learned", "own", "reference", "published"
"""Kinds of rows; the last two are no policies."""
FIRST_TEST_SEED = 0
TIME = "time_s"
"""Seconds of a decision: median, or mean where that is not known."""


@dataclass
class PlayedCases:
    """A policy on all cases.

    Attributes:
        figures: of each case, by name of `METRICS`.
        records: of each case, whatever the world's sections of a report need.
        decision_s: ``mean``, ``median`` and ``p99`` seconds of a decision, those that are known.
    """

    figures: list[dict[str, float | None]]
    records: list[Any] = field(default_factory=list)
    decision_s: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ValidationEpisodes:
    """The validation episodes of a training run.

    Attributes:
        rules: by name.
        num_episodes: how many there are.
        play: the values of a rule, or of the policy in a run folder, in the episodes of some numbers. As many further ones
            follow, on which nothing is chosen.
        is_less_better: whether less of it is better.
        measure: what is valued; None: what the run says.
        spelled: spelling of the policy that plays in place of a rule of this name; without one the name is the spelling.
    """

    rules: Sequence[str]
    num_episodes: int
    play: Callable[[str, Sequence[int]], list[float]]
    is_less_better: bool = True
    measure: str | None = None
    spelled: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """Options of some kinds of benchmarks besides policies and seeds; the names are those of the command's options.

    Attributes:
        references: clairvoyant ones, see `cluster.episodes`; they are compared as policies are.
        graphs: folder of profiles.
        trace: CSV file of the jobs.
        show: numbers of instances that are shown in detail.
        dump: folder for instances and placements, or for the times of jobs.
    """

    references: tuple[str, ...] = ()
    graphs: Path | None = None
    trace: Path | None = None
    show: tuple[int, ...] = ()
    dump: Path | None = None


class EvaluatedWorld(ABC):
    """A benchmark of one kind.

    Attributes:
        name: of the kind, key of `WORLDS`.
        words: for messages, as "a fleet".
        key: of its benchmark files, see `worlds.benchmark_files`; None where they have none of their own.
        made_from: class of a benchmark's settings.
        case: what is played, as "episode".
        takes: names of `Options` that it takes.
        question: heading of a report.
        trade_offs: pairs of metrics, or `TIME`, that policies trade against each other; a chart has the first that differs.
        is_parallel: whether several workers may play.
        policies: module with ``policy_kind``, ``policy_name`` and ``trained_file``, where the world has no other names.
    """

    name: ClassVar[str]
    words: ClassVar[str]
    key: ClassVar[str | None] = None
    made_from: ClassVar[type[Any] | None] = None
    case: str = "episode"
    takes: ClassVar[frozenset[str]] = frozenset()
    question: ClassVar[str] = "which policy is best?"
    trade_offs: ClassVar[tuple[tuple[str, str], ...]]
    is_parallel: ClassVar[bool] = True
    policies: ClassVar[Any] = None

    def __init__(self, benchmark: Any, options: Options = Options(), built: Any = None) -> None:
        self.benchmark, self.options, self.built = benchmark, options, built
        self.workers = Workers()

    @classmethod
    @abstractmethod
    def load(cls, spec: str, changes: Sequence[str], options: Options) -> list[EvaluatedWorld]:
        """Return the benchmark of a spelling; of a family one for each variant.

        Raises:
            MeshwrightError: it is unknown or wrong.
        """

    @classmethod
    def from_settings(cls, benchmark: Any) -> EvaluatedWorld:
        """Return the benchmark of some settings, of the class `made_from`."""
        return cls(benchmark)

    def build(self, progress: Progress | None = None) -> None:
        """Build what is played; a second call does nothing."""
        return

    @property
    @abstractmethod
    def objective(self) -> Metric:
        """By which policies are ranked."""

    @abstractmethod
    def about(self, num_cases: int) -> dict[str, Any]:
        """Return what is played in plain figures."""

    def title(self, num_cases: int) -> str:
        """Return benchmark and what was played, in a line."""
        return f"{self.benchmark.name}: {', '.join([*self.facts(), counted(num_cases, self.case)])}"

    def facts(self) -> list[str]:
        """Return what was played in words, for the title."""
        cluster = self.built.cluster
        return [cluster.name, counted(cluster.num_devices, "device")]

    def kind(self, spec: str) -> str:
        """Return what a policy counts as."""
        return str(self.policies.policy_kind(spec))

    def display_name(self, spec: str) -> str:
        """Return a policy's name in tables."""
        return str(self.policies.policy_name(spec))

    def trained_file(self, spec: str) -> Path | None:
        """Return the file or run folder of a trained policy; None for others."""
        path: Path | None = self.policies.trained_file(spec)
        return path

    def note_files(self, specs: Sequence[str]) -> None:
        """Note the files of trained policies, which no output may replace."""
        return

    def for_policies(self, specs: Sequence[str]) -> None:
        """Prepare what was built for the policies that are compared."""
        return

    @abstractmethod
    def check(self, spec: str) -> None:
        """Refuse a policy that does not exist or does not fit, before anything is played.

        Raises:
            MeshwrightError: so it is.
        """

    def cases(self, number: int | None) -> list[int]:
        """Return the numbers of the first test cases; as many as the benchmark says by default.

        Raises:
            ConfigError: there are not so many.
        """
        least, most = self.limits()
        number = min(most, self.benchmark.num_seeds) if number is None else number
        if not least <= number <= most:
            raise ConfigError(f"must be {least} to {most}", field="seeds", value=number)
        return list(range(FIRST_TEST_SEED, FIRST_TEST_SEED + number))

    def limits(self) -> tuple[int, int]:
        """Return the fewest and the most test cases."""
        return 1, FIRST_VALIDATION_SEED

    def case_names(self, cases: Sequence[int]) -> list[Any]:
        """Return the names of cases, by default their seeds."""
        return list(cases)

    def choices(self, spec: str) -> dict[str, str]:
        """Return the policies that a tuned baseline is chosen from on validation episodes, and how each then plays; else none."""
        return {}

    @abstractmethod
    def play(self, specs: Sequence[str], cases: Sequence[int], progress: Progress | None, phase: str) -> dict[str, PlayedCases]:
        """Play policies on cases.

        Raises:
            MeshwrightError: a policy did what is impossible.
        """

    @abstractmethod
    def validation(self, config: Mapping[str, Any], others: Sequence[Any]) -> ValidationEpisodes:
        """Return the validation episodes of a training, with rules to compare its policy with.

        Args:
            config: of the training, as plain data.
            others: further worlds of the same kind, of whose benchmarks equally many episodes are played.
        """

    def published(self, cases: Sequence[int]) -> dict[str, tuple[str, PlayedCases]]:
        """Return rows with known figures, without play: kind and figures by name."""
        return {}

    def dump(self, cases: Sequence[int], played: Mapping[str, PlayedCases]) -> None:
        """Write what was played into the folder of ``--dump``, where the world does so after all policies."""
        return

    def comparisons(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return further comparisons: by heading, the row that each row is taken to."""
        return {}

    def details(self, kind: str, played: PlayedCases) -> dict[str, Any]:
        """Return what else a row holds, for the world's sections of a report."""
        return {}

    def classes(self, cases: Sequence[int]) -> list[dict[str, Any]]:
        """Return classes of cases: ``dimension``, ``class`` and the ``cases`` of it, as places among all."""
        return []

    def more(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Return what else the results hold, for the world's sections of a report."""
        return {}

    def remarks(self, specs: Mapping[str, str], rows: Sequence[Row]) -> list[str]:
        """Return sentences for readers of the table.

        Args:
            specs: spelling of each policy by its name.
            rows: of the results.
        """
        return []
