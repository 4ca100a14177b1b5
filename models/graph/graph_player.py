"""A graph policy that is asked for whole instances: greedily, as the best of several draws, or as the start of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from ...budget_clock import NO_MOVE, clock_s
from ...compiled import for_types_of
from ...errors import PolicyError
from ...worlds.typed_graph import InstanceGraph, Triple
from ...worlds.world import World, WorldBatch
from .compiled_head import EncodedInstance, decide, encoded_instances, pooled
from .graph_network import ChangingGraphs, GraphNetwork, compact


@dataclass(frozen=True)
class PlayMode:
    """How a policy decides.

    Attributes:
        kind: ``greedy``: the likeliest action each time. ``sample``: the best of ``samples`` draws and the greedy result.
            ``search``: the world's own search from the greedy result and from draws within a quarter of the budget.
            ``shuffled``: greedily, on a graph with shuffled edges, each node with as many as before; an ablation. No rule's
            placement is taken there where it is better.
        samples: for ``sample``.
        budget_s: for ``search``, the policy's own time included.
    """

    kind: Literal["greedy", "sample", "search", "shuffled"] = "greedy"
    samples: int = 64
    budget_s: float = 0.1

    @classmethod
    def from_text(cls, text: str, field: str = "policy") -> PlayMode:
        """Parse ``greedy``, ``sample-K``, ``search-SECONDS`` or ``shuffled``.

        Raises:
            PolicyError: none of these.
        """
        kind, _, number = text.partition("-")
        try:
            if text in ("greedy", "shuffled"):
                return cls("shuffled" if text == "shuffled" else "greedy")
            if kind == "sample" and 1 <= int(number) <= 4096:
                return cls("sample", samples=int(number))
            if kind == "search" and 0 < float(number) <= 3600:
                return cls("search", budget_s=float(number))
        except ValueError:
            pass
        raise PolicyError(
            "is no way to ask a policy", field=field, value=text, choices=["greedy", "sample-64", "search-0.1", "shuffled"]
        )


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch in one thread, for the tensors of one instance are small; then in as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_DRAWS_SHARE = 0.25
"""Share of a search's budget in which results are drawn to start from."""
_MOST_STARTS = 8
"""Draws from which a search starts."""
_SIDE_BY_SIDE = 16
"""Draws that are played in one batch."""


def played(
    world: World[Any],
    encoded: EncodedInstance,
    batch: WorldBatch[Any],
    instance: Any,
    num_episodes: int,
    rng: np.random.Generator | None,
) -> None:
    """Play the instance in place 0 in the first episodes of a batch; greedily, or by draws from a generator."""
    batch.restart_first(num_episodes)
    shape = batch.decisions.mask.shape
    groups = pooled(encoded, batch.decisions, world.sizes_of(instance).nodes[world.spec.group])
    actions, scores, noise = np.zeros(shape[0], np.int64), np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    hidden = np.zeros((shape[0], 2 * encoded.member.shape[1]), np.float32)
    sharpness = 1.0 if rng is None else 1.0 / world.sample_temperature
    inputs = encoded, groups, batch.decisions, batch.is_live, noise, sharpness, actions, scores, hidden
    decide_by_types = for_types_of(decide, *inputs)
    while np.count_nonzero(batch.is_live):
        if rng is not None:
            noise[:] = rng.gumbel(size=shape)
        decide_by_types(*inputs)
        batch.step(actions)


def played_as_graphs_change(
    world: World[Any],
    network: GraphNetwork,
    batch: WorldBatch[Any],
    rng: np.random.Generator | None,
    alter: Callable[[InstanceGraph], InstanceGraph] | None = None,
) -> None:
    """Play the live episodes of a batch, each graph encoded anew when it has changed; greedily, or by draws from a generator.

    Args:
        world: whose graphs change.
        network: that decides.
        batch: of that world.
        rng: of the draws.
        alter: what is done to each graph before it is read.
    """
    graphs, sharpness = ChangingGraphs(network.bank, batch.num_episodes), 1.0 / world.sample_temperature
    network.forget()
    actions = np.zeros(batch.num_episodes, np.int64)
    while batch.is_live.any():
        graphs.note(batch, alter)
        rows = np.flatnonzero(batch.is_live)
        network.bank.keep(set(graphs.numbers[rows].tolist()))
        seen = {key: torch.from_numpy(values[rows]) for key, values in compact(batch.decisions, graphs.numbers).items()}
        with torch.no_grad():
            scores = network(seen)[0].numpy()
        if rng is not None:
            scores = sharpness * scores + rng.gumbel(size=scores.shape)
        actions[rows] = np.where(batch.decisions.mask[rows], scores, -np.inf).argmax(axis=1)
        batch.step(actions)


def greedy_values(
    network: GraphNetwork, world: World[Any], instances: Sequence[Any], graphs: Sequence[InstanceGraph]
) -> list[float]:
    """Return the values of greedy play on instances, in the world's unit; graphs that change are not given."""
    if world.spec.changes:
        together = world.batch(len(instances), len(instances))
        together.restart(instances)
        played_as_graphs_change(world, network, together, None)
        return [together.value(e) for e in range(len(instances))]
    values = []
    for encoded, instance in zip(encoded_instances(network, graphs), instances, strict=True):
        batch = world.batch(1, 1, world.sizes_of(instance))
        batch.put(0, instance)
        played(world, encoded, batch, instance, 1, None)
        values.append(batch.value(0))
    return values


