"""Numbers of actions: to pass, then offer x entry x placement choice, then pauses, then refusals."""

from ...compiled import njit


@njit
def start_number(problem, place, number, choice):  # type: ignore[no-untyped-def]
    """Return the action by which the job on a place of offer runs by its entry of some number on hosts of a placement choice."""
    return 1 + (place * problem.entries_per_job + number) * len(problem.rule) + choice


@njit
def first_pause(problem):  # type: ignore[no-untyped-def]
    """Return the action that pauses the first running job on offer."""
    return start_number(problem, problem.visible_waiting + problem.visible_running, 0, 0)


@njit
def first_refusal(problem):  # type: ignore[no-untyped-def]
    """Return the action that refuses the first waiting job on offer."""
    return first_pause(problem) + problem.visible_running
