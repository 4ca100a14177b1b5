"""One kind of benchmarks of a study: how they are read, what results depend on, what training and evaluating leaves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from meshwright.errors import ConfigError

from ..contents import GREEDY
from ..measures import Measure


class World(ABC):
    """One kind of benchmarks.

    Attributes:
        key: of its benchmarks.
        format_version: of the results of evaluations.
        first_stage: key of a training's config; where it is set, a network is kept as it was before PPO.
        kept_as: file of this network in a run folder.
        prefix: what its name in results begins with, before that of the run.
        takes_profiles: whether commands take ``--graphs`` and ``--trace``.
    """

    key: ClassVar[str]
    format_version: ClassVar[int]
    first_stage: ClassVar[str] = "imitation"
    kept_as: ClassVar[str] = "imitated.pt"
    prefix: ClassVar[str] = "imitated"
    takes_profiles: ClassVar[bool] = False

    @abstractmethod
    def load(self, spec: str, changes: Sequence[str], trace: Path | None = None) -> Any:
        """A benchmark.

        Raises:
            MeshwrightError: it is wrong.
        """

    def variants(self, spec: str, changes: Sequence[str]) -> Sequence[Any]:
        """What an evaluation of a benchmark plays: the variants of a family, or it alone."""
        return [self.load(spec, changes)]

    @abstractmethod
    def digest(self, benchmark: Any) -> str:
        """A hash of what episodes depend on, but for the simulator itself.

        Raises:
            MeshwrightError: the benchmark is wrong.
        """

    def observed(self, played: Sequence[Any]) -> list[object]:
        """What a network that is trained on some benchmarks depends on beside their digests."""
        return []

    def follows_trace(self, benchmark: Any) -> bool:
        """Whether jobs arrive as a trace of the user's recorded them."""
        return False

    def lacks(self, benchmark: Any) -> str | None:
        """What the user has to give before a benchmark can be played; None where all is there."""
        return None

    def episodes(self, benchmark: Any, num_seeds: int | None) -> list[object]:
        """What test and validation episodes an evaluation plays, which its digest follows; ``num_seeds`` in place of its own."""
        return [num_seeds or benchmark.num_seeds, benchmark.num_validation_seeds]

    @abstractmethod
    def policy_files(self, specs: Sequence[str]) -> list[Path]:
        """The files of the trained policies among some spellings.

        Raises:
            PolicyError: one of them is not there.
        """

    def asked(self, policy: str, how: str) -> str:
        """The spelling of a trained policy, or its name in results, where it is asked in some way.

        Raises:
            MeshwrightError: policies of this world cannot be asked so.
        """
        if how != GREEDY:
            raise ConfigError(f"policies of a {self.key} are asked in one way", field="asked", value=how, choices=[GREEDY])
        return policy

    @abstractmethod
    def measure(self, benchmark: Any) -> Measure:
        """What a benchmark is about."""

    @abstractmethod
    def results(self, path: Path) -> Mapping[str, Any]:
        """What an evaluation wrote, with the keys that scenarios have.

        Raises:
            InputFileError: the file is not what its name says.
        """

    @abstractmethod
    def curve(self, path: Path) -> Sequence[Mapping[str, Any]]:
        """Rows of a learning curve.

        Raises:
            InputFileError: the file is not what its name says.
        """
