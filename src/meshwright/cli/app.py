"""The commands and their options; each imports what it needs when it runs, so that ``--help`` is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .commands.calibrate.app import calibrate
from .commands.validate.app import validate

app = typer.Typer(
    name="meshwright",
    help="Decide how a distributed training job is cut, on which devices and in which rank order it runs.",
    epilog="Exit status: 0 done; 1 a check failed that was asked for, or nothing to learn; 2 wrong input, told in one line.",
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(validate, short_help="Hold our figures against figures from elsewhere.")
app.add_typer(calibrate, short_help="Fit constants of the cost model to measurements.")

JsonFile = Annotated[str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")]
GraphsDir = Annotated[
    Path | None, typer.Option("--graphs", metavar="DIR", help="Add the profiles DIR/NAME/graph.txt to the jobs, by NAME.")
]
KeepInputOps = Annotated[
    bool, typer.Option("--keep-input-ops", help="Count the Input ops of a profile, which time the data loader.")
]
ProfileBatch = Annotated[
    int | None,
    typer.Option(metavar="N", help="Samples for which the times of a profile hold; by default the batch of a step."),
]
CollectivesTable = Annotated[
    str | None,
    typer.Option(metavar="TABLE", help="Measured collectives: a file of calibrate collectives, or a100, h100, v100."),
]
CostsFile = Annotated[
    Path | None,
    typer.Option("--costs", metavar="FILE", help="Choices of the cost model: YAML of the keys of a scenario's costs."),
]
CostChanges = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a choice of the cost model, as routing=ecmp; as often as needed."),
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
    from .commands import train as training

    training.train_policy(config, changes or [], resume, out, overwrite, graphs, json_file)


@app.command(short_help="Compare policies on a benchmark, with 95 % intervals.")
def evaluate(
    policies: Annotated[
        list[str] | None,
        typer.Argument(metavar="POLICY", help="Compared beside those that the benchmark names."),
    ] = None,
    benchmark: Annotated[
        str,
        typer.Option(metavar="NAME", help="preset:NAME, a preset's bare name, or a path to YAML; of a family NAME/VARIANT too."),
    ] = "quickstart",
    seeds: Annotated[
        int | None, typer.Option(metavar="N", help="Test episodes, 1 to 100; by default as the benchmark says.")
    ] = None,
    jobs: Annotated[int, typer.Option(metavar="N", help="Episodes played at a time; results do not depend on it.")] = 1,
    changes: Changes = None,
    references: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Clairvoyant references to show too: linear-programme, clairvoyant-beam, or both."),
    ] = None,
    graphs: GraphsDir = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The CSV file of the trace that the jobs of the benchmark follow.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write results, report and the plans of one episode there.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Compare policies on a benchmark, with paired seeds and 95 % intervals.

    A policy is a run folder, a policy.pt, shipped:NAME, python:MODULE:NAME, or one of the baselines random, max, min,
    cheapest-feasible, fastest-feasible, fixed-K and best-fixed, each with an optional @PLACEMENT, as in min@aligned.

    Of a family of benchmarks, such as load-sweep, every variant is evaluated, and a page shows them side by side.
    """
    from .commands import evaluate as evaluating

    evaluating.evaluate_policies(policies or [], benchmark, seeds, jobs, changes or [], graphs, trace, out, json_file, references)


