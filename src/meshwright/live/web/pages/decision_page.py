"""The page of a decision: why, what else there was, the cluster as it was, how to start the job, and how it then ran."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ....clusters.cluster import Cluster
from ....errors import StateError
from ...changes import runs
from ...decisions import DecisionInputs, JobDecision, KeptDecision, Status, free_at_s
from ...ledger import Ledger
from ...state import HeldJob, some
from ..views import DecisionAnswer, view_of
from .hosts import MOST_OPEN_HOSTS, host_groups, marks
from .rendering import counted, duration, figure, instant, page
from .step_times import step_times

STATUS_WORDS: dict[Status, str] = {
    "preparing": "is being prepared: its job is read and priced first",
    "refused": "got no devices",
    "failed": "cannot be planned",
    "reserved": "holds its devices, and waits to be handed to the scheduler",
    "confirmed": "was handed to the scheduler, which has not started it yet",
    "running": "runs",
    "ended": "has ended",
    "released": "gave its devices back",
}
"""The sentence for each status of a decision."""
SAME = 0.005
"""Difference of two times, as a share, below which they count as equal."""


def decision_page(
    store: Ledger,
    cluster: Cluster,
    record: KeptDecision,
    *,
    url: str | None = None,
    wants_token: bool = False,
) -> str:
    """Return the page of a decision; by default as one file that holds its style and loads nothing.

    Args:
        store: that keeps it.
        cluster: that it was made on.
        record: the decision.
        url: of the service that shows the page; None where it is written to a file.
        wants_token: whether the service wants a token; then its reader signed in.

    Raises:
        InputFileError: the store cannot be read.
    """
    decision, view = record.decision, view_of(store, record)
    taken = {place.host: place.devices for place in view.decision.places}
    inputs = decision.inputs
    return page(
        "decision.html",
        is_file=url is None,
        title=f"{decision.job_name}: decision {decision.id}",
        name=decision.job_name,
        here="",
        has_session=wants_token,
        seq=store.last()[0],
        now=instant(datetime.now(UTC)),
        view=view,
        words=STATUS_WORDS[view.status],
        facts=_facts(record),
        figures=[figure(*one) for one in decision.predicted.items()],
        places=[(host, runs(local)) for host, local in taken.items()],
        candidates=() if inputs is None else candidate_rows(decision.candidates, inputs, cluster, taken),
        listed=decision.listed,
        as_it_was=_as_it_was(store, cluster, decision, view.decision),
        is_open=cluster.num_hosts <= MOST_OPEN_HOSTS // 8,
        commands=_commands(decision, url, wants_token),
        ranks=_ranks([] if decision.plan is None else decision.plan["ranks"]),
        chart=step_times(store.observations(decision.id), decision.predicted.get("step_s")),
    )


def _facts(record: KeptDecision) -> list[tuple[str, str]]:
    """Return the request, and the policy of the decision."""
    request, inputs = record.decision.request, record.decision.inputs
    result = [("asked for", f"{instant(record.at)} UTC")]
    result += [("owner", request.owner)] if request.owner is not None else []
    result += [("job", request.job if isinstance(request.job, str) else f"{request.job_name}, brought along with the request")]
    result += [("steps", f"{request.steps:,}")]
    others = (
        ("batch", request.batch),
        ("sequence length", request.sequence_length),
        ("devices", request.devices),
        ("most devices", request.max_devices),
    )
    result += [(said, f"{value:,}") for said, value in others if value is not None]
    result += [("deadline", duration(request.deadline_s))] if request.deadline_s is not None else []
    if inputs is not None:
        result += [("policy", inputs.policy), ("hosts", "held whole" if inputs.whole_hosts else "shared with other jobs")]
        result += [("state", f"change {inputs.seq:,}"), ("digest", inputs.digest)]
    return result


def _as_it_was(store: Ledger, cluster: Cluster, decision: JobDecision, answer: DecisionAnswer) -> dict[str, Any] | None:
    """Return the hosts at the time, with the devices that the decision took, or the problem for which they cannot be shown."""
    if decision.inputs is None:
        return None
    try:
        state = store.state_at(decision.inputs.seq)
        if answer.places:
            devices = {place.host: tuple(place.devices) for place in answer.places}
            job = HeldJob(id=decision.id, devices=devices, source="plan", whole_hosts=decision.inputs.whole_hosts)
            state = state.model_copy(update={"jobs": (*state.jobs, job)})
        return {"problem": None, "groups": host_groups(cluster, state, marks(state.jobs), decision.id)}
    except StateError as error:  # the cluster was described in another way then, or the time is kept no more
        return {"problem": str(error)}


def _commands(decision: JobDecision, url: str | None, wants_token: bool) -> list[str]:
    """Return how the plan becomes files of a scheduler."""
    if decision.plan is None:
        return []
    file = f"{decision.id}.json"
    token = ' -H "Authorization: Bearer $TOKEN"' if wants_token else ""
    fetch = [] if url is None else [f"curl -f{token} -o {file} {shlex.quote(f'{url}/v1/decisions/{decision.id}/plan')}"]
    sharing = "hosts" if decision.inputs is not None and decision.inputs.whole_hosts else "devices"
    options = f"--format slurm --set sharing={sharing} --set script=train.py"
    return [*fetch, f"meshwright export {file} {options} --out {decision.id}"]


def _ranks(rows: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the ranks of a plan on each host, and the indices of their devices there, in the order of the ranks."""
    of_host: dict[str, list[tuple[int, int]]] = {}
    for row in sorted(rows, key=lambda row: int(row["rank"])):
        of_host.setdefault(row["host"], []).append((row["rank"], row["local_rank"]))
    result = []
    for host, pairs in of_host.items():
        ranks, local = ([pair[part] for pair in pairs] for part in (0, 1))
        devices = runs(local) if local == sorted(local) else ", ".join(map(str, local))
        result.append({"host": host, "ranks": runs(ranks), "devices": devices})
    return result


