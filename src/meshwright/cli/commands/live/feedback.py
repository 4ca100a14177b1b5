"""``meshwright history observe`` and ``meshwright history calibration``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ... import output
from ...options import JsonFile, argument
from .ledgers import LedgerFile, LedgerOrService, ledger_or_service, opened


def observe_steps(
    decision: Annotated[str, argument("DECISION", "Its id.")],
    steps: Annotated[Path, argument("FILE", 'Measured steps, a line each: {"step": 10, "step_s": 0.53, "rank": 0}.')],
    state: LedgerOrService = None,
) -> None:
    """Keep the measured step times of a decision's job; each step of each rank counts once.

    Examples:
      meshwright history observe d-1 steps.jsonl --state now.db
    """
    from ....live.feedback.alarm import slow_stretch
    from ....live.feedback.runs import read_observations
    from ....live.store import keep_observations

    ledger_file, client = ledger_or_service(state)
    output.check_file("--state", ledger_file, is_update=True)
    observed = read_observations(steps)
    if client is not None:
        new = client.observe(decision, observed)
        alarm = (client.view(decision).get("observed") or {}).get("alarm")
    else:
        assert ledger_file is not None, "one of the two is named"
        with opened(ledger_file, is_read=False) as ledger:
            new = keep_observations(ledger, decision, observed)
            record = ledger.decision(decision)
            alarm = None if record is None else slow_stretch(record.decision, ledger.observations(decision))
    out = output.console()
    out.print(f"{decision}: {len(observed):,} step times, {new:,} of them new")
    if alarm is not None:
        output.print_remarks(out, [f"SLOW: {alarm}"])
    output.print_written(out, ledger_file)


def show_calibration(state: LedgerFile, json_file: JsonFile = None) -> None:
    """Print the ratio of observed to predicted step times by job and number of devices, and whether plans gain by it.

    Examples:
      meshwright history calibration --state now.db
    """
    from ....live.feedback.calibration import calibration
    from ....live.feedback.runs import observed_runs

    with opened(state) as ledger:
        result = calibration(observed_runs(ledger))
    output.write_json(json_file, result.model_dump(mode="json"))
    out = output.console(json_file)
    rows = [
        [
            row.job,
            f"{row.num_devices}",
            "one" if row.is_on_one_host else "several",
            f"{row.num_runs}",
            f"{row.ratio:.4g}",
            f"{row.low:.4g} to {row.high:.4g}",
            f"{row.factor:.4g}",
        ]
        for row in result.rows
    ]
    columns = ["job", "devices", "hosts", "runs", "observed / predicted", "of 80 % of the runs", "factor"]
    output.table(out, f"Observed step times in {state.name}", columns, rows)
    output.print_remarks(out, [result.why])
    output.print_written(out, json_file)
