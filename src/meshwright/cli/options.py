"""Options that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

JsonFile = Annotated[str | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON; - for standard output.")]
Job = Annotated[str, typer.Option("--job", metavar="JOB", help="zoo:NAME, or a path: config.json, graph.txt or JSON.")]
ClusterName = Annotated[str, typer.Option("--cluster", metavar="CLUSTER", help="preset:NAME or a path to YAML.")]
GraphsDir = Annotated[
    Path | None,
    typer.Option("--graphs", metavar="DIR", help="Add the profiles DIR/NAME/graph.txt to the jobs, by NAME.", hidden=True),
]
ForFramework = Annotated[
    str | None,
    typer.Option("--for", metavar="NAME", help="Only layouts that megatron, torchtitan, deepspeed or fsdp2 runs.", hidden=True),
]
TrainingSteps = Annotated[int, typer.Option("--steps", metavar="N", help="Training steps of the job.")]
DeadlineS = Annotated[float | None, typer.Option("--deadline-s", metavar="SECONDS", help="Allowed completion time.")]
Batch = Annotated[int | None, typer.Option("--batch", metavar="N", help="Sequences, or samples, of a step over all ranks.")]
SequenceLength = Annotated[
    int | None,
    typer.Option("--sequence-length", metavar="N", help="Tokens of a sequence; else the model's, 2,048 at most.", hidden=True),
]
TrainingStrategies = Annotated[
    str | None,
    typer.Option(
        "--training",
        metavar="KEYS",
        help="Also price strategies, as 'kind=gossip,topology=aer', | between, or a YAML.",
        hidden=True,
    ),
]
KeyChanges = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set a further key, listed by --help-all; may be repeated."),
]
CostChanges = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE|YAML", help="Set a key of the cost model, as routing=ecmp, or a further one; repeatable."
    ),
]
Changes = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a key of the YAML; may be repeated.")
]
