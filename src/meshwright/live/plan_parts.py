"""Plans in a store: the large parts, which many plans have in common, are kept once under their digests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .. import files
from ..plans import PlacementPlan
from .decisions import JobDecision
from .ledger import Ledger
from .records.sums import damaged

if TYPE_CHECKING:
    from .records.ledger_turn import LedgerTurn

OF_JOB = {"graph", "transformer"}
"""Parts of a plan's job."""

REMEMBERED = 4096
"""Cuts of jobs whose parts are remembered."""


class PlanParts:
    """Puts plans into decisions, and remembers the digests of their parts."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], dict[str, str]] = {}

    def with_plan(self, decision: JobDecision, plan: PlacementPlan, turn: LedgerTurn | None = None) -> JobDecision:
        """Return a decision with its plan.

        Args:
            decision: made from inputs, on whose digest and the plan's partition all parts depend.
            plan: its plan.
            turn: of the store that keeps the large parts; None: nothing is kept.
        """
        assert decision.inputs is not None, "it was decided from something"
        key = decision.inputs.digest, "" if plan.partition is None else plan.partition.model_dump_json()
        documents = self._known.get(key)
        # They may have been given up meanwhile.
        if documents is None or turn is None or not turn.has_documents(documents.values()):
            whole = plan.model_dump(mode="json", exclude_none=True, include={"job": OF_JOB, "cluster": True})
            documents = {}
            for part, value in {**whole.get("job", {}), "cluster": whole.get("cluster")}.items():
                body = json.dumps(value, sort_keys=True)
                documents[part] = files.digest(body)
                if turn is not None:
                    turn.keep_document(documents[part], body)
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            self._known[key] = documents
        data = plan.model_dump(mode="json", exclude_none=True, exclude={"job": OF_JOB, "cluster": True})
        predicted = {figure.name: figure.value for figure in plan.predicted}
        return decision.model_copy(update={"plan": data, "documents": documents, "predicted": predicted})


def whole_plan(store: Ledger, decision: JobDecision) -> PlacementPlan | None:
    """Return the plan of a decision with its job and cluster in it; None where it has none.

    Raises:
        InputFileError: the store is damaged.
    """
    if decision.plan is None:
        return None
    try:
        data = {**decision.plan, "job": dict(decision.plan["job"])}
        for part, digest in decision.documents.items():
            body = store.document(digest)
            if body is None:
                raise damaged(store.path, f"document {digest}", "is missing")
            (data if part == "cluster" else data["job"])[part] = json.loads(body)
        return PlacementPlan.model_validate(data)
    except (KeyError, TypeError, ValueError):
        raise damaged(store.path, f"decision {decision.id}", "cannot be read") from None
