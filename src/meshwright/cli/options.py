"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
ForFramework = Annotated[
    str | None, typer.Option("--for", metavar="NAME", help="Only for megatron, torchtitan, deepspeed or fsdp2.")
]
TrainingSteps = Annotated[int, typer.Option("--steps", metavar="N", help="Training steps of the job.")]
DeadlineS = Annotated[float | None, typer.Option("--deadline-s", metavar="SECONDS", help="Allowed completion time.")]
Batch = Annotated[int | None, typer.Option("--batch", metavar="N", help="Sequences, or samples, of a step over all ranks.")]
SequenceLength = Annotated[int | None, typer.Option(metavar="N", help="Tokens of a sequence; else the model's, 2,048 at most.")]
TrainingStrategies = Annotated[
    str | None,
    typer.Option(
        "--training", metavar="KEYS", help="Also price strategies, as 'kind=gossip,topology=aer', | between, or a YAML."
    ),
]
GradientCodes = Annotated[
    str | None,
    typer.Option("--compression", metavar="KEYS", help="Also price coded gradients, as 'kind=top-k,fraction=0.01|0.1'."),
]
CollectivesTable = Annotated[
    str | None,
    typer.Option(metavar="TABLE", help="Measured collectives: a file of calibrate collectives, or a100, b200, h100, h200, v100."),
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

SlurmTokenFile = Annotated[
    Path | None,
    typer.Option("--slurm-token-file", metavar="FILE", help="Of slurmrestd's token; by default SLURM_JWT's."),
]
