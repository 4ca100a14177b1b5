"""``meshwright history replay``."""

from __future__ import annotations

import re
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ....errors import ConfigError
from ... import output
from ...help import takes_keys
from ...keys import own_keys
from ...options import JsonFile, KeyChanges, option
from .ledgers import LedgerFile, opened

if TYPE_CHECKING:
    from ....live.ledger import Ledger

_UNITS_S = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


@takes_keys(("ReplayKeys", ""))
def replay_span(
    state: LedgerFile,
    cluster: Annotated[str, option("CLUSTER", "Of the ledger: preset:NAME or a path to YAML.")],
    policy: Annotated[list[str], option("POLICY", "A policy of the service; may be repeated to compare several.")],
    since: Annotated[str, option("WHEN", "Begin: so long ago, as 12h, 7d or 4w, or an instant as 2026-11-16T08:00Z.")] = "7d",
    until: Annotated[str | None, option("WHEN", "End, likewise; now by default.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Decide every stored decision anew instead; exit 1 unless all are equal.")
    ] = False,
    changes: KeyChanges = None,
    json_file: JsonFile = None,
) -> None:
    """Play a span of the past from a ledger under other policies.

    Jobs, devices held by others and closed hosts come from the ledger, step times from observations. The first row replays the
    recorded decisions: a replay that differs from the record by more than 5 % is not trusted, and says why.

    Examples:
      meshwright history replay --state now.db --cluster a.yaml --policy menu:sjf
      meshwright history replay --state now.db --cluster a.yaml --policy a --check
    """
    from ....clusters import load_cluster
    from ....live.deciding import Planners
    from ....live.replay.report import COLUMNS, ReplayRequest, replay, rows_as_text
    from ....planning.policies import note_files
    from ...key_models import ReplayKeys

    keys = own_keys(ReplayKeys, changes)
    note_files(policy)
    where = load_cluster(cluster)
    with opened(state) as ledger, tempfile.TemporaryDirectory() as scratch:

        def planners_of(spec: str) -> Planners:
            return Planners(where, spec, scratch=Path(scratch), graphs_dir=keys.graphs)

        if check:
            if len(policy) != 1:
                raise ConfigError("--check decides by one policy", field="--policy", value=len(policy))
            _check(ledger, planners_of(policy[0]), json_file)
        else:
            now = datetime.now(UTC)
            begin, end = when(since, "--since", now), now if until is None else when(until, "--until", now)
            if begin >= end:
                raise ConfigError("is not before the end", field="--since", value=since)
            said: dict[str, Any] = {} if keys.queue is None else {"queue": keys.queue}
            request = ReplayRequest.model_construct(since=begin, until=end, policies=policy, as_served=keys.as_served, **said)
            with output.progress() as bars:
                result = replay(ledger, where, request, planners_of, progress=output.phases(bars))
            output.write_json(json_file, result)
            out = output.console(json_file)
            title = f"{result['num_jobs']} jobs from {result['begin'][:16]} to {result['end'][:16]} (UTC) on {where.name}"
            output.table(out, title, list(COLUMNS), rows_as_text(result["rows"]), breaks_numbers=False)
            warning = "" if result["is_trusted"] else "THIS REPLAY CANNOT BE TRUSTED: "
            output.print_remarks(out, [warning + result["why"], *result["remarks"]])
            output.print_written(out, json_file)


def when(text: str, option: str, now: datetime) -> datetime:
    """Return an instant, or a time ago.

    Raises:
        ConfigError: neither.
    """
    ago = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]+)?)([mhdw])", text)
    if ago is not None:
        return now - timedelta(seconds=float(ago[1]) * _UNITS_S[ago[2]])
    try:
        result = datetime.fromisoformat(text)
    except ValueError:
        problem = "is neither a time ago, as 12h, 7d or 4w, nor an instant, as 2026-11-16T08:00Z"
        raise ConfigError(problem, field=option, value=text) from None
    return result if result.tzinfo is not None else result.replace(tzinfo=UTC)


def _check(ledger: Ledger, planners: Any, json_file: str | None) -> None:
    from ....live.replay.exact import replay_decisions

    with output.progress() as bars:
        report = output.phases(bars)
        result = replay_decisions(ledger, planners, lambda done, of: report("decisions", done, of))
    output.write_json(json_file, result)
    out = output.console(json_file)
    summary = f"{result['num_identical']} of {result['num_decided']} decisions are the same when they are decided anew"
    if result["num_undecided"]:
        summary += f"; {result['num_undecided']} more were not decided"
    out.print(summary, soft_wrap=True)
    if first := result["first"]:
        out.print(f"the first that is not: {first['decision']}: {first['reason']}", soft_wrap=True)
    output.print_written(out, json_file)
    if first:
        raise typer.Exit(1)
