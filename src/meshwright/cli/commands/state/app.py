"""``meshwright state``: who holds which devices now, kept in a file that ``plan --state`` reads."""

from __future__ import annotations

from ...help import group
from . import changes, retention, sources

state = group(
    "state",
    """Keep which job holds which devices, and which hosts take no jobs.

    Examples:
      meshwright state read slurm --state now.db
      meshwright state add plan.json --state now.db
      meshwright plan --job zoo:vgg16 --cluster preset:dgx-a100-8x8 --state now.db
    """,
    {
        "show": (changes.show_state, "Print who holds which devices."),
        "read": (sources.read_source, "Read a listing of Slurm, Kubernetes or Ray."),
        "add": (changes.add_plan, "Let a planned job hold its devices."),
        "remove": (changes.remove_job, "Free the devices of a job."),
        "drain": (changes.drain_host, "Close a host for new jobs."),
        "resume": (changes.resume_host, "Open a host for jobs again."),
        "prune": (retention.prune_ledger, "Delete old records of a ledger."),
        "repair": (retention.repair_ledger, "Keep the whole records of a damaged ledger."),
    },
)
