"""All commands; each file declares its options and imports what it needs when it runs, so that ``--help`` is quick."""

from __future__ import annotations

from typing import Annotated

import typer

from .commands import evaluate, export, profile, verify_export
from .commands import list as listing
from .commands.cluster import cluster
from .commands.dev import dev
from .commands.live import decisions, feedback, replay, submit
from .commands.live.serve import serve
from .commands.planning import compare, estimate, plan
from .commands.state import state
from .commands.training import train
from .help import CommandGroup, add_commands, group

ABOUT = """Decide how a distributed training job is cut, on which devices and in which rank order it runs.

Examples:
  meshwright plan --search --job zoo:gpt2-xl --cluster preset:dgx-a100-8x8
  meshwright evaluate shipped:quickstart
  meshwright COMMAND --help
"""

app = typer.Typer(
    name="meshwright",
    cls=CommandGroup,
    help=ABOUT,
    epilog=(
        "Exit status: 0 done; 1 a requested check failed, or nothing to learn; 2 wrong input, with one line; 130 interrupted by "
        "Ctrl-C; 141 the reader of the output stopped; 143 ended by SIGTERM."
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True, help=ABOUT)
def front_page(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """See `ABOUT`."""
    if version:
        from .. import __version__

        typer.echo(f"meshwright {__version__}")
        raise typer.Exit


history = group(
    "history",
    """Look at the decisions of a live cluster, their outcomes, and the past under other policies.

    Examples:
      meshwright history decisions --state now.db
      meshwright history observe d-1 steps.jsonl --state now.db
      meshwright history replay --state now.db --cluster a.yaml --policy menu:sjf
    """,
    {
        "decisions": (decisions.show_decisions, "List decisions and their outcomes."),
        "observe": (feedback.observe_steps, "Keep measured step times of a job."),
        "calibration": (feedback.show_calibration, "Compare observed with predicted step times."),
        "replay": (replay.replay_span, "Play the past under other policies."),
    },
)

COMMANDS = {
    "plan": (plan.plan_job, "Choose a plan for one job, and say why."),
    "estimate": (estimate.estimate_layout, "Price one parallel layout of a job."),
    "compare": (compare.compare_layouts, "Put layouts of one job side by side."),
    "export": (export.export_plan, "Write a plan for a scheduler or launcher."),
    "verify-export": (verify_export.verify_export, "Compare a launched job with its plan."),
    "train": (train.train_policy, "Train a policy from a config."),
    "evaluate": (evaluate.evaluate_policies, "Compare policies on a benchmark."),
    "serve": (serve, "Decide for a live cluster, over HTTP."),
    "submit": (submit.submit_job, "Decide for a job and hand it to Slurm."),
    "state": (state, "Keep which job holds which devices."),
    "history": (history, "Look at decisions and replay the past."),
    "profile": (profile.profile_model, "Trace a model into a job graph."),
    "cluster": (cluster, "Show a cluster, or make the file of one."),
    "list": (listing.list_names, "List presets, policies, formats and more."),
    "dev": (dev, "Validate and calibrate the cost model."),
}
add_commands(app, COMMANDS)
