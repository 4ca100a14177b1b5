"""Options that several commands have."""

from pathlib import Path
from typing import Annotated, Any

import typer

from . import output


def option(metavar: str, text: str, *names: str, **more: Any) -> Any:
    """Return an option: the name of its value in the help, what it is, and its spellings if not the parameter's name.

    Args:
        metavar, text, names: of it.
        more: of `typer.Option`.
    """
    return typer.Option(*names, metavar=metavar, help=text, **more)


def file_option(text: str, name: str, **more: Any) -> Any:
    """Return an option that names a file to write; it is refused before any work where it cannot be (`output.check_file`)."""

    def checked(path: Any) -> Any:
        output.check_file(name, path)
        return path

    return option("FILE", text, name, callback=checked, **more)


def argument(metavar: str, text: str) -> Any:
    """Return an argument, as `option`."""
    return typer.Argument(metavar=metavar, help=text)


JsonFile = Annotated[str | None, file_option("Write the result as JSON; - for standard output.", "--json")]
Job = Annotated[str, option("JOB", "zoo:NAME, or a path: config.json, graph.txt or JSON.", "--job")]
ClusterName = Annotated[str, option("CLUSTER", "preset:NAME or a path to YAML.", "--cluster")]
GraphsDir = Annotated[
    Path | None, option("DIR", "Add the profiles DIR/NAME/graph.txt to the jobs, by NAME.", "--graphs", hidden=True)
]
ForFramework = Annotated[
    str | None, option("NAME", "Only layouts that megatron, torchtitan, deepspeed or fsdp2 runs.", "--for", hidden=True)
]
TrainingSteps = Annotated[int, option("N", "Training steps of the job.", "--steps")]
DeadlineS = Annotated[float | None, option("SECONDS", "Allowed completion time.", "--deadline-s")]
Batch = Annotated[int | None, option("N", "Sequences, or samples, of a step over all ranks.", "--batch")]
SequenceLength = Annotated[
    int | None, option("N", "Tokens of a sequence; else the model's, 2,048 at most.", "--sequence-length", hidden=True)
]
TrainingStrategies = Annotated[
    str | None,
    option("KEYS", "Also price strategies, as 'kind=gossip,topology=aer', | between, or a YAML.", "--training", hidden=True),
]
KeyChanges = Annotated[
    list[str] | None, option("KEY=VALUE", "Set a further key, listed by --help-all; may be repeated.", "--set")
]
CostChanges = Annotated[
    list[str] | None,
    option("KEY=VALUE|YAML", "Set a key of the cost model, as routing=ecmp, or a further one; repeatable.", "--set"),
]
Changes = Annotated[list[str] | None, option("KEY=VALUE", "Change a key of the YAML; may be repeated.", "--set")]
