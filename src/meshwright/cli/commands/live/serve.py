"""``meshwright serve`` and ``meshwright serve token``."""

from __future__ import annotations

import fcntl
import gc
import os
import re
import sys
import tempfile
from contextlib import ExitStack
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ....errors import ConfigError, InputFileError
from ....quantities import counted
from ... import output
from ...help import group, takes_keys
from ...keys import own_keys
from ...options import ForFramework, KeyChanges, option

if TYPE_CHECKING:
    from ....live.service import Service


def write_hooks(
    out: Annotated[Path, option("DIR", "Folder to write; one of an earlier call is replaced.")],
    server: Annotated[str, option("URL", "Where the service listens: http://HOST:PORT or unix:PATH.")],
    header_file: Annotated[
        str | None, option("PATH", "A file with the line 'Authorization: Bearer TOKEN', for a service with tokens.")
    ] = None,
) -> None:
    """Write the scripts by which Slurm asks a service for hosts and reports jobs that start and end.

    Examples:
      meshwright serve hooks --out hooks --server http://127.0.0.1:8765
    """
    from ....export import write
    from ....export.writer import check_replaceable
    from ....live.actuators.slurm_hook_files import hook_files

    output.check_folder("--out", out, is_replaced=True)
    check_replaceable(out)
    contents = hook_files(str(out.absolute()), server=server, header_file=header_file)
    write(contents, out)
    console = output.console()
    console.print(str(contents["README"]), soft_wrap=True, end="")
    output.print_written(console, out)


EXTRA = "needs the extra [serve]: pip install 'meshwright[serve]'"


def listening(spec: str) -> tuple[str, int, Path | None]:
    """Return the host and port, or the socket file, on which a service listens, as ``--listen`` spells it.

    Raises:
        ConfigError: none of ``HOST:PORT``, ``HOST``, ``:PORT`` and ``unix:PATH``, or no such port.
    """
    from ....live.sources.connections import UNIX

    host, port = "127.0.0.1", 8765
    if spec.startswith(UNIX):
        return host, port, Path(spec.removeprefix(UNIX))
    match = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(?::([0-9]{1,5}))?", spec)
    if match is None or int(match[2] or 0) > 65_535:
        raise ConfigError("must be HOST:PORT, HOST, :PORT or unix:PATH, ports up to 65535", field="--listen", value=spec)
    return match[1].strip("[]") or host, port if match[2] is None else int(match[2]), None


@takes_keys(("ServeKeys", ""))
def serve_cluster(
    context: typer.Context,
    cluster: Annotated[str | None, option("CLUSTER", "preset:NAME or a path to YAML.")] = None,
    state: Annotated[Path | None, option("FILE", "Ledger, FILE.db; made where absent.")] = None,
    policy: Annotated[str | None, option("POLICY", "menu:RULE, shipped:NAME, a run folder or a rule.")] = None,
    framework: ForFramework = None,
    source: Annotated[
        str | None,
        option("NAME", "Lists jobs and hosts: slurm, slurm:json, slurm:URL of slurmrestd, kubernetes, ray or file:PATH."),
    ] = None,
    listen: Annotated[
        str, option("ADDRESS", "HOST:PORT (port 0: any free one) or unix:PATH; beyond loopback with tokens.")
    ] = "127.0.0.1:8765",
    token_file: Annotated[Path | None, option("FILE", "Tokens, as `meshwright serve token` writes them.")] = None,
    changes: KeyChanges = None,
) -> None:
    """Decide for the jobs of a live cluster, over HTTP, until it is stopped.

    Examples:
      meshwright serve --cluster mine.yaml --state now.db --source slurm
      meshwright serve --cluster mine.yaml --state now.db --set lease_s=300
    """
    if context.invoked_subcommand is not None:
        return
    if cluster is None or state is None:
        raise ConfigError("the option is missing", field="--cluster" if cluster is None else "--state")
    from ....live.keeping import LEDGER_ENDINGS
    from ....live.sources.source import source as source_of
    from ...key_models import ServeKeys

    keys, (host, port, socket) = own_keys(ServeKeys, changes), listening(listen)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # one decision is too little work for more than one thread
    sys.setswitchinterval(0.0005)  # answers do not wait long for a decision that is being made
    try:
        import uvicorn

        from ....live.web.access import access
        from ....live.web.app import build_app
        from ....live.web.server import ServiceServer, bound, bound_file, limits
    except ModuleNotFoundError as error:
        raise InputFileError(EXTRA, field=str(error.name)) from None

    if state.suffix not in LEDGER_ENDINGS:
        raise InputFileError("a service keeps its state in a ledger, which ends in .db", field="--state", value=str(state))
    tls_cert, tls_key, kueue_check = keys.tls_cert, keys.tls_key, keys.kueue_check
    if (tls_cert is None) != (tls_key is None):
        raise ConfigError("go together", field="--set tls_cert and tls_key")
    if kueue_check is not None and source != "kubernetes":
        raise ConfigError("goes with --source kubernetes", field="--set kueue_check", value=kueue_check)
    if kueue_check is not None and re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", kueue_check) is None:
        raise ConfigError("is no name of an object of Kubernetes", field="--set kueue_check", value=kueue_check)
    for key, file in (("tls_cert", tls_cert), ("tls_key", tls_key)):
        if file is not None and not file.is_file():
            raise InputFileError("no such file", field=f"--set {key}", value=str(file))
    request = [] if source is None else [source_of(source, slurm_token_file=keys.slurm_token_file)]
    output.check_file("--state", state, is_update=True)
    allowed = access(None if socket is not None else host, token_file, keys.names)

    from .... import temporaries
    from ....clusters import load_cluster
    from ....live.controller import Controller
    from ....live.deciding import DEFAULT_POLICY, Planners
    from ....live.feedback.calibration import ObservedLayer
    from ....live.service import Service
    from ....plans.frameworks.table import framework as framework_of

    with ExitStack() as until_it_ends:
        temporaries.remove_stale(folder := Path(tempfile.gettempdir()))
        scratch = until_it_ends.enter_context(temporaries.new_folder_near(folder / "meshwright-serve")) / temporaries.NEW
        runs = None if framework is None else framework_of(framework).name
        planners = Planners(
            load_cluster(cluster), policy or DEFAULT_POLICY, scratch=scratch, graphs_dir=keys.graphs, framework=runs
        )
        planners.check_policy()
        # Before the ledger is opened and anything is begun, for a port or file may be in use.
        sockets = until_it_ends.enter_context(bound(host, port) if socket is None else bound_file(socket))
        layer = ObservedLayer(is_on=keys.feedback)
        controller = Controller(
            state, planners, whole_hosts=keys.sharing == "hosts", lease_s=keys.lease_s, seed=keys.seed, factors=layer
        )
        hold(state)
        service = Service(
            controller,
            state,
            request,
            resync_s=keys.resync_s,
            max_age_s=keys.max_age_s,
            layer=layer,
            keep_days=keys.keep_days or None,
            pricing_limit_s=keys.pricing_limit_s,
        )
        if kueue_check is not None:
            from ....live.actuators.kueue_check import KueueCheck

            answers = KueueCheck(kueue_check, service)
            service.also_runs(lambda: answers.keep_answering(keys.resync_s))
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
        except SystemExit:  # so it leaves where it could not start, and has said why
            server.started = False
    if not server.started:
        raise typer.Exit(2)


