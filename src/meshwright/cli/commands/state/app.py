"""``meshwright state``: what a cluster is doing now, kept in a file that ``plan --state`` reads."""

from __future__ import annotations

import typer

from . import changes, retention, sources

state = typer.Typer(
    name="state",
    help="Keep what a cluster is doing now: which job holds which device, and which hosts take no jobs.",
    no_args_is_help=True,
)


state.command("show", short_help="Print who holds which devices.")(changes.show_state)
state.command("add", short_help="A planned job holds its devices from now on.")(changes.add_plan)
state.command("remove", short_help="A job holds nothing any more.")(changes.remove_job)
state.command("drain", short_help="A host takes no new jobs.")(changes.drain_host)
state.command("resume", short_help="A host takes jobs again.")(changes.resume_host)
state.command("prune", short_help="Give up what of a ledger is too old.")(retention.prune_ledger)
state.command("repair", short_help="Keep what is whole of a damaged ledger.")(retention.repair_ledger)
state.command("from-slurm", short_help="Read who holds what from Slurm.")(sources.from_slurm)
state.command("from-kubernetes", short_help="Read who holds what from Kubernetes.")(sources.from_kubernetes)
state.command("from-ray", short_help="Read who holds what from Ray.")(sources.from_ray)
