"""The activations between two pipeline stages, as each of them holds them: samples by tokens, cut by the stage's own mesh."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...errors import PlanError
from .tiles import Replica, Tile, unit_tasks


@dataclass(frozen=True)
class StageTensor:
    """A micro-batch of all replicas on the ranks of a stage: samples are cut by ``dp``, tokens by ``cp``.

    Attributes:
        samples: of the micro-batch over all replicas.
        tokens: of a sample.
        element_bytes: of a token.
        tp, cp, dp: mesh of the stage; each rank of ``tp`` holds the whole of its samples and tokens.
        cuts_tokens: whether the ranks of ``tp`` cut the tokens too, as sequence parallelism has it.
        hosts: of each rank of the stage, in the layout's own numbering, ``(tp cp dp,)``.

    Raises:
        PlanError: tokens that are not cut evenly.
    """

    samples: int
    tokens: int
    element_bytes: int
    tp: int
    cp: int
    dp: int
    cuts_tokens: bool
    hosts: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.tokens % self.token_parts:
            problem = f"are not cut evenly by a stage of tp={self.tp} cp={self.cp} under sequence parallelism"
            raise PlanError(problem, field="sequence_length", value=self.tokens)

    @property
    def token_parts(self) -> int:
        """Into how many parts tokens are cut."""
        return self.cp * (self.tp if self.cuts_tokens else 1)

    @property
    def shape(self) -> tuple[int, int]:
        """Samples and tokens."""
        return self.samples, self.tokens

    @property
    def devices(self) -> list[Replica]:
        """The ranks of the stage, each by its host and its number within the stage."""
        return [Replica(host, place) for place, host in enumerate(self.hosts)]

    def on(self, first_host: int) -> StageTensor:
        """Return the tensor with hosts counted from another one on, so that equal crossings compare equal."""
        return replace(self, hosts=tuple(host - first_host for host in self.hosts))

    def replicas(self) -> dict[Tile, list[Replica]]:
        """Return the ranks that hold each tile."""
        result: dict[Tile, list[Replica]] = {}
        for device in self.devices:
            result.setdefault(self._tile(device), []).append(device)
        return result

    def _tile(self, device: Replica) -> Tile:
        rest, tp = divmod(device.place, self.tp)
        dp, cp = divmod(rest, self.cp)
        part = cp * self.tp + tp if self.cuts_tokens else cp
        rows, columns = self.samples // self.dp, self.tokens // self.token_parts
        return (dp * rows, (dp + 1) * rows), (part * columns, (part + 1) * columns)


def largest_slice_bytes(source: StageTensor, target: StageTensor) -> float:
    """Return the largest part of the tensor that a rank of the target receives in one message, ``max D_i``."""
    return max((task.task_bytes for task in unit_tasks(source, target)), default=0.0)
