"""A replay as plain data: a row for the real events and one for each policy, with intervals by resampling days.

An interval is of the same days for all rows. All days are drawn with replacement `NUM_DRAWS` times, and the interval holds 95 %
of the figure's values in these draws. With fewer than `LEAST_DAYS` days there is none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from ...clusters.cluster import Cluster
from ...errors import PolicyError
from ...evaluation.fleet.policies import condition_changes, is_rule, policy_name
from ...evaluation.statistics import CONFIDENCE
from ...planners.fleet.rules import BASES, OF_DEGREE
from ...planning.policies import MENU_RULE, is_baseline, is_by_menu
from ..deciding import Planners
from ..ledger import Ledger
from .durations import RealDurations
from .fleet_world import MOST_WAITING, FleetWorld, looks_ahead
from .playback import Outcomes, play_back, trust
from .service_world import ServiceWorld
from .span import PastSpan, read_span

NUM_DRAWS = 2_000
LEAST_DAYS = 3
DAY_S = 86_400.0

FORMAT_VERSION = 1
NICE = 15

RECORDED = "what happened"

Progress = Callable[[str, int, int], None]


class ReplayRequest(BaseModel):
    """A span of the past, and the policies that play it, as ``meshwright history replay`` takes them."""

    model_config = ConfigDict(extra="forbid")

    since: AwareDatetime
    until: AwareDatetime | None = None
    policies: Annotated[list[Annotated[str, Field(min_length=1, max_length=300)]], Field(min_length=1, max_length=20)]
    queue: Annotated[int, Field(ge=0, le=MOST_WAITING)] = MOST_WAITING
    as_served: bool = False


def replay(
    store: Ledger,
    cluster: Cluster,
    request: ReplayRequest,
    planners_of: Callable[[str], Planners],
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Play a span of a store under some policies.

    Args:
        store: of the past.
        cluster: of the store.
        request: what is wanted; its end is said. With a queue of 0 a job that cannot start at once is refused, as the service
            does. ``as_served``: policies of fleets decide as the service lets them, which has no queue to wait in.
        planners_of: gives the planners of a policy.
        cache: folder of priced menus.
        progress: called with a phase, what is done of it and what there is.

    Raises:
        StateError: no job came in the span, or the store is of another cluster.
        PolicyError: a policy is unknown, cannot be replayed, or appears twice.
        MeshwrightError: a job is missing or wrong.
    """
    if not request.policies:
        raise PolicyError("name a policy", field="--policy")
    for spec in request.policies:
        if request.policies.count(spec) > 1:
            raise PolicyError("appears twice", field="--policy", value=spec)
    assert request.until is not None, "its end is said"
    span = read_span(store, cluster, request.since, request.until)
    durations = RealDurations(span.runs)
    recorded = play_back(span, durations)
    trusted = trust(span, recorded, durations)
    outcomes, remarks = {RECORDED: recorded}, list(span.remarks)
    plays = _plays(span, durations, request, planners_of, cache, progress, remarks)
    for number, (name, play) in enumerate(plays.items()):
        if progress is not None:
            progress("policies", number, len(plays))
        outcomes[name], missed_device_h = play()
        if missed_device_h > 0:
            remarks.append(
                f"{name} gave its jobs devices that others really had: these had {missed_device_h:.3g} device-hours less"
            )
    refused = sum(arrival.run is None for arrival in span.arrivals)
    if refused and request.queue:
        remarks.append(f"{refused} jobs that were refused wait here instead; with --set queue=0 they are refused here too")
    rows = _rows(span, outcomes)
    return {
        "format_version": FORMAT_VERSION,
        "cluster": cluster.name,
        "begin": span.begin.isoformat(),
        "end": span.end.isoformat(),
        "num_jobs": len(span.arrivals),
        "num_refused": refused,
        "queue": request.queue,
        **trusted,
        "rows": rows,
        "remarks": remarks,
    }


def played(path: Path, request: ReplayRequest, recipe: dict[str, Any]) -> dict[str, Any]:
    """Play a span of a ledger's past, in a process of its own and at low priority; raises as `replay`.

    Args:
        path: of the ledger.
        request: what is wanted.
        recipe: of the planners, as `deciding.Planners.recipe` gives it.
    """
    with suppress(OSError):
        os.nice(NICE)
    with Ledger(path, is_read=True) as ledger:
        return replay(
            ledger, recipe["cluster"], request, lambda spec: Planners(**{**recipe, "policy": spec}), cache=recipe["cache"]
        )


