"""A decision of a fleet in plain figures, for whoever decides without a network: rules that users write."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...envs.fleet.fleet import Fleet
from ...planners.policy import WorldDecision
from ...simulation.fleet.actions import first_pause, first_refusal, start_number
from ...simulation.fleet.offers import choice_step_s
from ...simulation.fleet.runs import restart_s
from ...simulation.fleet.state import FleetState, PlacementRule
from ...simulation.named_columns import Column

PASS, START, RESIZE, PAUSE, REFUSE, PICK = range(6)
KINDS = np.array(["pass", "start", "resize", "pause", "refuse", "pick"])
"""Effect of an action: ``resize`` restarts a running job on other devices, ``pick`` gives a job that is being placed one more
host."""


class ActionNumber(Column):
    """Whole numbers of an action; -1 where it has none. Jobs are numbered by arrival, and on offer waiting ones come first."""

    KIND = "kind"
    PLACE = "place"
    JOB = "job"
    JOB_TYPE = "job_type"
    REQUESTED = "requested_devices"
    ENTRY = "entry"
    DEVICES = "devices"
    PLACEMENT = "placement"


class ActionFigure(Column):
    """Seconds of an action: ``step_s`` alone on its hosts, ``time_left_s`` with its restart, ``device_s`` that times devices.

    ``deadline_s`` is the time that is left until then, infinite without one.
    """

    WAITED = "age_s"
    DEADLINE = "deadline_s"
    STEP = "step_s"
    TIME_LEFT = "time_left_s"
    DEVICE_S = "device_s"


_PLACEMENTS = np.array([*(rule.name.lower() for rule in PlacementRule), ""])


def fleet_decision(fleet: Fleet, state: FleetState, e: int) -> WorldDecision:
    """Return the decision that episode ``e`` waits for; features as `ActionNumber` and `ActionFigure`, placement in words."""
    return WorldDecision(fleet, state.can_act[e].copy(), lambda: _figures(fleet, state, e))


def _figures(fleet: Fleet, state: FleetState, e: int) -> dict[str, NDArray[Any]]:
    numbers = np.full((len(ActionNumber), state.can_act.shape[1]), -1)
    figures = np.zeros((len(ActionFigure), state.can_act.shape[1]))
    _fill(fleet.problem, state, e, numbers, figures)
    named = dict(zip(ActionNumber.names(), numbers, strict=True)) | dict(zip(ActionFigure.names(), figures, strict=True))
    words = {"kind": KINDS[numbers[ActionNumber.KIND]], "placement": _PLACEMENTS[numbers[ActionNumber.PLACEMENT]]}
    return {**named, **words}


@njit
def _fill(problem, state, e, numbers, figures):  # type: ignore[no-untyped-def]
    """Write the figures of the actions that are possible, and the kind of all."""
    menu, choices = problem.menu, len(problem.rule)
    numbers[ActionNumber.KIND] = PASS
    if state.building[e] >= 0:
        entry = state.building_entry[e]
        numbers[ActionNumber.KIND], numbers[ActionNumber.ENTRY], numbers[ActionNumber.DEVICES] = PICK, entry, menu.degree[entry]
        _fill_job(problem, state, e, state.building[e], numbers, figures, 0, numbers.shape[1])
        return
    for place in range(state.offered.shape[1]):
        job = state.offered[e, place]
        if job < 0:
            continue
        number = max(0, place - problem.visible_waiting + 1)
        first, last = start_number(problem, place, 0, 0), start_number(problem, place + 1, 0, 0)
        _fill_job(problem, state, e, place, numbers, figures, first, last)
        left, begin = state.num_steps[e, job] - state.done_steps[e, job], menu.first_entry[state.job_type[e, job]]
        for action in range(first, last):
            numbers[ActionNumber.KIND, action] = RESIZE if number else START
            if not state.can_act[e, action]:
                continue
            entry, choice = begin + (action - first) // choices, (action - first) % choices
            step_s = choice_step_s(problem, state, e, job, number, entry, choice)
            part = 1 << max(0, state.part_index[e, number, problem.entry_degree[entry], choice])
            left_s = step_s * left + restart_s(problem, state, e, job, menu.degree[entry] // part)
            numbers[ActionNumber.ENTRY, action], numbers[ActionNumber.DEVICES, action] = entry, menu.degree[entry]
            numbers[ActionNumber.PLACEMENT, action] = problem.rule[choice]
            figures[ActionFigure.STEP, action], figures[ActionFigure.TIME_LEFT, action] = step_s, left_s
            figures[ActionFigure.DEVICE_S, action] = left_s * menu.degree[entry]
        if number or problem.may_refuse:
            other = first_pause(problem) + number - 1 if number else first_refusal(problem) + place
            _fill_job(problem, state, e, place, numbers, figures, other, other + 1)
            numbers[ActionNumber.KIND, other] = PAUSE if number else REFUSE


@njit
def _fill_job(problem, state, e, place, numbers, figures, first, last):  # type: ignore[no-untyped-def]
    """Write the figures of the job on a place of offer to the actions from ``first`` to before ``last``."""
    job = state.offered[e, place]
    numbers[ActionNumber.PLACE, first:last], numbers[ActionNumber.JOB, first:last] = place, job
    numbers[ActionNumber.JOB_TYPE, first:last] = state.job_type[e, job]
    numbers[ActionNumber.REQUESTED, first:last] = state.requested[e, job]
    figures[ActionFigure.WAITED, first:last] = state.now_s[e] - state.arrival_s[e, job]
    figures[ActionFigure.DEADLINE, first:last] = state.deadline_s[e, job] - state.now_s[e]
