"""The usual choices of people who have not searched, priced to be compared with what a search found.

Each choice is the best of its kind: of pure FSDP and of ZeRO-3 the fastest micro-batch and recomputation that fit, of Megatron-LM
the least model parallelism that fits, tensor parallelism inside a host before pipeline stages.

Source:
    Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", 2021, takeaways 1 and 2;
    the examples of PyTorch's ``fully_shard`` and of DeepSpeed's ZeRO, which shard over all devices and cut along no other axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from ..errors import PlanError
from ..planners.layouts.request import SearchRequest
from ..planners.layouts.results import RankedLayout
from ..planners.layouts.space import SEARCHED, divisors
from ..plans.frameworks.table import FRAMEWORKS
from .search_table import RankedLayouts

_ALONE = {"tp": 1, "cp": 1, "pp": 1, "ep": 1}
_SHARDED = {**_ALONE, "zero": 3}
_COPIES = {"pp": 1, "sp_d": 1, "sp_h": 1, "sp_w": 1}

_RUN_BY = {"megatron": "megatron"}
"""What is to run a kind where no framework is asked for: the others any does, and all are priced alike then."""

_TITLES = {"fsdp": "pure FSDP", "zero-3": "pure ZeRO-3", "megatron": "Megatron's default", "data": "data parallelism alone"}


_SEARCHED_AWAY = (*SEARCHED, "shard_group")
"""Keys that a user may have kept for the search and that a usual choice makes by itself."""


class UsualChoice(NamedTuple):
    """A choice and what it comes to.

    Attributes:
        title: what it is called.
        found: its layout; None where none of the kind fits or is legal.
    """

    title: str
    found: RankedLayout | None


def frameworks_text(found: RankedLayouts) -> str:
    """One line: which frameworks run the layout of the plan, and which key keeps the others from it; a script may run any."""
    winner = found.strategies.winner
    best, maker = found.best if winner is None else winner.found, found.maker
    asked = maker.of_model(best.layout)
    run, left, askable = [], [], []
    for name, one in FRAMEWORKS.items():
        refusal = one.refusal(asked, as_priced=False)
        askable += [name] if maker.has_layers or not one.needs_layers else []
        if one.needs_layers and not maker.has_layers:
            left.append(f"{name} (a graph of ops)")
        elif refusal is not None:
            left.append(f"{name} ({refusal.key})")
        elif not one.numbering(best.layout, best.order, maker.devices_per_host):
            left.append(f"{name} (order of ranks)")
        else:
            run.append(name)
            askable.remove(name)
    told = f"runs on {', '.join(run) or 'no framework that is known here, only by a script of your own'}"
    how = f": --for NAME, as --for {askable[0]}, searches what it runs" if askable else ""
    return told + (f"; not on {', '.join(left)}{how}" if left else "")


def usual_choices(found: RankedLayouts) -> list[UsualChoice]:
    """The usual choices on as many devices as the fastest layout takes: that of the framework that was asked for, or all."""
    asked = found.request.framework
    layered = ["fsdp", "megatron"] if asked is None else [asked.usual]
    kinds = layered if found.maker.has_layers else ["data"]
    return [UsualChoice(_TITLES[kind], _best(found, kind)) for kind in kinds]


def usual_texts(found: RankedLayouts) -> list[str]:
    """A line for each usual choice: its layout, both steps, and the difference where that is beyond its uncertainty."""
    return [f"your usual choice ({title}) {compared_text(found, usual)}" for title, usual in usual_choices(found)]


def compared_text(found: RankedLayouts, usual: RankedLayout | None) -> str:
    """The usual choice's step and layout, or that none fits, and how the fastest layout differs."""
    this = f"this {_step_text(found, found.best)}"
    if usual is None:
        return f"fits no device, {this}"
    width, ratio = found.tie_width(usual), found.best.step_s / usual.step_s
    if usual.text == found.best.text:
        more = "the same layout"
    elif abs(math.log(ratio)) <= width:
        more = f"no gain, the difference is within its uncertainty of {width:.0%}"
    else:
        more = f"{abs(1 - ratio):.0%} {'less' if ratio < 1 else 'more'}, the difference is uncertain by {width:.0%}"
    return f"takes {_step_text(found, usual)} with {usual.text}, {this}: {more}"


def _step_text(found: RankedLayouts, layout: RankedLayout) -> str:
    return f"{layout.step_s:.4g} s ± {100 * found.row(layout).step.uncertainty:.0f} %"


def _best(found: RankedLayouts, kind: str) -> RankedLayout | None:
    for keep in _tried(found, kind):
        kept = {key: values for key, values in found.request.kept.items() if key not in keep and key not in _SEARCHED_AWAY}
        words = [f"{key}={_spelled(value)}" for key, value in keep.items()]
        words += [f"{key}={'|'.join(_spelled(value) for value in values)}" for key, values in kept.items()]
        request = replace(
            found.request,
            keep=",".join(words),
            order=None,
            top=1,
            launcher=found.request.launcher or _RUN_BY.get(kind),
            on_best=SearchRequest.on_best,
        )
        try:
            return found.maker.search(request).run([found.best.devices]).ranking[0]
        except PlanError:
            continue
    return None


def _tried(found: RankedLayouts, kind: str) -> Iterator[Mapping[str, object]]:
    """What is kept for a kind, the first that fits being taken."""
    devices = found.best.devices
    if kind == "data":
        yield _COPIES
    elif kind != "megatron":
        yield _SHARDED if devices > 1 else _ALONE
    else:
        host = found.maker.devices_per_host
        degrees = [(tp, pp) for tp in divisors(devices) if tp <= host for pp in divisors(devices // tp)]
        for recompute in ("none", "full"):
            for tp, pp in sorted(degrees, key=lambda both: (both[0] * both[1], both[1])):
                zero = {"zero": 1} if devices > tp * pp else {}
                yield {"tp": tp, "pp": pp, "cp": 1, "ep": 1, "schedule": "1f1b", "recompute": recompute} | zero


def _spelled(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
