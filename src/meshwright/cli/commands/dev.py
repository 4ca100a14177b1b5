"""``meshwright dev``: figures of the cost model compared with measurements, and its constants fitted to them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from ...errors import ConfigError
from .. import output
from ..help import group, takes_keys
from ..keys import own_keys
from ..options import JsonFile, KeyChanges, argument, file_option
from .calibrate import calibrate_kernels, measure_device
from .validate import collectives, compared, kernels, published, sharing, step_times

CommandKind = tuple[Callable[..., None], str]
"""A function of the sources, the keys and the files to write; and the class of `key_models` with the keys of its ``--set``."""


def run_kind(kinds: dict[str, CommandKind], kind: str, sources: list[str] | None, changes: list[str] | None, *to: Any) -> None:
    """Run a kind by its name; ``to`` are the files to write: of ``--out``, where the command has it, and of ``--json``.

    Raises:
        ConfigError: no such kind, or a key is wrong.
    """
    if kind not in kinds:
        raise ConfigError("no such kind", field="KIND", value=kind, choices=kinds)
    from .. import key_models

    run, model = kinds[kind]
    run(sources or [], own_keys(getattr(key_models, model), changes), *to)


def show_menu(
    benchmark: Annotated[str, argument("BENCHMARK", "Of a fleet: preset:NAME, its bare name, or a YAML.")],
) -> None:
    """Price the menu of a fleet's benchmark and print it, a layout a row; prices are kept on disk for later runs.

    Examples:
      meshwright dev menus llm-256
    """
    from ...envs.fleet.benchmark import load_fleet_benchmark
    from ...envs.fleet.menu_lines import menu_lines

    result = load_fleet_benchmark(benchmark)
    with output.progress() as bars, output.set_up(bars) as priced:
        fleet = result.build(progress=priced)
    rows = [
        [
            line["job_type"],
            str(line["entry"]),
            str(line["devices"]),
            line["layout_name"],
            f"{1000 * line['step_s']:,.1f}",
            f"{line['memory_bytes'] / 1e9:.1f}",
        ]
        for line in menu_lines(fleet)
    ]
    columns = ["job type", "entry", "devices", "layout", "step ms", "memory GB"]
    output.table(output.console(), f"Menu of {result.name} on {fleet.cluster.name}", columns, rows, numbers_from=4)


VALIDATED: dict[str, CommandKind] = {
    "flows": (compared.validate_flows, "FlowKeys"),
    "pacml": (compared.validate_pacml, "PacmlKeys"),
    "elastic": (compared.validate_elastic, "NoKeys"),
    "collectives": (collectives.validate_collectives, "HeldCollectiveKeys"),
    "step-times": (step_times.validate_step_times, "StepTimeKeys"),
    "kernels": (kernels.validate_kernels, "HeldKernelKeys"),
    "sharing": (sharing.validate_sharing, "HeldSharingKeys"),
    "placements": (published.validate_placements, "PlacementKeys"),
    "strategies": (published.validate_strategies, "StrategyKeys"),
}

CALIBRATED: dict[str, CommandKind] = {
    "collectives": (collectives.calibrate_collectives, "CollectiveKeys"),
    "kernels": (calibrate_kernels, "KernelKeys"),
    "measure": (measure_device, "MeasureKeys"),
    "sharing": (sharing.calibrate_sharing, "SharingKeys"),
}

Kinds = Annotated[str, argument("KIND", "As listed.")]
Sources = Annotated[list[str] | None, argument("SOURCE", "Files or a folder, as the kind reads them.")]


@takes_keys(*((keys, name) for name, (_, keys) in VALIDATED.items()))
def validate(kind: Kinds, sources: Sources = None, changes: KeyChanges = None, json_file: JsonFile = None) -> None:
    """Compare our figures with figures from elsewhere; exit 1 where one disagrees.

    KIND is one of:

    \b
    flows        finish times of flows by max-min fair sharing (JSON).
    pacml        figures and decision logs of the PAC-ML simulator (JSON).
    elastic      completion times of the published elastic workloads (DIR).
    collectives  measured collectives (CSV, or output of nccl-tests).
    step-times   training steps (JSON, YAML, CSV, or h200).
    kernels      kernels and layers (YAML, CSV, or h100, h200).
    sharing      jobs on shared links, simulated event by event.
    placements   published figures of operator placement (DIR or FILE).
    strategies   published figures of training strategies.

    Examples:
      meshwright dev validate step-times h200
      meshwright dev validate sharing --set sets=100 --set max_mean_error=0.05
    """
    run_kind(VALIDATED, kind, sources, changes, json_file)


@takes_keys(*((keys, name) for name, (_, keys) in CALIBRATED.items()))
def calibrate(
    kind: Kinds,
    sources: Sources = None,
    out: Annotated[Path | None, file_option("Write the constants or tables there.", "--out")] = None,
    changes: KeyChanges = None,
    json_file: JsonFile = None,
) -> None:
    """Fit constants of the cost model to measurements.

    KIND is one of:

    \b
    collectives  tables of collectives (output of nccl-tests, or CSV).
    kernels      constants of kernels (a file of measure, CSV, or h100).
    measure      kernels, layers and networks on this machine's GPU.
    sharing      constants of the model of shared links.

    Examples:
      meshwright dev calibrate measure --out mine.yaml
      meshwright dev calibrate kernels mine.yaml --out constants.yaml
    """
    run_kind(CALIBRATED, kind, sources, changes, out, json_file)


dev = group(
    "dev",
    """Commands for work on the cost model itself.

    Examples:
      meshwright dev validate step-times h200
      meshwright dev calibrate measure --out mine.yaml
      meshwright dev menus llm-256
    """,
    {
        "validate": (validate, "Compare our figures with figures from elsewhere."),
        "calibrate": (calibrate, "Fit constants of the cost model to measurements."),
        "menus": (show_menu, "Print the priced menu of a fleet's benchmark."),
    },
)
