"""Every stored decision, made again from its stored inputs, is the same byte for byte; differences are reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...errors import MeshwrightError
from ..deciding import Planners
from ..decisions import JobDecision, KeptDecision
from ..ledger import Ledger
from ..plan_parts import PlanParts
from ..store import every_decision


class Difference(NamedTuple):
    """A decision that differs when it is made again.

    Attributes:
        decision: its id.
        field: field that differs; None where it was not decided anew.
        reason: the reason, in a sentence.
    """

    decision: str
    field: str | None
    reason: str


class ExactReplay(NamedTuple):
    """How many decisions are the same.

    Attributes:
        num_decided: decisions that were made from something.
        num_identical: of them, those that are the same byte for byte.
        num_others: of them, those that were made by another policy or cost model, so that they cannot be held against this one.
        num_undecided: decisions that are being prepared or failed before anything was decided.
        first: the first that is not identical.
    """

    num_decided: int
    num_identical: int
    num_others: int
    num_undecided: int
    first: Difference | None

    def to_data(self) -> dict[str, Any]:
        """The result as plain data."""
        return {**self._asdict(), "first": None if self.first is None else self.first._asdict()}


def replay_decisions(store: Ledger, planners: Planners, progress: Callable[[int, int], None] | None = None) -> ExactReplay:
    """Make all decisions of a store again.

    Args:
        store: of them.
        planners: the cluster and the policy by which they are decided.
        progress: called with the number of decisions done and that of all.

    Raises:
        MeshwrightError: the policy is missing or wrong.
    """
    every = every_decision(store)
    counts = {"identical": 0, "other": 0, "undecided": 0}
    first: Difference | None = None
    for number, record in enumerate(every):
        if progress is not None:
            progress(number, len(every))
        if record.decision.inputs is None:
            counts["undecided"] += 1
            continue
        result = replay_decision(record, planners)
        if result is None:
            counts["identical"] += 1
        else:
            counts["other"] += result.field is None
            first = first or result
    decided = len(every) - counts["undecided"]
    return ExactReplay(decided, counts["identical"], counts["other"], counts["undecided"], first)


def replay_decision(record: KeptDecision, planners: Planners) -> Difference | None:
    """Make a decision again from its inputs; None where it is the same."""
    old, inputs = record.decision, record.decision.inputs
    assert inputs is not None, "it was made from something"
    if inputs.policy != planners.policy:
        message = f"the policy is another one now: it was decided by {inputs.policy}, here is {planners.policy}"
        return Difference(old.id, None, message)
    try:
        digest = planners.digest(inputs.request)
    except MeshwrightError as error:
        return Difference(old.id, None, f"its job cannot be read any more: {error}")
    if digest != inputs.digest:
        message = f"the policy or the cost model is another one now: by digest it was {inputs.digest[:12]}, here is {digest[:12]}"
        return Difference(old.id, None, message)
    result = planners.decide(inputs)
    new = result.as_decision(old.id, inputs)
    if result.plan is not None:
        new = PlanParts().with_plan(new, result.plan)
    read, made = _read(old), _read(new)
    if read.model_dump_json(exclude_none=True) == made.model_dump_json(exclude_none=True):
        return None
    was, now = (one.model_dump(mode="json", exclude_none=True) for one in (read, made))
    field = next((name for name in {**was, **now} if was.get(name) != now.get(name)), "order")
    return Difference(old.id, field, f"decided anew from the same inputs by the same digest its {field} is another")


def _read(decision: JobDecision) -> JobDecision:
    """A decision as it is once it has been kept and read."""
    return JobDecision.model_validate_json(decision.model_dump_json(exclude_none=True))
