"""``meshwright submit``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ....errors import MeshwrightError
from ....quantities import counted
from ... import output
from ...help import takes_keys
from ...keys import own_keys
from ...options import Batch, DeadlineS, ForFramework, Job, JsonFile, KeyChanges, SequenceLength, TrainingSteps, argument, option
from .ledgers import LedgerOrService, ledger_or_service

if TYPE_CHECKING:
    from rich.console import Console

    from ....live.actuators.submission import Decider, Submitted
    from ....live.client import Client
    from ....live.controller import Controller
    from ....live.decisions import JobRequest, KeptDecision


@takes_keys(("SubmitKeys", ""))
def submit_job(
    words: Annotated[list[str], argument("-- SCRIPT.py|PROGRAM ARGS...", "Run by each rank.")],
    job: Job,
    state: LedgerOrService = None,
    cluster: Annotated[str | None, option("CLUSTER", "preset:NAME or a path to YAML; not with a service.")] = None,
    policy: Annotated[str | None, option("POLICY", "By default menu:fastest-feasible, with --batch.")] = None,
    steps: TrainingSteps = 10_000,
    deadline_s: DeadlineS = None,
    devices: Annotated[int | None, option("N", "The only number of devices that will do.")] = None,
    batch: Batch = None,
    sequence_length: SequenceLength = None,
    framework: ForFramework = None,
    to: Annotated[Literal["slurm", "none"], option("WHERE", "slurm: sbatch it; none: decide and export alone.")] = "slurm",
    out: Annotated[Path | None, option("DIR", "Folder of the export; by default meshwright-ID.")] = None,
    changes: KeyChanges = None,
    json_file: JsonFile = None,
) -> None:
    """Decide where a job runs on the free devices, export its plan, and hand it to Slurm.

    With --to slurm the listing of Slurm is read first, as by `meshwright state read slurm`. Exit status 1 where the job gets no
    devices now; then nothing is exported.

    Examples:
      meshwright submit --job zoo:gpt2-small --batch 64 --state now.db \\
        --cluster mine.yaml -- train.py
      meshwright submit --job zoo:vgg16 --batch 256 --state unix:mw -- train.py
    """
    from .... import settings
    from ....export import ExportOptions
    from ....live.actuators import submission
    from ....live.actuators.slurm import SbatchOptions
    from ...key_models import SubmitKeys

    keys = own_keys(SubmitKeys, changes)
    of_slurm = keys.model_dump(include={"time_minutes", "partition", "account", "qos"})
    refused = {f"--set {key}": value for key, value in of_slurm.items()}
    output.refuse(refused if to != "slurm" else {}, "goes with --to slurm only")
    if out is not None:
        output.check_folder("--out", out, is_replaced=True)
    requested: dict[str, Any] = {"steps": steps, "deadline_s": deadline_s, "batch": batch, "sequence_length": sequence_length}
    requested |= {"framework": framework, "devices": devices}
    request = job_request(job, {**requested, **keys.model_dump(include={"max_devices", "owner", "name"})})
    kind = "script" if words[0].endswith(".py") else "command"
    options = settings.build_settings(ExportOptions, {kind: shlex.join(words)}, file="command of each rank")
    sbatch = settings.build_settings(SbatchOptions, of_slurm, file="--set")
    console = output.console(json_file)
    ledger, client = ledger_or_service(state)
    with _decider(client, ledger, cluster, policy, keys.sharing, request) as (decider, controller):
        remarks = submission.look(controller) if to == "slurm" and controller is not None else ()
        done = submission.submit(
            decider,
            request,
            lambda name: Path(f"meshwright-{name}") if out is None else out,
            options,
            key=keys.key,
            sbatch=sbatch if to == "slurm" else None,
        )
        lease_s = None if controller is None else controller.lease_s
    decision = done.record.decision
    data = {
        "decision": decision.id,
        "outcome": decision.outcome,
        "why": decision.why,
        "job": done.job,
        "devices": {host: sorted(local) for host, local in decision.devices.items()},
        "predicted": decision.predicted,
        "out": None if done.folder is None else str(done.folder),
        "remarks": list(done.remarks),
    }
    output.write_json(json_file, data)
    output.print_remarks(console, remarks)
    if decision.outcome == "failed":
        raise MeshwrightError(decision.why, field=decision.field)
    if decision.outcome != "placed":
        console.print(f"{decision.id}: no devices now: {_why_none(done.record)}", soft_wrap=True)
        raise typer.Exit(1)
    _show(console, done, str(state), ledger, lease_s)


def job_request(job: str, fields: dict[str, Any], options: Mapping[str, str] | None = None) -> JobRequest:
    """Return the request; a file's content goes into it.

    Args:
        job: as the command line spells it.
        fields: of the request.
        options: by field the option that sets it, where that is not spelled like the field.

    Raises:
        MeshwrightError: the file is no job, or an option has an impossible value.
    """
    from .... import settings
    from ....errors import ConfigError
    from ....jobs.load import job_content
    from ....live.decisions import JobRequest

    content, named = job_content(job)
    data = {**fields, "job": content, "name": fields.get("name") or named}
    try:
        return settings.build_settings(JobRequest, {key: value for key, value in data.items() if value is not None})
    except ConfigError as error:
        key = None if error.field is None else error.field.partition(".")[0]
        spelled = {"framework": "--for", "max_devices": "--set max_devices", **(options or {})}
        spelled |= {key: f"--set {key}" for key in ("owner", "name")}
        field = None if key is None else spelled.get(key, f"--{key.replace('_', '-')}")
        raise MeshwrightError(error.problem, field=field, value=error.value, choices=error.choices) from None


@contextmanager
def _decider(
    client: Client | None,
    state: Path | None,
    cluster: str | None,
    policy: str | None,
    sharing: str | None,
    request: JobRequest,
) -> Iterator[tuple[Decider, Controller | None]]:
    """Yield the decider: a service elsewhere, or a controller in this process, which comes second in the pair.

    In this process the job is made ready before the ledger is opened.
    """
    if client is not None:
        others = {"--cluster": cluster, "--policy": policy, "--set sharing": sharing}
        output.refuse(others, "does not go with a service as --state: the service says it")
        yield client, None
        return
    assert state is not None, "one of the two is named"
    if cluster is None:
        raise MeshwrightError("is missing; or name a service by --state URL", field="--cluster")
    from ....clusters import load_cluster
    from ....errors import InputFileError
    from ....live.controller import Controller
    from ....live.deciding import DEFAULT_POLICY, Planners
    from ....live.feedback.calibration import ObservedLayer
    from ....live.keeping import LEDGER_ENDINGS

    output.check_file("--state", state, is_update=True)
    if state.suffix not in LEDGER_ENDINGS:
        raise InputFileError("decisions are kept in a ledger, which ends in .db", field="--state", value=str(state))
    where = load_cluster(cluster)
    with TemporaryDirectory(prefix="meshwright-") as scratch:
        planners = Planners(where, DEFAULT_POLICY if policy is None else policy, scratch=Path(scratch))
        planners.make_ready(request)
        layer = ObservedLayer()
        with closing(Controller(state, planners, whole_hosts=sharing == "hosts", factors=layer)) as controller:
            layer.learn(controller.store)
            yield controller, controller


def _why_none(record: KeptDecision) -> str:
    """Return why a job got no devices, and when some come free at the latest."""
    from ....live.decisions import free_at_s

    decision = record.decision
    if decision.inputs is None:
        return decision.why
    free_s, num_devices = free_at_s(decision.inputs.free), decision.request.devices
    free = int((free_s <= 0).sum())
    if free == len(free_s) or (num_devices is not None and num_devices <= free):  # it is not for want of devices
        return decision.why
    later = sorted(float(at) for at in free_s if 0 < at < float("inf"))
    if not later:
        return f"{decision.why}; when others come free is not known"
    if num_devices is not None and num_devices > free and num_devices - free <= len(later):
        return f"{decision.why}; {num_devices} are free in {_span(later[num_devices - free - 1])} at the latest"
    return f"{decision.why}; {free + later.count(later[0])} are free in {_span(later[0])} at the latest"


def _span(seconds: float) -> str:
    """Return a time in the unit in which people say it."""
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _show(out: Console, done: Submitted, state: str, ledger: Path | None, lease_s: float | None) -> None:
    """Print a few lines on the decision and its outcome."""
    from ....live.changes import places

    decision = done.record.decision
    assert decision.plan is not None, "it was placed"
    step_ms, completion_s = 1000 * decision.predicted["step_s"], decision.predicted["completion_s"]
    choice = next((row for row in decision.candidates if row["is_chosen"] and "is_tight" in row), None)
    memory = "" if choice is None else f", {choice['memory_bytes'] / 1e9:.1f} GB" + " tight" * choice["is_tight"]
    lines = [
        f"decision {decision.id}" + ("" if done.job is None else f", job {done.job}"),
        f"{counted(len(decision.plan['ranks']), 'device')}: {places(decision.devices)}",
        f"predicted: {step_ms:.4g} ms a step, {_span(completion_s)} for {decision.request.steps:,} steps{memory}",
    ]
    if "observed_step_s" in decision.predicted:  # as corrected by the job's earlier runs
        step_ms, completion_s = 1000 * decision.predicted["observed_step_s"], decision.predicted["observed_completion_s"]
        lines.append(f"as earlier runs were observed: {step_ms:.4g} ms a step, {_span(completion_s)}")
    if done.job is None and lease_s is None:
        lines.append("held until the service's lease runs out; start it with sbatch")
    elif done.job is None:
        lines.append(f"held until `meshwright state remove {decision.id} --state {shlex.quote(str(ledger))}`,")
        lines.append(f"or, where a service runs on this ledger, for {lease_s:g} s; start it with sbatch")
    for line in (*lines, *done.remarks):
        out.print(line, soft_wrap=True)
    output.print_written(out, done.folder)
    out.print(f"more: meshwright history decisions {decision.id} --state {shlex.quote(state)}", soft_wrap=True)