def candidate_rows(
    rows: Sequence[Mapping[str, Any]], inputs: DecisionInputs, cluster: Cluster, taken: Mapping[str, Sequence[int]]
) -> list[dict[str, Any]]:
    """Return the candidates of a decision: devices that each would hold and leave free, and why it was not taken.

    Its times are in seconds, None where it has no place; ``memory_bytes`` is of the fullest rank.

    Args:
        rows: as a decision keeps them.
        inputs: what it was made from.
        cluster: on which.
        taken: indices of the devices of the chosen one on each host.
    """
    chosen_row = next((row for row in rows if row["is_chosen"]), None)
    free = np.array(free_at_s(inputs.free) <= 0)
    sizes = dict(zip(cluster.host_names, np.bincount(cluster.device_host).tolist(), strict=True))
    whole = dict(zip(cluster.host_names, np.bincount(cluster.device_host, ~free, cluster.num_hosts) == 0, strict=True))
    results = []
    for row in rows:
        hosts = list(taken) if row["is_chosen"] and taken else row.get("hosts")
        held = sum(sizes.get(host, 0) for host in hosts) if inputs.whole_hosts and hosts else int(row["degree"])
        leaves = ""
        if row.get("completion_s") is not None:
            leaves = f"{counted(max(0, int(free.sum()) - held), 'device')}"
            if hosts:
                num_free_hosts = sum(is_whole for host, is_whole in whole.items() if host not in hosts)
                leaves += f", {counted(int(num_free_hosts), 'whole host')}"
        results.append(
            {
                "degree": int(row["degree"]),
                "layout": str(row.get("layout") or row.get("rule") or ""),
                "where": some(list(dict.fromkeys(hosts))) if hosts else str(row.get("shape") or "no free block"),
                "step_s": row.get("step_s"),
                "completion_s": row.get("completion_s"),
                "num_held": held,
                "memory_bytes": row.get("memory_bytes"),
                "is_tight": bool(row.get("is_tight")),
                "leaves": leaves,
                "is_chosen": bool(row["is_chosen"]),
                "why_not": "" if row["is_chosen"] else _why_not(row, chosen_row, inputs),
            }
        )
    return results


def _why_not(row: Mapping[str, Any], chosen_row: Mapping[str, Any] | None, inputs: DecisionInputs) -> str:
    """Return why a candidate was not taken, by its row."""
    completion_s, deadline_s = row.get("completion_s"), inputs.request.deadline_s
    if completion_s is None:
        return "no block of this size is free"
    if deadline_s is not None and completion_s > deadline_s:
        return f"would miss the deadline by {duration(completion_s - deadline_s)}"
    if row.get("is_offered") is False:
        return "could not be placed now"
    if inputs.request.devices is not None and inputs.request.devices != row["degree"]:
        return f"the job asks for {counted(inputs.request.devices, 'device')}"
    if chosen_row is None or chosen_row.get("completion_s") is None:
        return ""
    return _comparison(completion_s / chosen_row["completion_s"], int(row["degree"]) - int(chosen_row["degree"]))


def _comparison(ratio: float, more: int) -> str:
    """Compare a candidate with the chosen one, by the ratio of their times and by devices."""
    devices = f"{counted(abs(more), 'device')} {'more' if more > 0 else 'fewer'}"
    if abs(ratio - 1) <= SAME:
        text = f"as fast, on {devices}" if more else "as fast, on as many devices"
    else:
        speed = f"{ratio:.3g} times as long" if ratio > 1 else f"{1 / ratio:.3g} times as fast"
        text = f"{speed}, on {devices if more else 'as many devices'}"
    is_no_worse = ratio <= 1 + SAME and more <= 0
    return text + (": no worse by these figures, yet the policy preferred the other" if is_no_worse else "")
