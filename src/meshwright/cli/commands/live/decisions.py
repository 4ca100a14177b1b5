"""``meshwright history decisions``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ....errors import ConfigError, StateError
from ... import output
from ...options import JsonFile, argument, file_option, option
from .ledgers import LedgerOrService, ledger_or_service, opened

if TYPE_CHECKING:
    from rich.console import Console

    from ....live.decisions import KeptDecision, Mention


def show_decisions(
    decision: Annotated[str | None, argument("ID", "One of them, in full.")] = None,
    *,
    state: LedgerOrService = None,
    last: Annotated[int, option("N", "How many to list, the last ones.", min=1, max=1000)] = 20,
    cluster: Annotated[
        str | None, option("CLUSTER", "preset:NAME or a path to YAML, on which it was decided; for --html.")
    ] = None,
    html: Annotated[Path | None, file_option("Write the page of the decision as one file.", "--html")] = None,
    json_file: JsonFile = None,
) -> None:
    """List decisions and their outcomes, or show one in full: reason, candidates, devices, predicted and observed.

    Examples:
      meshwright history decisions --state now.db
      meshwright history decisions d-1 --state http://127.0.0.1:8765
    """
    from ....live.feedback.runs import median_step_s

    ledger_file, client = ledger_or_service(state)
    if html is not None and (decision is None or ledger_file is None or cluster is None):
        raise ConfigError("goes with an ID, a ledger as --state, and --cluster", field="--html", value=str(html))
    out = output.console(json_file)
    if client is not None:
        if decision is None:
            rows = [{**row, "decision": row["id"], "job": row["name"]} for row in client.rows(last)[::-1]]
            _list(out, rows, json_file)
            return
        view = client.view(decision)
        seen = view.get("observed")
        observed = None if seen is None else (int(seen["count"]), float(seen["median_step_s"]))
        _show(out, client.record_of(view), client.mentions_of(view), observed, json_file)
        return
    assert ledger_file is not None, "one of the two is named"
    with opened(ledger_file) as ledger:
        if decision is None:
            _list(
                out,
                [_row(stored, ledger.mentions(stored.decision.id)) for stored in ledger.decisions(None, last)[::-1]],
                json_file,
            )
            return
        record = ledger.decision(decision)
        if record is None:
            known = [one.decision.id for one in ledger.decisions(None, 1000)]
            raise StateError("there is no such decision", field="ID", value=decision, choices=known)
        steps = ledger.observations(decision)
        middle_s = median_step_s(steps)
        _show(out, record, ledger.mentions(decision), None if middle_s is None else (len(steps), middle_s), json_file)
        if html is not None:
            from .... import files
            from ....clusters import load_cluster
            from ....live.web.pages import decision_page

            assert cluster is not None, "it was checked"
            files.write_text(html, decision_page(ledger, load_cluster(cluster), record))
            output.print_written(out, html)


def _row(record: KeptDecision, mentions: list[Mention]) -> dict[str, Any]:
    plan = record.decision.plan
    return _summary(record, *record.decision.status(mentions)) | {"num_devices": 0 if plan is None else len(plan["ranks"])}


def _list(out: Console, result: list[dict[str, Any]], json_file: str | None) -> None:
    rows = []
    for one in result:
        reason = _detail(one["status"], one["detail"]) if one["num_devices"] else one["why"]
        at, name = one["at"][5:16].replace("T", " "), output.plain(one["job"])
        rows.append([one["decision"], at, name, one["status"], str(one["num_devices"] or ""), output.plain(reason)])
    output.table(out, "Decisions", ["decision", "UTC", "job", "status", "devices", "detail"], rows, numbers_from=4, numbers_to=5)
    output.write_json(json_file, result)
    output.print_written(out, json_file)


def _show(
    out: Console, record: KeptDecision, mentions: list[Mention], observed: tuple[int, float] | None, json_file: str | None
) -> None:
    """Print a decision in full; of its measured steps their number and the median of their seconds."""
    from ....live.changes import places

    one = record.decision
    status, detail = record.decision.status(mentions)
    facts = [
        ["job", output.plain(record.decision.job_name)],
        ["status", f"{status}: {_detail(status, detail)}".removesuffix(": ")],
        ["why", one.why],
    ]
    facts += [["owner", one.request.owner or ""], ["policy", "" if one.inputs is None else one.inputs.policy]]
    facts += [["devices", places(one.devices)]] if one.devices else []
    formats = {"step_s": "{:.4g} ms a step", "completion_s": "{:,.0f} s to the end", "device_seconds": "{:,.0f} device-seconds"}
    scaled = {name: value * (1000 if name == "step_s" else 1) for name, value in one.predicted.items()}
    facts.append(["predicted", ", ".join(words.format(scaled[name]) for name, words in formats.items() if name in scaled)])
    if observed:
        count, middle_s = observed
        measured = f"{1000 * middle_s:.4g} ms a step in the median of {count:,}"
        ratio = f", {middle_s / one.predicted['step_s']:.2f} of the predicted" if "step_s" in one.predicted else ""
        facts.append(["observed", measured + ratio])
    output.table(
        out, f"Decision {one.id}", ["", ""], [[name, output.plain(text)] for name, text in facts if text], numbers_from=2
    )
    if one.candidates:
        rows = [_candidate(row) for row in one.candidates if row.get("is_offered", True)]
        columns = ["", "devices", "what", "step ms", "completion s", "device-seconds", "memory GB"]
        output.table(out, "Candidates", columns, rows, numbers_from=3, breaks_numbers=False)
        output.print_remarks(out, [one.listed] if one.listed else [])
    history = [
        [str(row.seq), row.at[:16].replace("T", " "), row.status, output.plain(_detail(row.status, row.detail))]
        for row in mentions
    ]
    output.table(out, "Its changes", ["change", "UTC", "", ""], history, numbers_from=4)
    data = _summary(record, status, detail) | {
        "request": one.request.model_dump(mode="json", exclude_none=True),
        "candidates": list(one.candidates),
        "devices": one.devices,
        "predicted": one.predicted,
        "observed_step_s": None if observed is None else observed[1],
        "num_observed": 0 if observed is None else observed[0],
        "history": [mention._asdict() for mention in mentions],
    }
    output.write_json(json_file, data)
    output.print_written(out, json_file)


def _detail(status: str, detail: str) -> str:
    """Describe in words: of a job that the scheduler has it is the scheduler's id."""
    return f"job {detail}" if status in ("confirmed", "running") else detail


def _summary(record: KeptDecision, status: str, detail: str) -> dict[str, Any]:
    return {
        "decision": record.decision.id,
        "at": record.at,
        "key": record.key,
        "job": output.plain(record.decision.job_name),
        "owner": record.decision.request.owner,
        "status": status,
        "detail": detail,
        "why": record.decision.why,
    }


def _candidate(row: dict[str, Any]) -> list[str]:
    """Return a candidate of either kind of policy."""
    what = row.get("layout") or f"{row.get('shape', '')} {row.get('rule', '')}".strip()
    return [
        "->" if row.get("is_chosen") else "",
        str(row["degree"]),
        str(what),
        f"{1000 * row['step_s']:.3f}",
        f"{row['completion_s']:,.1f}",
        f"{row['device_seconds']:,.0f}",
        f"{row['memory_bytes'] / 1e9:.1f}" + " tight" * row["is_tight"] if "is_tight" in row else "",
    ]