class GraphPlayer:
    """A policy that is asked for one instance at a time.

    Args:
        network: that decides.
        world: of the instances.
        name: of the policy, in its results.
        trained: of its file.
    """

    def __init__(self, network: GraphNetwork, world: World[Any], name: str, trained: Mapping[str, Any] | None = None) -> None:
        self.network, self.world, self.name = network.eval(), world, name
        self.trained = dict(trained or {})
        self._is_loaded = False

    def place(self, instance: Any, mode: PlayMode, seed: int = 0) -> Any:
        """Return the outcome of an instance.

        Args:
            instance: of the world.
            mode: how the policy is asked; ``search`` starts from the best of its draws within a quarter of the budget.
            seed: of what is drawn.

        Raises:
            PlanError: no episode ended with a result.
        """
        self.load()
        with one_thread():
            return self._place(instance, mode, seed)

    def load(self) -> None:
        """Load what placing needs, before a clock begins."""
        if not self._is_loaded:
            tiny = self.world.tiny()
            with one_thread():
                self.world.improve(tiny, [self._place(tiny, PlayMode("sample", samples=1), 0)], 0.01, 0)
            self._is_loaded = True

    def _place(self, instance: Any, mode: PlayMode, seed: int) -> Any:
        begun_s, world = clock_s(), self.world
        part = world.known_part(instance, self.trained)
        played_on = part.instance
        side_by_side = _SIDE_BY_SIDE if mode.kind in ("sample", "search") else 1
        batch, result = world.batch(1, side_by_side, world.sizes_of(played_on)), list[tuple[float, Any]]()
        batch.put(0, played_on)
        alter = partial(_shuffled, rng=np.random.default_rng(seed)) if mode.kind == "shuffled" else None
        play = self._played_on(batch, played_on, alter)
        for count, rng in self._rounds(mode, seed, begun_s):
            play(count, rng)
            most = result[-1][0] if len(result) == _MOST_STARTS else np.inf
            ended = sorted((batch.value(e), e) for e in range(count))
            # Only results that may be kept are valued as a whole.
            result += [(value, batch.outcome(e, self.name)) for value, e in ended[:_MOST_STARTS] if value < most]
            result = sorted(result, key=lambda each: each[0])[:_MOST_STARTS]
        outcomes = [part.of_whole(outcome, or_rule=mode.kind != "shuffled") for _, outcome in result]
        outcomes = sorted(outcomes, key=lambda each: each.value_s) or [world.fallback(instance, self.name)]
        if mode.kind != "search":
            return outcomes[0]
        left_s = mode.budget_s - (clock_s() - begun_s)
        if left_s <= 0:
            return replace(outcomes[0], note="; ".join(filter(None, (outcomes[0].note, NO_MOVE))))
        return replace(world.improve(instance, outcomes, left_s, seed), planner=self.name)

    def _played_on(
        self, batch: WorldBatch[Any], instance: Any, alter: Callable[[InstanceGraph], InstanceGraph] | None
    ) -> Callable[[int, np.random.Generator | None], None]:
        """Return what plays the instance in place 0 in so many first episodes, greedily or by draws."""
        world = self.world

        def anew(num_episodes: int, rng: np.random.Generator | None) -> None:
            batch.restart_first(num_episodes)
            played_as_graphs_change(world, self.network, batch, rng, alter)

        if world.spec.changes:
            return anew
        batch.begin(0, 0)
        graph = batch.checked_graph(0)
        (encoded,) = encoded_instances(self.network, [graph if alter is None else alter(graph)])
        return partial(played, world, encoded, batch, instance)

    def _rounds(self, mode: PlayMode, seed: int, begun_s: float) -> Iterator[tuple[int, np.random.Generator | None]]:
        """Yield how many episodes are played next, and by which draws: the greedy one first."""
        since_s = clock_s()
        yield 1, None
        rng, left, round_s = np.random.default_rng(seed), mode.samples, 2.0 * (clock_s() - since_s)
        while mode.kind == "sample" and left > 0:
            yield min(left, _SIDE_BY_SIDE), rng
            left -= _SIDE_BY_SIDE
        until_s = begun_s + _DRAWS_SHARE * mode.budget_s
        while mode.kind == "search" and (since_s := clock_s()) + round_s < until_s:
            yield _SIDE_BY_SIDE // 4, rng
            round_s = clock_s() - since_s


def _shuffled(graph: InstanceGraph, rng: np.random.Generator) -> InstanceGraph:
    """Return a graph whose edges have their sources dealt out anew; types that are each other's reverse remain so."""
    ends: dict[Triple, NDArray[np.int64]] = {}
    for triple, own in graph.ends.items():
        turned = (ends[other][::-1].copy() for other in ends if np.array_equal(graph.ends[other][::-1], own))
        dealt = next(turned, None)
        ends[triple] = np.stack([rng.permutation(own[0]), own[1]]) if dealt is None else dealt
    return replace(graph, ends=ends)
