"""All commands; each file declares its options and imports what it needs when it runs, so that ``--help`` is quick."""

from __future__ import annotations

from typing import Annotated

import typer

from .commands import export, profile, summarise, verify_export
from .commands import list as listing
from .commands.calibrate.app import calibrate
from .commands.cluster import cluster
from .commands.evaluation import evaluate
from .commands.live import decisions, feedback, replay, serve, slurm_hooks, submit
from .commands.planning import arrange, compare, estimate, place, plan
from .commands.state.app import state
from .commands.training import sweep, train
from .commands.validate.app import validate

app = typer.Typer(
    name="meshwright",
    help="Decide how a distributed training job is cut, on which devices and in which rank order it runs.",
    epilog=(
        "Exit status: 0 done; 1 a check failed that was asked for, or nothing to learn; 2 wrong input, told in one line; "
        "130 interrupted by Ctrl-C; 141 whoever read the output has stopped reading; 143 ended by SIGTERM."
    ),
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(validate, short_help="Hold our figures against figures from elsewhere.")
app.add_typer(state, short_help="Keep what a cluster is doing now, for plan --state.")
app.add_typer(calibrate, short_help="Fit constants of the cost model to measurements.")
app.add_typer(cluster, short_help="Make the file of a cluster from the wiring of its machines.")


@app.callback(invoke_without_command=True)
def front_page(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Decide how a distributed training job is cut, on which devices and in which rank order it runs."""
    if version:
        from .. import __version__

        typer.echo(f"meshwright {__version__}")
        raise typer.Exit


app.command("train", short_help="Train a policy from a config into a run folder.")(train.train_policy)
app.command("sweep", short_help="Train with other values of some keys, and keep the best config.")(sweep.sweep_config)
app.command("evaluate", short_help="Compare policies on a benchmark, with 95 % intervals.")(evaluate.evaluate_policies)
app.command("summarise", short_help="Put several evaluations and training runs on one page.")(summarise.summarise_results)
app.command("plan", short_help="Choose a plan for one job on an empty cluster, and say why.")(plan.plan_job)
app.command("place", short_help="Put each op of a job on a device, by planners of graphs.")(place.place_job)
app.command("profile", short_help="Trace a model of PyTorch into a job graph.")(profile.profile_model)
app.command("arrange", short_help="Choose the devices of stages and replicas on an uneven network.")(arrange.arrange_devices)
app.command("estimate", short_help="Price one parallel layout of a job: time, utilisation, memory.")(estimate.estimate_layout)
app.command("compare", short_help="Put layouts of one job side by side.")(compare.compare_layouts)
app.command("list", short_help="List every preset, policy, environment, format or device.")(listing.list_names)
app.command("export", short_help="Write a plan in the form of a scheduler or launcher.")(export.export_plan)
app.command("verify-export", short_help="Hold what a launched job printed against its plan.")(verify_export.verify_export)
app.command("serve", short_help="Decide for the jobs of a live cluster, over HTTP.")(serve.serve_cluster)
app.command("token", short_help="Make a token for serve.")(serve.make_token)
app.command("submit", short_help="Decide for a job beside others, export its plan, hand it to Slurm.")(submit.submit_job)
app.command("decisions", short_help="List decisions and what became of them.")(decisions.show_decisions)
app.command("slurm-hooks", short_help="Write the scripts by which Slurm asks a service.")(slurm_hooks.write_hooks)
app.command("observe", short_help="Keep how long the steps of a planned job took.")(feedback.observe_steps)
app.command("calibration", short_help="What measured steps say of the predictions.")(feedback.show_calibration)
app.command("replay", short_help="What other policies would have made of the past.")(replay.replay_span)
