"""Every stored decision, made again from its stored inputs, is the same byte for byte; differences are reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import MeshwrightError
from ..deciding import Planners
from ..decisions import JobDecision, KeptDecision
from ..ledger import Ledger
from ..plan_parts import PlanParts
from ..store import every_decision


def replay_decisions(store: Ledger, planners: Planners, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
    """Make all decisions of a store again.

    Args:
        store: of them.
        planners: the cluster and the policy by which they are decided.
        progress: called with the number of decisions done and that of all.

    Returns:
        ``num_decided``, and of them ``num_identical`` and ``num_others``: those that another policy or cost model made, so that
        they cannot be held against this one. ``num_undecided`` are prepared, or failed before. ``first`` is the first that is not
        identical, as `replay_decision` gives it.

    Raises:
        MeshwrightError: the policy is missing or wrong.
    """
    every = every_decision(store)
    counts = {"num_decided": 0, "num_identical": 0, "num_others": 0, "num_undecided": 0}
    first: dict[str, str | None] | None = None
    for number, record in enumerate(every):
        if progress is not None:
            progress(number, len(every))
        if record.decision.inputs is None:
            counts["num_undecided"] += 1
            continue
        result = replay_decision(record, planners)
        counts["num_decided"] += 1
        counts["num_identical"] += result is None
        counts["num_others"] += result is not None and result["field"] is None
        first = first or result
    return {**counts, "first": first}


def replay_decision(record: KeptDecision, planners: Planners) -> dict[str, str | None] | None:
    """Make a decision again from its inputs; None where it is the same.

    Returns:
        ``decision``, its id; ``field``, the one that differs, None where it was not decided anew; ``reason``, a sentence.
    """
    old, inputs = record.decision, record.decision.inputs
    assert inputs is not None, "it was made from something"
    if inputs.policy != planners.policy:
        message = f"the policy is another one now: it was decided by {inputs.policy}, here is {planners.policy}"
        return {"decision": old.id, "field": None, "reason": message}
    try:
        digest = planners.digest(inputs.request)
    except MeshwrightError as error:
        return {"decision": old.id, "field": None, "reason": f"its job cannot be read any more: {error}"}
    if digest != inputs.digest:
        message = f"the policy or the cost model is another one now: by digest it was {inputs.digest[:12]}, here is {digest[:12]}"
        return {"decision": old.id, "field": None, "reason": message}
    result = planners.decide(inputs)
    new = result.as_decision(old.id, inputs)
    if result.plan is not None:
        new = PlanParts().with_plan(new, result.plan)
    read, made = _read(old), _read(new)
    if read.model_dump_json(exclude_none=True) == made.model_dump_json(exclude_none=True):
        return None
    was, now = (one.model_dump(mode="json", exclude_none=True) for one in (read, made))
    field = next((name for name in {**was, **now} if was.get(name) != now.get(name)), "order")
    return {
        "decision": old.id,
        "field": field,
        "reason": f"decided anew from the same inputs by the same digest its {field} is another",
    }


def _read(decision: JobDecision) -> JobDecision:
    """Return a decision as it is once it has been kept and read."""
    return JobDecision.model_validate_json(decision.model_dump_json(exclude_none=True))
