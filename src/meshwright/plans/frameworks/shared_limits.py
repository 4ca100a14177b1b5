"""Limits that several frameworks have, and what their limits count by."""

from __future__ import annotations

from typing import Any

from ..partition import VOLUMES
from .defaults import BIDIRECTIONAL, EAGER
from .limits import LayoutOfModel, Limit

Values = dict[str, tuple[Any, ...]]
"""By key of a layout those that it may have."""

LAYERWISE: Values = {"recompute_method": ("uniform",), "recompute_num_layers": (1,)}
"""Which layers are computed again, where that is all of them, each by itself."""


def is_pipelined(case: LayoutOfModel) -> bool:
    """Return whether there are stages."""
    return case.layout.pp > 1


def is_interleaved(case: LayoutOfModel) -> bool:
    """Return whether a stage has several chunks that take turns."""
    return case.layout.pp > 1 and case.layout.schedule == "interleaved"


def has_experts(case: LayoutOfModel) -> bool:
    """Return whether the model has experts, as far as that is known."""
    if case.shape is None:
        return case.layout.ep > 1
    return case.shape.num_experts > 1 or any(kind.num_experts > 1 for kind in case.shape.other_layers or ())


def one_grid(title: str) -> tuple[Limit, ...]:
    """Require neither parts of volumes nor stages with meshes of their own."""

    def problem(case: LayoutOfModel) -> str:
        layout = case.layout
        nearest = f"the nearest plan is dp={layout.dp * layout.sp} with the same pp, where a sample fits a device"
        return f"{title} has no spatial parallelism; {nearest}"

    def meshed(case: LayoutOfModel) -> str:
        nearest = f"the nearest plan that it can say has tp={case.layout.tp} and dp={case.layout.dp} on every stage"
        return f"{title} has one mesh for all stages; {nearest}"

    spatial = (Limit(key, problem, (1,)) for key in VOLUMES)
    return (*spatial, Limit("stage_meshes", meshed, when=lambda case: case.layout.is_meshed))


def priced_as(title: str, name: str) -> Limit:
    """Return the values of ``framework``: a layout priced as another framework runs it has another framework's figures."""
    return Limit("framework", f"the layout is priced as another framework runs it; {title}'s is {name}", (None, name))


def without(whose: str, switches: Values) -> tuple[Limit, ...]:
    """Return the keys that have no other values than these."""
    return tuple(Limit(key, f"is not among {whose} that are written here", values) for key, values in switches.items())


def schedules(problem: str, *values: str) -> Limit:
    """Return the schedules of a pipeline, and which of them is nearest to another."""

    def with_nearest(case: LayoutOfModel) -> str:
        nearest = {EAGER: "; schedule=1f1b with overlap_pp=false is the nearest plan that it can say"}
        if "interleaved" in values:
            folded = "schedule=dualpipev" if "dualpipev" in values else "schedule=interleaved with virtual_stages=2"
            nearest |= dict.fromkeys(BIDIRECTIONAL, f"; {folded} is the nearest plan that it can say")
        return problem + nearest.get(case.layout.schedule, "")

    return Limit("schedule", with_nearest, values, is_pipelined)


def no_other_zero_1(title: str) -> Limit:
    """Return the optimizer sharded by another key than ``zero``, which only Megatron-LM takes."""
    problem = f"{title} takes ZeRO stages; zero=1 shards the optimizer, where it has that stage"
    return Limit("distributed_optimizer", problem, (False,), lambda case: case.layout.copies > 1 and case.layout.zero == 0)


def key_value_heads(problem: str) -> Limit:
    """Refuse tensor parallelism that does not divide the heads of keys and values; ``{}`` in the problem is their number."""

    def counts(case: LayoutOfModel) -> bool:
        shape = case.shape
        return shape is not None and shape.latent is None and shape.num_key_value_heads % case.layout.tp > 0

    return Limit("tp", lambda case: problem.format(case.shape.num_key_value_heads if case.shape else 0), when=counts)


def always(title: str, **switches: bool) -> tuple[Limit, ...]:
    """Return the switches that a framework has at one value, whatever is priced."""
    return tuple(Limit(key, f"{title} has it always so", (value,), of_figures=True) for key, value in switches.items())