def make_token(
    file: Annotated[Path, option("FILE", "File of tokens, to which it is added.")],
    scope: Annotated[str, option("SCOPE", "read: look; decide: also ask for devices; admin: also close hosts.")] = "decide",
    owner: Annotated[str, option("NAME", "Whose it is, for people.")] = "",
    days: Annotated[int | None, option("N", "Until it expires; by default it never does.", min=1, max=36500)] = None,
) -> None:
    """Make a token for a service: it is printed once, and its SHA-256 goes into the file.

    Delete its line to revoke it: a running service reads the file again when it changes.

    Examples:
      meshwright serve token --file tokens --scope read --owner ann --days 30
    """
    from datetime import UTC, datetime, timedelta

    from .... import files
    from ....live.web.access import SCOPES, new_token, read_tokens

    wanted_scope = next((one for one in SCOPES if one == scope), None)
    if wanted_scope is None:
        raise ConfigError("no such scope", field="--scope", value=scope, choices=SCOPES)
    if any(not letter.isprintable() for letter in owner):
        raise ConfigError("must be one line", field="--owner", value=owner)
    output.check_file("--file", file, is_update=True)
    before = ""
    if file.exists():
        read_tokens(file)
        before = files.read_text(file)
    token, line = new_token(wanted_scope, owner, None if days is None else datetime.now(UTC) + timedelta(days=days))
    files.write_text(file, before + ("" if not before or before.endswith("\n") else "\n") + line + "\n")
    file.chmod(0o600)
    typer.echo(token)


def hold(state: Path) -> None:
    """Keep other services off a ledger until this process ends; commands may go on to change it.

    Raises:
        InputFileError: another one serves it.
    """
    held = os.open(state, os.O_RDONLY)  # never closed: that would drop SQLite's own locks on the file
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise InputFileError("another service serves this ledger; stop it first", field="--state", value=str(state)) from None


def _announce(where: str, service: Service, state: Path) -> None:
    """Say where it listens, for which cluster, and what its source said."""
    gc.freeze()  # what is loaded stays: no collection goes through it while answers wait
    cluster = service.cluster
    summary = f"{cluster.name}, {counted(cluster.num_devices, 'device')}; {service.controller.planners.policy}; {state}"
    typer.echo(f"listening on {where}  ({summary})")
    for status in service.statuses:
        typer.echo(f"{status.name}: listed" if status.num_listings else f"{status.name}: {status.problem}")


serve = group(
    "serve",
    cleandoc(serve_cluster.__doc__ or ""),
    {
        "token": (make_token, "Make a token for a service."),
        "hooks": (write_hooks, "Write the scripts by which Slurm asks a service."),
    },
    invoke_without_command=True,
    no_args_is_help=False,
    callback=serve_cluster,
)
