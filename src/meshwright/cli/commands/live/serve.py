"""``meshwright serve`` and ``meshwright token``."""

from __future__ import annotations

import fcntl
import gc
import os
import re
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ....quantities import counted
from ... import output
from ...options import ForFramework, SlurmTokenFile

if TYPE_CHECKING:
    from ....live.service import Service

EXTRA = "needs the extra [serve]: pip install 'meshwright[serve]'"


def serve_cluster(
    cluster: Annotated[str, typer.Option(metavar="CLUSTER", help="preset:NAME or a path to YAML.")],
    state: Annotated[Path, typer.Option(metavar="FILE", help="Ledger, FILE.db; made where absent.")],
    policy: Annotated[
        str | None,
        typer.Option(metavar="POLICY", help="menu:RULE, shipped:NAME, a run folder or a rule."),
    ] = None,
    framework: ForFramework = None,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Who lists jobs and hosts: slurm, slurm:json, slurm:URL of slurmrestd, kubernetes, ray or file:PATH.",
        ),
    ] = None,
    slurm_token_file: SlurmTokenFile = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="On which it listens; others than loopback want tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="N", min=0, max=65535, help="0: any free one, which is printed.")] = 8765,
    socket: Annotated[Path | None, typer.Option(metavar="FILE", help="Listen on a socket file in place of an address.")] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="Tokens, as `meshwright token` writes them.")
    ] = None,
    name: Annotated[list[str] | None, typer.Option(metavar="HOST", help="Another name of it, as that of a proxy.")] = None,
    tls_cert: Annotated[Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate, with --tls-key.")] = None,
    tls_key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key.")] = None,
    sharing: Annotated[
        str, typer.Option(metavar="HOW", help="devices: jobs share hosts; hosts: each holds its hosts whole.")
    ] = "devices",
    lease_s: Annotated[
        float, typer.Option("--lease-s", metavar="SECONDS", min=1, help="How long devices wait for a job to be handed over.")
    ] = 600.0,
    resync_s: Annotated[float, typer.Option("--resync-s", metavar="SECONDS", min=0.1, help="Between two listings.")] = 30.0,
    max_age_s: Annotated[
        float, typer.Option("--max-age-s", metavar="SECONDS", min=0.1, help="Age of a listing beyond which nothing is decided.")
    ] = 120.0,
    graphs: Annotated[
        Path | None, typer.Option("--graphs", metavar="DIR", help="Folder in which bare names of jobs are looked up.")
    ] = None,
    kueue_check: Annotated[
        str | None,
        typer.Option("--kueue-check", metavar="NAME", help="Answer for this AdmissionCheck of Kueue; with --source kubernetes."),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Of policies that draw.")] = 0,
    feedback: Annotated[
        bool, typer.Option("--feedback/--no-feedback", help="Hold deadlines by what earlier runs took, where that is better.")
    ] = True,
    keep_days: Annotated[
        int,
        typer.Option("--keep-days", metavar="N", min=0, help="Days of the past that are kept; 0: all. Jobs that run always are."),
    ] = 90,
    pricing_limit_s: Annotated[
        float,
        typer.Option("--pricing-limit-s", metavar="SECONDS", min=1, help="Longest that the pricing of a new job may take."),
    ] = 600.0,
) -> None:
    """Decide for the jobs of a live cluster, over HTTP, until it is told to stop."""
    from ....errors import ConfigError, InputFileError
    from ....live.keeping import LEDGER_ENDINGS
    from ....live.sources.source import source as source_of

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # one decision is too little work for more than one thread
    sys.setswitchinterval(0.0005)  # answers do not wait long for a decision that is being made
    try:
        import uvicorn

        from ....live.web.access import access
        from ....live.web.app import build_app
        from ....live.web.server import ServiceServer, bound, limits
    except ModuleNotFoundError as error:
        raise InputFileError(EXTRA, field=str(error.name)) from None

    if state.suffix not in LEDGER_ENDINGS:
        raise InputFileError("a service keeps its state in a ledger, which ends in .db", field="--state", value=str(state))
    if sharing not in ("devices", "hosts"):
        raise ConfigError("must be devices or hosts", field="--sharing", value=sharing, choices=["devices", "hosts"])
    if (tls_cert is None) != (tls_key is None):
        raise ConfigError("go together", field="--tls-cert and --tls-key")
    if kueue_check is not None and source != "kubernetes":
        raise ConfigError("goes with --source kubernetes", field="--kueue-check", value=kueue_check)
    if kueue_check is not None and re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", kueue_check) is None:
        raise ConfigError("is no name of an object of Kubernetes", field="--kueue-check", value=kueue_check)
    for option, file in (("--tls-cert", tls_cert), ("--tls-key", tls_key)):
        if file is not None and not file.is_file():
            raise InputFileError("no such file", field=option, value=str(file))
    asked = [] if source is None else [source_of(source, slurm_token_file=slurm_token_file)]
    output.check_file("--state", state, is_update=True)
    allowed = access(None if socket is not None else host, token_file, name or ())

    from ....clusters import load_cluster
    from ....live.controller import Controller
    from ....live.deciding import DEFAULT_POLICY, Planners
    from ....live.feedback.calibration import ObservedLayer
    from ....live.service import Service
    from ....plans.frameworks.table import framework as framework_of

    with ExitStack() as until_it_ends:
        scratch = Path(until_it_ends.enter_context(tempfile.TemporaryDirectory(prefix="meshwright-serve-")))
        runs = None if framework is None else framework_of(framework).name
        planners = Planners(load_cluster(cluster), policy or DEFAULT_POLICY, scratch=scratch, graphs_dir=graphs, framework=runs)
        planners.check_policy()
        # Before the ledger is opened and anything is begun, for a port may be in use.
        sockets = until_it_ends.enter_context(bound(host, port)) if socket is None else None
        layer = ObservedLayer(is_on=feedback)
        controller = Controller(state, planners, whole_hosts=sharing == "hosts", lease_s=lease_s, seed=seed, factors=layer)
        hold(state)
        service = Service(
            controller,
            state,
            asked,
            resync_s=resync_s,
            max_age_s=max_age_s,
            layer=layer,
            keep_days=keep_days or None,
            pricing_limit_s=pricing_limit_s,
        )
        if kueue_check is not None:
            from ....live.actuators.kueue_check import KueueCheck

            answers = KueueCheck(kueue_check, service)
            service.also_runs(lambda: answers.keep_answering(resync_s))
        app = build_app(service, allowed)
        config = uvicorn.Config(
            app,
            **limits(),
            host=host,
            port=port,
            uds=None if socket is None else str(socket),
            log_level="warning",
            access_log=False,
            server_header=False,
            ssl_certfile=None if tls_cert is None else str(tls_cert),
            ssl_keyfile=None if tls_key is None else str(tls_key),
            timeout_graceful_shutdown=5,
        )
        server = ServiceServer(config, service, lambda where: _announce(where, service, state))
        try:
            server.run(sockets)
        except SystemExit:  # so it leaves where it could not start, and has told why
            server.started = False
    if not server.started:
        raise typer.Exit(2)


def make_token(
    file: Annotated[Path, typer.Option(metavar="FILE", help="File of tokens, to which it is added.")],
    scope: Annotated[
        str, typer.Option(metavar="SCOPE", help="read: look; decide: ask for devices too; admin: close hosts too.")
    ] = "decide",
    owner: Annotated[str, typer.Option(metavar="NAME", help="Whose it is, for people.")] = "",
    days: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=36500, help="Until it expires; by default it never does.")
    ] = None,
) -> None:
    """Make a token for `meshwright serve`: it is printed once, and its SHA-256 goes into the file.

    Delete its line to revoke it: a service that runs reads the file again when it changes.
    """
    from datetime import UTC, datetime, timedelta

    from .... import files
    from ....errors import ConfigError
    from ....live.web.access import SCOPES, new_token, read_tokens

    wanted = next((one for one in SCOPES if one == scope), None)
    if wanted is None:
        raise ConfigError("no such scope", field="--scope", value=scope, choices=SCOPES)
    if any(not letter.isprintable() for letter in owner):
        raise ConfigError("must be one line", field="--owner", value=owner)
    output.check_file("--file", file, is_update=True)
    before = ""
    if file.exists():
        read_tokens(file)
        before = files.read_text(file)
    token, line = new_token(wanted, owner, None if days is None else datetime.now(UTC) + timedelta(days=days))
    files.write_text(file, before + ("" if not before or before.endswith("\n") else "\n") + line + "\n")
    file.chmod(0o600)
    typer.echo(token)


def hold(state: Path) -> None:
    """Keep other services off a ledger until this process ends; commands may go on to change it.

    Raises:
        InputFileError: another one serves it.
    """
    from ....errors import InputFileError

    held = os.open(state, os.O_RDONLY)  # never closed: that would drop SQLite's own locks on the file
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InputFileError("another service serves this ledger; stop it first", field="--state", value=str(state)) from None


def _announce(where: str, service: Service, state: Path) -> None:
    """Say where it listens, for which cluster, and what its source said."""
    gc.freeze()  # what is loaded stays: no collection goes through it while answers wait
    cluster = service.cluster
    told = f"{cluster.name}, {counted(cluster.num_devices, 'device')}; {service.controller.planners.policy}; {state}"
    typer.echo(f"listening on {where}  ({told})")
    for status in service.statuses:
        typer.echo(f"{status.name}: listed" if status.num_listings else f"{status.name}: {status.problem}")
