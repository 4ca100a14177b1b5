"""The work of one rank in a pass of a model chunk: runs of kernels, and the messages between them or at the same time.

Kernels between two messages are one entry: nothing can come between them. The entries of all layers of a chunk are in one
template, which every rank of a stage follows for every micro-batch. Where gradients or parameters travel layer by layer, the
first or last micro-batch follows a template that is *cut* at the ends of layers too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...costs.work.operations import FusedAttention, Message, Pass, Product, Sweep


@dataclass(frozen=True)
class Entry:
    """Kernels one after the other, or a message or a piece of one.

    Attributes:
        name: for traces.
        before: entries of the same template that it waits for.
        seconds: of kernels; a message is priced on its ranks' devices.
        message: None for kernels.
        share: of the message's time and bytes that this piece takes.
        flops: operations of the kernels.
        moved_bytes: bytes that the kernels read and write.
    """

    name: str
    before: tuple[int, ...]
    seconds: float = 0.0
    message: Message | None = None
    share: float = 1.0
    flops: float = 0.0
    moved_bytes: float = 0.0


@dataclass(frozen=True)
class Block:
    """A layer, the embedding or the head within a template.

    Attributes:
        name: for traces.
        first: entries with which it begins.
        last: entries after which it is done.
        dense, experts: its parameters on a rank.
    """

    name: str
    first: tuple[int, ...]
    last: tuple[int, ...]
    dense: float
    experts: float


@dataclass(frozen=True)
class Template:
    """The tasks of a pass.

    Attributes:
        entries: each after those that it waits for.
        ends: entries after which the pass is done.
        blocks: in order; their borders are exact in a cut template only.
    """

    entries: tuple[Entry, ...]
    ends: tuple[int, ...]
    blocks: tuple[Block, ...]

    @property
    def starts(self) -> tuple[int, ...]:
        """Entries that wait for nothing in the pass."""
        return tuple(place for place, entry in enumerate(self.entries) if not entry.before)


@dataclass
class _Run:
    """A run of kernels that may still grow."""

    name: str
    before: tuple[int, ...]
    seconds: float = 0.0
    flops: float = 0.0
    moved_bytes: float = 0.0


@dataclass
class Segments:
    """Puts a template together.

    Attributes:
        name: of runs of kernels that span blocks.
        moves: whether a message has anybody to go to.
        cut: whether runs end with their block.
    """

    name: str
    moves: Callable[[Message], bool]
    cut: bool
    _made: list[Entry | _Run] = field(default_factory=list)
    _frontier: tuple[int, ...] = ()
    _open: _Run | None = None
    _gate: tuple[tuple[int, ...], int] = ((), 0)
    _blocks: list[Block] = field(default_factory=list)

    def begin(self) -> None:
        """Begin a block."""
        if self.cut:
            self._close()
        self._gate = self._frontier, len(self._made)

    def end(self, name: str, dense: float = 0.0, experts: float = 0.0) -> None:
        """End the block that began last; see `Block`."""
        if self.cut:
            self._close()
        frontier, start = self._gate
        first = tuple(n for n, one in enumerate(self._made) if n >= start and set(frontier).issuperset(one.before))
        self._blocks.append(Block(name, first, self._frontier, dense, experts))

    def items(self, name: str, items: Pass, kernel_s: Callable[[Product | FusedAttention | Sweep], float]) -> None:
        """Append items as `costs.work.operations` describes: in sequence, messages at the same time as the items that they name.

        Messages of one axis go one at a time. When the first piece of a message has arrived, the kernels at its side continue.

        Args:
            name: of kernels, if the template is cut.
            items: of the pass.
            kernel_s: prices kernels.
        """
        joins: dict[int, list[int]] = defaultdict(list)
        line: dict[str, int] = {}
        for place, item in enumerate((*items, None)):
            ended = joins.pop(place, []) if item is not None else [task for tasks in joins.values() for task in tasks]
            if ended:
                self._close()
                self._frontier = tuple(dict.fromkeys((*self._frontier, *ended)))
            if item is None:
                break
            if not isinstance(item, Message):
                moved = 0.0 if isinstance(item, Product) else item.moved_bytes
                self.run(name, kernel_s(item), 0.0 if isinstance(item, Sweep) else item.flops, moved)
            elif self.moves(item):
                self._close()
                arrives = self._message(item, line.get(item.axis))
                if item.num_concurrent:
                    joins[place + 1 + item.num_concurrent].append(arrives)
                else:
                    self._frontier = (arrives,)
                line[item.axis] = arrives

    def run(self, name: str, seconds: float, flops: float = 0.0, moved_bytes: float = 0.0) -> None:
        """Append kernels."""
        if self._open is None:
            self._open = _Run(name if self.cut else self.name, self._frontier)
            self._made.append(self._open)
        self._open.seconds += seconds
        self._open.flops += flops
        self._open.moved_bytes += moved_bytes

    def exchange(self, messages: Sequence[Message], name: str, seconds: float, flops: float, moved_bytes: float) -> None:
        """Append kernels, and messages one after another at the same time; the next entries wait for both."""
        self._close()
        before = behind = self._frontier
        for message in messages:
            self._made.append(Entry(message.name, behind, 0.0, message))
            behind = (len(self._made) - 1,)
        self.run(name, seconds, flops, moved_bytes)
        self._close()
        if behind != before:
            self._frontier = (*self._frontier, *behind)

    def wait(self, message: Message) -> None:
        """Append a message for which what follows waits."""
        self._close()
        self._made.append(Entry(message.name, self._frontier, 0.0, message))
        self._frontier = (len(self._made) - 1,)

    def template(self) -> Template:
        """Return the assembled template."""
        self._close()
        if not self._made:  # a pass without work still has a place in the order of passes
            self.run(self.name, 0.0)
            self._close()
        entries = tuple(
            one if isinstance(one, Entry) else Entry(one.name, one.before, one.seconds, None, 1.0, one.flops, one.moved_bytes)
            for one in self._made
        )
        return Template(entries, self._frontier, tuple(self._blocks))

    def _message(self, message: Message, behind: int | None) -> int:
        """Append a message, in two entries if its first piece holds the kernels up; gives the entry with which it ends."""
        before = self._frontier if behind is None or behind in self._frontier else (*self._frontier, behind)
        if message.num_concurrent and message.chunks > 1:
            self._made.append(Entry(message.name, before, 0.0, message, 1 / message.chunks))
            self._frontier = (len(self._made) - 1,)
            self._made.append(Entry(message.name, self._frontier, 0.0, message, 1 - 1 / message.chunks))
        else:
            self._made.append(Entry(message.name, before, 0.0, message))
        return len(self._made) - 1

    def _close(self) -> None:
        if self._open is not None:
            self._frontier = (next(n for n, one in enumerate(self._made) if one is self._open),)
            self._open = None
