"""The commands and their options; each imports what it needs when it runs, so that ``--help`` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .validating import validate

app = typer.Typer(
    name="meshwright",
    help="Decide how a distributed training job is cut, on which devices and in which rank order it runs.",
    epilog="Exit status: 0 done; 1 a check that was asked for failed; 2 the input is wrong, told in one line.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(validate, short_help="Hold our figures against figures from elsewhere.")

JsonFile = Annotated[str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")]
GraphsDir = Annotated[
    Path | None, typer.Option("--graphs", metavar="DIR", help="Add the profiles DIR/NAME/graph.txt to the jobs, by NAME.")
]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the YAML; as often as needed.")
]


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


@app.command(short_help="Train a policy from a config into a run folder.")
def train(
    config: Annotated[
        str | None, typer.Argument(metavar="CONFIG", help="YAML of the run, or preset:NAME; left out with --resume.")
    ] = None,
    changes: Changes = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on from a run folder's last checkpoint.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Run folder; runs/NAME by default.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run folder.")] = False,
    graphs: GraphsDir = None,
    json_file: JsonFile = None,
) -> None:
    """Train a policy from a config into a run folder, or go on training one."""
    from . import training

    training.run(config, changes or [], resume, out, overwrite, graphs, json_file)


@app.command(short_help="Compare policies on a benchmark, with 95 % intervals.")
def evaluate(
    policies: Annotated[
        list[str] | None,
        typer.Argument(metavar="POLICY", help="Compared beside those that the benchmark names."),
    ] = None,
    benchmark: Annotated[
        str, typer.Option(metavar="NAME", help="preset:NAME, the bare name of a preset, or a path to YAML.")
    ] = "quickstart",
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help="Test episodes, 1 to 100; by default as the benchmark says.")
    ] = None,
    jobs: Annotated[int, typer.Option(metavar="N", help="Episodes played at a time; results do not depend on it.")] = 1,
    changes: Changes = None,
    graphs: GraphsDir = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write results, report and the plans of one episode there.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Compare policies on a benchmark, with paired seeds and 95 % intervals.

    A policy is a run folder, a policy.pt, shipped:NAME, python:MODULE:NAME, or one of the baselines random, max, min,
    cheapest-feasible, fastest-feasible, fixed-K and best-fixed, each with an optional @PLACEMENT, as in min@aligned.
    """
    from . import evaluating

    evaluating.run(policies or [], benchmark, seeds, jobs, changes or [], graphs, out, json_file)


@app.command(short_help="Choose a plan for one job on an empty cluster, and say why.")
def plan(
    job: Annotated[
        str, typer.Option(metavar="JOB", help="zoo:NAME, a NAME of --graphs, or a path: graph.txt, JSON, config.json.")
    ],
    cluster: Annotated[str, typer.Option(metavar="CLUSTER", help="preset:NAME or a path to YAML.")],
    policy: Annotated[
        str | None,
        typer.Option(metavar="POLICY", help="Who chooses; by default fastest-feasible, with a deadline cheapest-feasible."),
    ] = None,
    steps: Annotated[int, typer.Option(metavar="N", help="Training steps of the job.")] = 10_000,
    deadline_s: Annotated[float | None, typer.Option("--deadline-s", metavar="SECONDS", help="Allowed completion time.")] = None,
    max_degree: Annotated[int, typer.Option(metavar="N", help="Most ranks that the job may be cut into.")] = 16,
    graphs: GraphsDir = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one step as a Chrome trace, which Perfetto opens.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Choose a plan for one job on an empty cluster, with its predicted times and why."""
    from . import planning

    planning.run(job, cluster, policy, steps, deadline_s, max_degree, graphs, trace, json_file)


@app.command(short_help="Write a plan in the form of a scheduler or launcher.")
def export(
    source: Annotated[
        Path | None, typer.Argument(metavar="PLAN|RUN", help="A plan's JSON file, or a folder of evaluate --out.")
    ] = None,
    target: Annotated[str | None, typer.Option("--format", metavar="NAME", help="slurm, kubernetes or torchrun.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="name, image, command, script or master_port; as often as needed."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to write; one of an earlier export is replaced.")
    ] = None,
    list_targets: Annotated[bool, typer.Option("--list", help="List the formats: what each guarantees, and what not.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Write a plan in the form of a scheduler or launcher."""
    from . import exporting

    exporting.run(source, target, changes or [], out, list_targets, json_file)