def _plays(
    span: PastSpan,
    durations: RealDurations,
    request: ReplayRequest,
    planners_of: Callable[[str], Planners],
    cache: Path | None,
    progress: Progress | None,
    remarks: list[str],
) -> dict[str, Callable[[], tuple[Outcomes, float]]]:
    """Return how each policy is played, by name: see `fleet_world` and `service_world`; what it was not trained for is noted."""
    result: dict[str, Callable[[], tuple[Outcomes, float]]] = {}
    world: FleetWorld | None = None
    for spec in request.policies:
        name = policy_name(spec)
        if name in result:
            raise PolicyError("two policies have this name", field="--policy", value=name)
        if request.as_served or span.whole_hosts or not is_of_fleets(spec):
            served = MENU_RULE + spec if is_of_fleets(spec) and not is_by_menu(spec) else spec
            said = next((arrival for arrival in span.arrivals if arrival.request.batch is not None), None)
            if said is not None and not is_by_menu(served):
                problem = (
                    f"cuts jobs op by op, and the job of {said.decision} says its batch, which only menus take: {MENU_RULE}RULE"
                )
                raise PolicyError(problem, field="--policy", value=served)
            result[name] = ServiceWorld(span, durations, planners_of(served), queue=request.queue).play
        else:
            if world is None:
                speak = planners_of(spec).spec_of
                world = FleetWorld.from_span(span, durations, speak, queue=request.queue, cache=cache, progress=progress)
            as_seen, player = world.before(spec)
            result[name] = partial(as_seen.play, player)
            if (warning := condition_changes(spec.removeprefix(MENU_RULE), as_seen.fleet)) is not None:
                remarks.append(warning)
    return result


def is_of_fleets(spec: str) -> bool:
    """Return whether a policy is one of fleets, as the service spells them, or by the bare name of a fleets' rule."""
    if is_by_menu(spec) or looks_ahead(spec):
        return True
    bare = re.split("[:+@]", spec)[0]
    return not is_baseline(spec) and is_rule(spec) and (bare in BASES or bare.startswith(tuple(OF_DEGREE)))


def _rows(span: PastSpan, outcomes: dict[str, Outcomes]) -> list[dict[str, Any]]:
    day = np.array([int(arrival.asked_s // DAY_S) for arrival in span.arrivals])
    days, place = np.unique(day, return_inverse=True)
    rng = np.random.default_rng(0)
    drawn = rng.integers(len(days), size=(NUM_DRAWS, len(days))) if len(days) >= LEAST_DAYS else None
    return [
        {
            "policy": name,
            "num_completed": int(np.isfinite(one.completion_s).sum()),
            "num_on_devices_never_observed": int(one.is_unknown.sum()),
            "blocked": _mean(one.is_blocked.astype(np.float64), place, drawn),
            "mean_completion_s": _mean(one.completion_s, place, drawn),
            "mean_waiting_s": _mean(one.waiting_s, place, drawn),
            "device_hours": _total(one.device_s / 3600.0, place, drawn),
        }
        for name, one in outcomes.items()
    ]


def _mean(values: NDArray[np.float64], day: NDArray[np.int64], drawn: NDArray[np.int64] | None) -> dict[str, float | None] | None:
    """Return the mean of the values that are numbers, and its interval; None where none is."""
    is_known = np.isfinite(values)
    if not is_known.any():
        return None
    totals = np.bincount(day, np.where(is_known, values, 0.0))
    counts = np.bincount(day, is_known)
    return {"mean": float(values[is_known].mean()), **_ends(drawn, lambda days: totals[days].sum(1) / counts[days].sum(1))}


def _total(values: NDArray[np.float64], day: NDArray[np.int64], drawn: NDArray[np.int64] | None) -> dict[str, float | None]:
    """Return the sum of values, and its interval."""
    totals = np.bincount(day, values)
    return {"total": float(values.sum()), **_ends(drawn, lambda days: totals[days].sum(1))}


def _ends(drawn: NDArray[np.int64] | None, of: Callable[[NDArray[np.int64]], NDArray[np.float64]]) -> dict[str, float | None]:
    """Return the ends of the interval of a figure of days, by drawn days ``(NUM_DRAWS, days)``."""
    if drawn is None:
        return {"low": None, "high": None}
    with np.errstate(invalid="ignore"):
        low, high = np.nanpercentile(of(drawn), [50.0 * (1 - CONFIDENCE), 50.0 * (1 + CONFIDENCE)])
    return {"low": float(low), "high": float(high)}


COLUMNS = ("policy", "blocked, %", "mean completion, s", "mean waiting, s", "device-hours", "never observed")
"""Of the table for people; the last one counts jobs on numbers of devices on which their job was never observed."""


def rows_as_text(rows: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return the rows of a replay as cells of a table with `COLUMNS`."""
    return [
        [
            row["policy"],
            _figure_text(row["blocked"], "mean", 100.0),
            _figure_text(row["mean_completion_s"], "mean"),
            _figure_text(row["mean_waiting_s"], "mean"),
            _figure_text(row["device_hours"], "total"),
            str(row["num_on_devices_never_observed"]),
        ]
        for row in rows
    ]


def _figure_text(figure: dict[str, float | None] | None, key: str, factor: float = 1.0) -> str:
    if figure is None:
        return "-"
    value, low, high = (figure[name] for name in (key, "low", "high"))
    assert value is not None, "only its ends may be unknown"
    ends = "" if low is None or high is None else f" [{factor * low:.4g}, {factor * high:.4g}]"
    return f"{factor * value:.4g}{ends}"
