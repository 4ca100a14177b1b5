"""Every layout of a transformer on a number of devices: which there are, which are legal, in which orders their ranks may run.

Layouts that differ in name alone appear once. Without tensor parallelism there is nothing to cut by sequence, without copies
nothing to shard. In a pipeline ZeRO-2 is ZeRO-1. Fused attention leaves selective recomputation nothing to do, and a pipeline
of one stage has no schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...costs.collectives.groups import Group
from ...costs.process_groups.group_network import FabricNetwork, GroupNetwork, HostNetwork, PlacedNetwork
from ...costs.process_groups.regular_groups import groups_of, is_regular
from ...costs.work.model_chunks import check, is_legal
from ...errors import PlanError
from ...jobs.transformer import TransformerShape
from ...plans.frameworks.defaults import BIDIRECTIONAL, EAGER
from ...plans.partition import VOLUMES, ZERO_BUBBLE, Layout
from ...plans.pipelines.bidirectional import bidirectional_objection
from ...plans.rank_order import ORDERS, distinct_orders, numbers
from .request import SearchRequest

SEARCHED = (
    "tp",
    "cp",
    "pp",
    "dp",
    "ep",
    "virtual_stages",
    "schedule",
    "micro_batch",
    "sequence_parallel",
    "recompute",
    "zero",
)
"""Keys whose values are all tried unless some are kept; the others have one value."""

LESS = ("first_stage_less_layers", "last_stage_less_layers")

MOST_LESS = 3
"""Layers that both have less together, where the search chooses that."""

SINGLE = ("tp", "cp", "pp", "dp", "ep", "micro_batch")
"""Keys that can have an impossible value whatever the others are."""

SCHEDULES = ("1f1b", EAGER, "gpipe", "interleaved", *ZERO_BUBBLE)
"""Those that are tried everywhere. `BIDIRECTIONAL` ones are tried where experts are cut, and wherever schedules are kept."""

_USUAL = Layout.model_construct(set(Layout.model_fields), micro_batch=1, global_batch=1)


class Leaf(NamedTuple):
    """The choice left below a `LayoutFamily`."""

    schedule: str
    virtual_stages: int
    zero: int


@dataclass(frozen=True)
class LayoutFamily:
    """Legal layouts that share everything but schedule, virtual stages and ZeRO stage.

    Attributes:
        keys: what they share.
        leaves: what there is to choose, never empty.
        as_run: see `SearchRequest.as_run`.
    """

    keys: dict[str, Any]
    leaves: tuple[Leaf, ...]
    as_run: Callable[[Mapping[str, Any]], dict[str, Any]]

    @cached_property
    def base(self) -> Layout:
        """The layout with 1F1B, one chunk a stage and the least ZeRO stage."""
        return self.leanest(min(leaf.zero for leaf in self.leaves))

    @cached_property
    def one_way(self) -> tuple[Leaf, ...]:
        """The leaves whose micro-batches all go the same way through a pipeline."""
        return tuple(leaf for leaf in self.leaves if leaf not in self.both_ways) if self.both_ways else self.leaves

    @cached_property
    def both_ways(self) -> tuple[Leaf, ...]:
        """The leaves with a bidirectional schedule."""
        return tuple(leaf for leaf in self.leaves if leaf.schedule in BIDIRECTIONAL) if self.keys["pp"] > 1 else ()

    @cached_property
    def world(self) -> int:
        """Number of ranks."""
        return int(self.keys["tp"] * self.keys["cp"] * self.keys["pp"] * self.keys["dp"])

    def leanest(self, zero: int) -> Layout:
        """Return the layout with 1F1B, one chunk a stage and a ZeRO stage."""
        keys: dict[str, Any] = {"schedule": "1f1b", "virtual_stages": 1, "zero": zero}
        keys |= self.as_run(self.keys | keys)
        return self.base.model_copy(update=keys) if "base" in vars(self) else _USUAL.model_copy(update=self.keys | keys)


class Level(NamedTuple):
    """Nodes that differ in the size of a micro-batch alone, the least first, and illegal layouts passed by."""

    nodes: tuple[LayoutFamily, ...]
    num_illegal: int


@dataclass(frozen=True)
class LayoutSpace:
    """The layouts of a model, a batch and a sequence length.

    Attributes:
        shape: the model.
        sequence_length: tokens of a sequence.
        global_batch: sequences of a step.
        devices_per_host: devices of a host.
        request: what is asked of the search: the values that are kept and the rank orders that are tried.
        device_types: see `RegularOrders`.
        goes_both_ways: whether bidirectional schedules are tried.
    """

    shape: TransformerShape
    sequence_length: int
    global_batch: int
    devices_per_host: int
    request: SearchRequest = field(default_factory=SearchRequest)
    device_types: NDArray[np.int64] | None = field(default=None, compare=False)
    goes_both_ways: bool = True
    _legal: dict[tuple[Any, ...], bool] = field(default_factory=dict, repr=False, compare=False)
    _known_leaves: dict[tuple[Any, ...], tuple[int, tuple[Leaf, ...]]] = field(default_factory=dict, repr=False, compare=False)
    _of_leaf: dict[Leaf, dict[str, Any]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def keep(self) -> Mapping[str, tuple[Any, ...]]:
        """The values that are tried, by key of the layout; a key that is not searched takes each of its values too."""
        return self.request.kept_values

    def __post_init__(self) -> None:
        self.request.refuse(VOLUMES, f"cuts volumes, and {self.shape.name} has none")
        schedules = self.keep.get("schedule", ())
        if not self.goes_both_ways and schedules and set(schedules) <= set(BIDIRECTIONAL):
            problem = "menus have schedules that go both ways where hosts are equal"
            raise PlanError(problem, field="keep.schedule", value=schedules[0])

    @cached_property
    def fixed(self) -> list[dict[str, Any]]:
        """The combinations of values of the keys that are not searched."""
        return self.request.fixed(SEARCHED)

    @cached_property
    def orders(self) -> RegularOrders:
        """The rank orders of layouts."""
        return RegularOrders(self.devices_per_host, self.request, self.device_types)

    def levels(self, world: int) -> Iterator[Level]:
        """Yield all nodes of a number of ranks."""
        shape, batch = self.shape, self.global_batch
        for tp, cp, pp in self._degrees(world):
            dp = world // (tp * cp * pp)
            if batch % dp:
                yield Level((), 1)
                continue
            can_cut = tp > 1 or self._is_only("sequence_parallel", True)
            cut = self.request.values_for("sequence_parallel", [False, True] if can_cut else [False])
            for other in self.fixed:
                etp = other["etp"] or tp
                if tp % etp:
                    yield Level((), 1)
                    continue
                ranks = tp * dp * cp // etp
                experts = self.request.values_for("ep", [ep for ep in divisors(shape.num_experts) if ranks % ep == 0])
                again = ["none", "full"] if other["attention"] == "fused" else ["none", "selective", "full"]
                again += ["selective"] if "selective" not in again and self._is_only("recompute", "selective") else []
                again += ["selective-ops"] if "selective-ops" in self.keep.get("recompute", ()) else []
                again = ["full"] if (other["recompute_method"], other["recompute_num_layers"]) != ("uniform", 1) else again
                recomputed = self.request.values_for("recompute", again)
                for less, ep, is_cut, recompute in product([{}, *self._less(pp)], experts, cut, recomputed):
                    degrees = {"tp": tp, "cp": cp, "pp": pp, "dp": dp, "ep": ep, "etp": None if etp == tp else etp}
                    keys = other | less | degrees | {"sequence_parallel": is_cut, "recompute": recompute}
                    yield self._level(keys | self.request.as_cut(keys))

    def _less(self, pp: int) -> list[dict[str, int]]:
        """Return the layers that the first and last stages have less, so that a stage has two chunks or more if it could not.

        Sixty-one layers count as 64 then, one less in the first chunk and two less in the last, which the head joins.
        """
        has_others = self.device_types is not None or any(key in self.keep for key in LESS)
        if pp == 1 or has_others or "interleaved" not in self.request.values_for("schedule", [*SCHEDULES]):
            return []
        missing = -self.shape.num_layers % (2 * pp)
        return [dict(zip(LESS, (missing // 2, missing - missing // 2), strict=True))] if 0 < missing <= MOST_LESS else []

    def layouts(self, world: int) -> Iterator[Layout]:
        """Yield all legal layouts of a number of ranks."""
        for level in self.levels(world):
            for node in level.nodes:
                yield from (self.layout(node, leaf) for leaf in node.leaves)

    def layout(self, node: LayoutFamily, leaf: Leaf) -> Layout:
        """Return the layout of a leaf."""
        if self.request.framework is not None:
            keys = leaf._asdict()
            return node.base.model_copy(update=keys | node.as_run(node.keys | keys))
        if leaf not in self._of_leaf:
            self._of_leaf[leaf] = leaf._asdict() | node.as_run(leaf._asdict())
        return node.base.model_copy(update=self._of_leaf[leaf])

    def rank_orders(self, layout: Layout, wires: GroupNetwork) -> tuple[str, ...]:
        """Return the rank orders of a layout whose prices differ and whose groups are regular, the default first."""
        return self.orders.of(layout, wires)

    def kept_in_vain(self, worlds: Sequence[int]) -> Iterator[tuple[str, Any, str]]:
        """Yield the kept degrees without any value that is legal by itself: key, first value and the objection to it."""
        for key in (key for key in SINGLE if self.keep.get(key)):
            whys = [self._objection(key, value, worlds) for value in self.keep[key]]
            if all(whys):
                yield key, self.keep[key][0], whys[0]

    def _objection(self, key: str, value: int, worlds: Sequence[int]) -> str:
        """Return why no layout has this degree, or nothing."""
        alone = {"micro_batch": 1, "global_batch": 1} | self.fixed[0] | {"etp": None, key: value}
        try:
            check(self.shape, Layout.model_construct(**alone), self.sequence_length)
        except PlanError as error:
            return error.problem
        if key in ("dp", "micro_batch") and self.global_batch % value:
            return f"does not divide the batch of {self.global_batch}"
        if key in ("tp", "cp", "pp", "dp") and all(world % value for world in worlds):
            return f"does not divide {' or '.join(str(world) for world in worlds[:3])} devices"
        return ""

    def _degrees(self, world: int) -> list[tuple[int, int, int]]:
        """Return tp, cp and pp; first those that fill hosts with tensor parallelism and have a short pipeline."""
        results = [
            (tp, cp, pp)
            for tp in self.request.values_for("tp", divisors(world))
            for cp in self.request.values_for("cp", divisors(world // tp))
            for pp in self.request.values_for("pp", divisors(world // tp // cp))
            if not self.keep.get("dp") or world // (tp * cp * pp) in self.keep["dp"]
        ]
        return sorted(results, key=lambda one: (one[1], abs(one[0] - self.devices_per_host), one[2]))

    def _level(self, keys: dict[str, Any]) -> Level:
        nodes, num_illegal = [], 0
        dp, copies, shards = keys["dp"], keys["dp"] * keys["cp"], keys["shard_group"]
        for micro_batch in self.request.values_for("micro_batch", divisors(self.global_batch // dp)):
            base = keys | {"micro_batch": micro_batch, "global_batch": self.global_batch}
            num_tried, leaves = self._leaves(base, copies > 1)
            if not self._is_legal_block(base) or (shards is not None and copies % shards):
                num_illegal += num_tried
                continue
            node = LayoutFamily(base, leaves, self.request.as_run)
            if self.request.framework is not None:
                node = replace(node, leaves=tuple(leaf for leaf in leaves if self.is_run(self.layout(node, leaf))))
            num_illegal += num_tried - len(node.leaves)
            if node.leaves:
                nodes.append(node)
        return Level(tuple(nodes), num_illegal)

    def is_run(self, layout: Layout) -> bool:
        """Return whether the framework that is asked for runs a layout of the model."""
        return self.request.is_run(layout, self.shape, self.sequence_length)

    def _leaves(self, keys: dict[str, Any], has_copies: bool) -> tuple[int, tuple[Leaf, ...]]:
        """Return how many leaves there are, and those that are legal."""
        num_micro_batches = self.global_batch // (keys["micro_batch"] * keys["dp"])
        key: tuple[Any, ...] = (keys["pp"], keys["recompute"], has_copies, keys["shard_group"] is None)
        can_hide = "overlap_pp" not in self.keep or bool(keys["overlap_pp"]) or keys["pp"] == 1
        key += (can_hide, keys["ep"] > 1, "overlap_dp" in self.keep and bool(keys["overlap_dp"]))
        less = tuple(keys[one] for one in LESS)
        key += (keys["recompute_num_layers"], less, keys["trainable"], keys["precision"] == "autocast")
        if (known := (num_micro_batches, key)) not in self._known_leaves:
            num_layers = self.shape.num_layers + sum(less)
            tried = self._tried(keys["pp"], has_copies, keys["ep"] > 1, num_layers)
            if any(less):
                most = num_layers // keys["pp"] // (max(less) + 1)  # chunks of a stage of which none is empty
                least = 1 if any(key in self.keep for key in LESS) else 2
                tried = [leaf for leaf in tried if least <= leaf.virtual_stages <= most]
            if keys["shard_group"] is not None:
                tried = [leaf for leaf in tried if leaf.zero or keys["distributed_optimizer"]]
            is_cast = keys["precision"] == "autocast"
            tried = [leaf for leaf in tried if (can_hide or leaf.schedule != EAGER) and not (is_cast and leaf.zero > 1)]
            legal = tuple(leaf for leaf in tried if self._is_legal_pipeline(keys, leaf, num_micro_batches, key))
            self._known_leaves[known] = len(tried), legal
        return self._known_leaves[known]

    def _tried(self, pp: int, has_copies: bool, cuts_experts: bool, num_layers: int) -> list[Leaf]:
        alone = [3] if self.request.launcher == "fsdp2" else [0]  # fully_shard keeps one copy of the weights on one device too
        zeros = self.request.sharded_by(self.request.values_for("zero", [0, 1, 2, 3] if has_copies else alone), has_copies)
        zeros = [zero for zero in zeros if zero != 2 or pp == 1 or 1 not in zeros]
        both_ways = BIDIRECTIONAL if self.goes_both_ways and (cuts_experts or "schedule" in self.keep) else ()
        schedules = self.request.values_for("schedule", [*SCHEDULES, *both_ways])
        if pp == 1:
            schedules = list(self.keep.get("schedule", SCHEDULES))[:1]
        leaves = []
        for schedule in schedules:
            is_cut = schedule == "interleaved" and pp > 1
            chunks = [v for v in divisors(num_layers) if v > 1] if is_cut else [1]
            chunks = [2] if schedule == "dualpipev" and pp > 1 else chunks
            for v in self.request.values_for("virtual_stages", chunks):
                leaves += [Leaf(schedule, v, zero) for zero in zeros]
        return leaves

    def _is_legal_block(self, keys: dict[str, Any]) -> bool:
        """Return whether the micro-batch is legal, in a layout without pipeline."""
        key = tuple(keys[name] for name in ("tp", "cp", "ep", "etp", "micro_batch", "sequence_parallel", "context_parallel"))
        key += (keys["precision"], keys["attention"], keys["trainable"])
        if key not in self._legal:
            alone = {"pp": 1, "dp": keys["ep"], "schedule": "1f1b", "virtual_stages": 1, "zero": 0, "recompute": "none"}
            alone |= {"global_batch": keys["micro_batch"] * keys["ep"], "shard_group": None}
            self._legal[key] = is_legal(self.shape, Layout.model_construct(**(keys | alone)), self.sequence_length)
        return self._legal[key]

    def _is_legal_pipeline(self, fixed: dict[str, Any], leaf: Leaf, num_micro_batches: int, key: tuple[Any, ...]) -> bool:
        """Return whether the pipeline is legal, in a layout of one rank a stage; ``key`` decides where all goes one way."""
        goes_both_ways = leaf.schedule in BIDIRECTIONAL
        known = (leaf, num_micro_batches if goes_both_ways else 0, *key)
        if known not in self._legal:
            alone: dict[str, Any] = dict.fromkeys(("tp", "cp", "dp", "ep", "micro_batch"), 1)
            alone |= dict.fromkeys(("etp", "shard_group")) | {"sequence_parallel": False}
            alone |= {"attention": "fused", "global_batch": num_micro_batches, "precision": "bf16"}
            keys = fixed | alone | leaf._asdict()
            layout = Layout.model_construct(**keys | (self.request.as_run(keys) if goes_both_ways else {}))
            self._legal[known] = bidirectional_objection(layout) is None and is_legal(self.shape, layout, 1)
        return self._legal[known]

    def _is_only(self, key: str, value: Any) -> bool:
        return self.keep.get(key) == (value,)


@dataclass(frozen=True)
class RegularOrders:
    """The rank orders of the layouts of one search on one network.

    Attributes:
        devices_per_host: devices of a host.
        request: which are tried.
        device_types: a number for the type of each rank's device, in rank order, ``(n,)``; None where all are of one.
    """

    devices_per_host: int
    request: SearchRequest
    device_types: NDArray[np.int64] | None = field(default=None, compare=False)
    _known: dict[tuple[int, ...], tuple[str, ...]] = field(default_factory=dict, repr=False, compare=False)

    def of(self, layout: Layout, wires: GroupNetwork) -> tuple[str, ...]:
        """Return the rank orders of a layout that are priced, the default first.

        On equal hosts, orders have one price if their groups lie equally on hosts and their ranks have devices of the same types.
        Elsewhere they must put every rank on the same device.

        Args:
            layout: how a job is cut.
            wires: prices messages.
        """
        # A layout that shards nothing has the groups of one that shards over all.
        shards = layout.shard_group or layout.copies
        spatial = layout.sp_d, layout.sp_h, layout.sp_w
        degrees = layout.tp, layout.cp, layout.dp, layout.pp, layout.ep, layout.expert_tp, *spatial, shards
        if degrees not in self._known:
            sharded, per_host = layout.model_copy(update={"zero": 1, "shard_group": shards}), self.devices_per_host
            sees_strides = isinstance(wires, FabricNetwork)
            sees_hosts = isinstance(wires, HostNetwork | FabricNetwork) and wires.uplinks.oversubscription > 1
            distinct: dict[tuple[tuple[Group, ...], bytes], str] = {}
            tried = distinct_orders(sharded, sorted(self.request.orders_of(layout, per_host), key=ORDERS.index))
            regular = [order for order in tried if is_regular(sharded, per_host, order)]
            for order in regular:
                groups = groups_of(sharded, per_host, order).values()
                seen = tuple(
                    g if (sees_strides if g.per_host > 1 else sees_hosts) else g._replace(stride=1) for g in groups if g.size > 1
                )
                types = b"" if self.device_types is None else self.device_types[numbers(sharded, order)].tobytes()
                distinct.setdefault((seen, types), order)
            self._known[degrees] = tuple(regular) if isinstance(wires, PlacedNetwork) else tuple(distinct.values())
        return self._known[degrees]

    @property
    def tried(self) -> tuple[str, ...]:
        """Every order of some layout so far, the default first."""
        result = {order for orders in self._known.values() for order in orders}
        return tuple(order for order in ORDERS if order in result)


def divisors(number: int) -> list[int]:
    """Return the divisors of a number, rising."""
    low = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return low + [number // n for n in reversed(low) if n * n != number]