@app.command(short_help="Put several evaluations and training runs on one page.")
def summarise(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What lies above the folders of evaluate --out and train.")],
    against: Annotated[
        str | None, typer.Option(metavar="POLICY", help="Make an ablation table: every learned policy against this one.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Write summary.html and summary.md there.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Put several evaluations and training runs on one page, without playing anything again.

    A table of all policies on all benchmarks, load curves where one cluster was evaluated at several loads, learning curves
    of training runs that differ in their seed, and an ablation table.
    """
    from .commands import summarise as summarising

    summarising.summarise_results(folder, against, out, json_file)


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
    max_degree: Annotated[
        int | None, typer.Option(metavar="N", help="Most ranks that the job may be cut into; 16 by default.")
    ] = None,
    graphs: GraphsDir = None,
    keep_input_ops: KeepInputOps = False,
    profile_batch: ProfileBatch = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write one step as a Chrome trace, which Perfetto opens.")
    ] = None,
    collectives: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Algorithm of all collectives: of layouts calibrated by default, else auto."),
    ] = None,
    collectives_table: CollectivesTable = None,
    overlap_slowdown: Annotated[
        float | None, typer.Option(metavar="X", help="Factor on computing and sending at once; of layouts 1.126 by default.")
    ] = None,
    costs: CostsFile = None,
    changes: CostChanges = None,
    search: Annotated[
        bool, typer.Option("--search", help="Search all parallel layouts; the options below are for this.")
    ] = False,
    batch: Annotated[int | None, typer.Option(metavar="N", help="Sequences, or samples, of a step over all ranks.")] = None,
    sequence_length: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens of a sequence; by default the model's own, 2,048 at most.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option(metavar="N", help="Devices to use, as 64 or 64,128 or 64-512; all by default.")
    ] = None,
    keep: Annotated[
        str | None, typer.Option(metavar="KEYS", help="Keep keys of the layout, as 'tp=4|8,schedule=1f1b|interleaved'.")
    ] = None,
    order: Annotated[
        str | None, typer.Option(metavar="AXES", help="The only rank order to try, as tp-cp-dp-pp; all by default.")
    ] = None,
    top: Annotated[int | None, typer.Option(metavar="N", help="Layouts to rank; 10 by default.")] = None,
    whole: Annotated[
        Path | None, typer.Option("--all", metavar="FILE", help="Rank every layout that fits, and write all as .csv or .json.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw time over memory, the Pareto front marked, as .svg.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Choose a plan for one job on an empty cluster, with its predicted times and why.

    By a policy that cuts the job op by op, or with --search among all parallel layouts: of a transformer, or of any other job
    by data parallelism and a pipeline of its ops.
    """
    from ..errors import MeshwrightError

    by_policy: dict[str, object] = {
        "--policy": policy,
        "--deadline-s": deadline_s,
        "--max-degree": max_degree,
        "--trace": trace,
    }
    by_search: dict[str, object] = {
        "--batch": batch,
        "--sequence-length": sequence_length,
        "--devices": devices,
        "--keep": keep,
        "--order": order,
    }
    by_search |= {"--top": top, "--all": whole, "--plot": plot}
    for option, value in (by_policy if search else by_search).items():
        if value is not None:
            raise MeshwrightError("does not go with --search" if search else "goes with --search only", field=option)
    from .cost_options import CostOptions
    from .job_options import JobOptions

    chosen = CostOptions(costs, tuple(changes or ()), collectives, collectives_table, overlap_slowdown)
    read = JobOptions(graphs, keep_input_ops, profile_batch)
    if not search:
        from .commands import plan as planning

        most = 16 if max_degree is None else max_degree
        planning.plan_job(job, cluster, policy, steps, deadline_s, most, read, chosen, trace, json_file)
        return
    from .commands import search as searching

    rows = 10 if top is None else top
    asked = searching.SearchRequest(batch, sequence_length, devices, keep or "", order, read, chosen, rows, whole, plot)
    searching.search_plans(job, cluster, steps, asked, json_file)


@app.command(short_help="Price one parallel layout of a job: time, utilisation, memory.")
def estimate(
    job: Annotated[
        str, typer.Option(metavar="JOB", help="zoo:NAME, a NAME of --graphs, or a path: config.json, graph.txt, JSON.")
    ],
    cluster: Annotated[str, typer.Option(metavar="CLUSTER", help="preset:NAME or a path to YAML.")],
    layout: Annotated[
        str,
        typer.Option(
            metavar="KEYS",
            help="As tp=8,pp=8,dp=2,micro_batch=1,global_batch=128; absent degrees are 1, switches off, but overlap_dp is on.",
        ),
    ],
    sequence_length: Annotated[
        int | None, typer.Option(metavar="N", help="Tokens of a sequence; by default the model's own, 2,048 at most.")
    ] = None,
    graphs: GraphsDir = None,
    keep_input_ops: KeepInputOps = False,
    profile_batch: ProfileBatch = None,
    overlap_slowdown: Annotated[
        float | None,
        typer.Option(metavar="X", help="Factor on computing and sending while both go on at once; 1 is none, 1.126 the default."),
    ] = None,
    collectives: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Algorithm of all collectives; calibrated by default, auto is the fastest formula."),
    ] = None,
    collectives_table: CollectivesTable = None,
    costs: CostsFile = None,
    changes: CostChanges = None,
    explain: Annotated[bool, typer.Option("--explain", help="Also tell what each co-design switch would change.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Price one parallel layout of a job: step time, throughput, utilisation, what it is made of, memory.

    A transformer is cut by all keys of a layout; any other job by dp and pp, its ops in stages whose busiest one is as little
    busy as can be.
    """
    from .commands import estimate as estimating
    from .cost_options import CostOptions
    from .job_options import JobOptions

    chosen = CostOptions(costs, tuple(changes or ()), collectives, collectives_table, overlap_slowdown)
    read = JobOptions(graphs, keep_input_ops, profile_batch)
    estimating.estimate_layout(job, cluster, layout, sequence_length, read, chosen, explain, json_file)


@app.command(short_help="Write a plan in the form of a scheduler or launcher.")
def export(
    source: Annotated[
        Path | None, typer.Argument(metavar="PLAN|RUN", help="A plan's JSON file, or a folder of evaluate --out.")
    ] = None,
    target: Annotated[str | None, typer.Option("--format", metavar="NAME", help="One of those that --list names.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="What the plan does not say, as script=train.py; as often as needed."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder to write; one of an earlier export is replaced.")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="CLUSTER", help="Refuse plans for another cluster than this: preset:NAME or a path to YAML."),
    ] = None,
    list_targets: Annotated[bool, typer.Option("--list", help="List the formats: what each guarantees, and what not.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Write a plan in the form of a scheduler or launcher."""
    from .commands import export as exporting

    exporting.export_plan(source, target, changes or [], out, cluster, list_targets, json_file)


@app.command(name="verify-export", short_help="Hold what a launched job printed against its plan.")
def verify_export(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="The plan's JSON file.")],
    logs: Annotated[list[str], typer.Argument(metavar="LOG...", help="What the job printed; - for standard input.")],
    target: Annotated[
        str | None, typer.Option("--format", metavar="NAME", help="The format that it was exported to; see export --list.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Hold the places that a launched job's ranks printed against its plan; exit 1 where one is elsewhere.

    Export with --set probe=true, launch, and keep what the ranks print. The first rank that is elsewhere is named.
    """
    from .commands import verify_export as verifying

    verifying.verify_export(plan, logs, target, json_file)
