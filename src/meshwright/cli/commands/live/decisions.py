"""``meshwright decisions``."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ... import output
from ...options import JsonFile
from .ledgers import LedgerFile, opened

if TYPE_CHECKING:
    from rich.console import Console

    from ....live.decisions import KeptDecision, Mention
    from ....live.ledger import Ledger


def show_decisions(
    decision: Annotated[str | None, typer.Argument(metavar="[ID]", help="One of them, in full.")] = None,
    *,
    state: LedgerFile,
    last: Annotated[int, typer.Option(metavar="N", min=1, help="How many to list, the last ones.")] = 20,
    json_file: JsonFile = None,
) -> None:
    """List decisions and what became of them; of one: why, what else there was, where it runs, predicted and observed."""
    from ....errors import StateError

    output.check_file("--json", json_file)
    out = output.console(json_file)
    with opened(state) as ledger:
        if decision is None:
            _list(out, ledger, last, json_file)
            return
        kept = ledger.decision(decision)
        if kept is None:
            known = [one.decision.id for one in ledger.decisions(None, 1000)]
            raise StateError("there is no such decision", field="ID", value=decision, choices=known)
        _show(out, ledger, kept, json_file)


def _list(out: Console, ledger: Ledger, limit: int, json_file: str | None) -> None:
    found = ledger.decisions(None, limit)[::-1]
    data, rows = [], []
    for kept in found:
        one = kept.decision
        status, detail = _status(kept, ledger.mentions(one.id))
        devices = len(one.plan["ranks"]) if one.plan is not None else 0
        data.append(_summary(kept, status, detail) | {"num_devices": devices})
        told = one.why if one.plan is None else _detail(status, detail)
        rows.append([one.id, kept.at[5:16].replace("T", " "), _name(kept), status, str(devices or ""), output.plain(told)])
    output.table(out, "Decisions", ["decision", "UTC", "job", "status", "devices", "detail"], rows, numbers_from=4, numbers_to=5)
    output.write_json(json_file, data)
    output.print_written(out, json_file)


def _show(out: Console, ledger: Ledger, kept: KeptDecision, json_file: str | None) -> None:
    from ....live.changes import places

    one, mentions = kept.decision, ledger.mentions(kept.decision.id)
    observed = [float(row.step_s) for row in ledger.observations(one.id)]
    status, detail = _status(kept, mentions)
    devices: dict[str, list[int]] = {}
    for rank in (one.plan or {"ranks": ()})["ranks"]:
        devices.setdefault(rank["host"], []).append(rank["local_rank"])
    facts = [["job", _name(kept)], ["status", f"{status}: {_detail(status, detail)}".removesuffix(": ")], ["why", one.why]]
    facts += [["owner", one.request.owner or ""], ["policy", "" if one.inputs is None else one.inputs.policy]]
    facts += [["devices", places(devices)]] if devices else []
    facts += [["predicted", _figures(one.predicted)]] if one.predicted else []
    if observed:
        told = f"{1000 * median(observed):.4g} ms a step in the median of {len(observed):,}"
        ratio = f", {median(observed) / one.predicted['step_s']:.2f} of the predicted" if "step_s" in one.predicted else ""
        facts.append(["observed", told + ratio])
    output.table(
        out, f"Decision {one.id}", ["", ""], [[name, output.plain(text)] for name, text in facts if text], numbers_from=2
    )
    if one.candidates:
        rows = [_candidate(row) for row in one.candidates if row.get("is_offered", True)]
        columns = ["", "devices", "what", "step ms", "completion s", "device-seconds"]
        output.table(out, "What there was to choose from", columns, rows, numbers_from=3, breaks_numbers=False)
    history = [
        [str(row.seq), row.at[:16].replace("T", " "), row.status, output.plain(_detail(row.status, row.detail))]
        for row in mentions
    ]
    output.table(out, "What became of it", ["change", "UTC", "", ""], history, numbers_from=4)
    data = _summary(kept, status, detail) | {
        "request": one.request.model_dump(mode="json", exclude_none=True),
        "candidates": list(one.candidates),
        "devices": devices,
        "predicted": one.predicted,
        "observed_step_s": median(observed) if observed else None,
        "num_observed": len(observed),
        "history": [mention._asdict() for mention in mentions],
    }
    output.write_json(json_file, data)
    output.print_written(out, json_file)


def _status(kept: KeptDecision, mentions: list[Mention]) -> tuple[str, str]:
    """What a decision is now, and a detail."""
    return (mentions[-1].status, mentions[-1].detail) if mentions else (kept.decision.outcome, "")


def _detail(status: str, detail: str) -> str:
    """In words: of a job that the scheduler has it is the scheduler's id."""
    return f"job {detail}" if status in ("confirmed", "running") else detail


def _summary(kept: KeptDecision, status: str, detail: str) -> dict[str, Any]:
    return {
        "decision": kept.decision.id,
        "at": kept.at,
        "key": kept.key,
        "job": _name(kept),
        "owner": kept.decision.request.owner,
        "status": status,
        "detail": detail,
        "why": kept.decision.why,
    }


def _name(kept: KeptDecision) -> str:
    """What the job is called."""
    one = kept.decision
    if one.plan is not None:
        return output.plain(str(one.plan["job"]["name"]))
    job = one.request.job
    return output.plain(
        one.request.name or (job if isinstance(job, str) else str(job.get("name") or job.get("model_type") or "job"))
    )


def _candidate(row: dict[str, Any]) -> list[str]:
    """A candidate of either kind of policy."""
    what = row.get("layout") or f"{row.get('shape', '')} {row.get('rule', '')}".strip()
    return [
        "->" if row.get("is_chosen") else "",
        str(row["degree"]),
        str(what),
        f"{1000 * row['step_s']:.3f}",
        f"{row['completion_s']:,.1f}",
        f"{row['device_seconds']:,.0f}",
    ]


def _figures(predicted: dict[str, float]) -> str:
    """The figures that everybody asks for, in words."""
    told = {"step_s": "{:.4g} ms a step", "completion_s": "{:,.0f} s to the end", "device_seconds": "{:,.0f} device-seconds"}
    scaled = {name: value * (1000 if name == "step_s" else 1) for name, value in predicted.items()}
    return ", ".join(words.format(scaled[name]) for name, words in told.items() if name in scaled)
