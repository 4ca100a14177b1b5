"""``meshwright estimate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ... import output
from ...help import COSTS, takes_keys
from ...keys import cost_settings, split_keys
from ...occupied import StateFile, read_state
from ...options import ClusterName, CostChanges, Job, JsonFile, SequenceLength, TrainingStrategies, option
from ...plans import show_strategies

if TYPE_CHECKING:
    from rich.console import Console

    from ....planning.estimate import Estimate
    from ....planning.explain import Switch


NARROW = 100
"""Columns of a terminal below which the kinds of co-designs are left out."""


@takes_keys(("EstimateKeys", ""), COSTS)
def estimate_layout(
    job: Job,
    cluster: ClusterName,
    layout: Annotated[
        str,
        option(
            "KEYS",
            "As tp=8,pp=8,dp=2,micro_batch=1,global_batch=128; absent degrees are 1, switches but overlap_dp off; or a YAML "
            "with these keys under layout:.",
        ),
    ],
    framework: Annotated[
        Literal["megatron", "fsdp2", "deepspeed"] | None,
        typer.Option(help="Defaults of this framework for keys that the layout leaves open; they are printed."),
    ] = None,
    sequence_length: SequenceLength = None,
    state: StateFile = None,
    changes: CostChanges = None,
    training: TrainingStrategies = None,
    explain: Annotated[bool, typer.Option("--explain", help="Also price the change of each co-design switch.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Price one parallel layout of a job: step time and its parts, throughput, utilisation, memory.

    A transformer takes all keys of a layout; any other job takes dp and pp, with its ops cut into the most even stages.

    Examples:
      meshwright estimate --job zoo:llama-7b --cluster preset:dgx-a100-8x8 \\
        --layout tp=4,dp=16,micro_batch=1,global_batch=64,zero=1
    """
    from ....planning.estimate import estimate
    from ....planning.explain import explain as switches_of
    from ....planning.explain import untaken
    from ...key_models import EstimateKeys

    keys, priced = split_keys(EstimateKeys, changes)
    choice = cost_settings(priced)
    occupied = read_state(state, cluster)
    is_free = None if occupied is None else occupied.taken.is_free
    result = estimate(
        job,
        cluster,
        layout,
        is_free=is_free,
        sequence_length=sequence_length,
        costs=choice,
        training=training,
        compression=keys.compression,
        framework=framework,
        **keys.arguments(),
    )
    switches = switches_of(result) if explain else []
    named = untaken(result)
    out = output.console(json_file)
    _show(out, result, is_default_length=sequence_length is None)
    show_strategies(out, "Trained otherwise", [(one, "") for one in result.trained], None)
    if named is not None:
        out.print(named, soft_wrap=True)
    if choice.kernels is not None:
        out.print(f"constants of kernels: {choice.kernels}", soft_wrap=True)
    if explain:
        _explain(out, result, switches)
    if occupied is not None:
        occupied.show(out, None)
    data = result.to_data() | ({} if choice.kernels is None else {"kernels": choice.kernels})
    data |= {} if named is None else {"collectives_remark": named}
    output.write_json(json_file, data | ({"switches": [switch.to_data() for switch in switches]} if explain else {}))
    output.print_written(out, json_file)


def _show(out: Console, estimate: Estimate, *, is_default_length: bool) -> None:
    from ....costs.training_step.uncertainty import interval
    from ....planning.estimate import of_framework, priced_with
    from ....plans.document import figure_text

    lines = [[*figure_text(figure), f"{spread:.0%}", figure.provenance] for figure, spread in estimate.figures()]
    title = f"{estimate.job} on {estimate.layout.world} of {estimate.cluster.num_devices} devices of {estimate.cluster.name}"
    out.print(estimate.what, soft_wrap=True)
    if is_default_length and (shorter := estimate.maker.shorter_than_positions):
        out.print(shorter, soft_wrap=True)
    output.table(out, title, ["", "", "uncertainty", "provenance"], lines)
    output.print_remarks(out, estimate.remarks)
    hidden = " ".join(f"{key}={str(getattr(estimate.layout, key)).lower()}" for key in ("overlap_tp", "overlap_pp", "overlap_dp"))
    out.print(f"{priced_with(estimate.costs)} {hidden}", soft_wrap=True)
    if framework := of_framework(estimate.layout):
        out.print(framework, soft_wrap=True)
    doubts = [[name, f"{spread:.1%}"] for name, spread in estimate.step.uncertainty_terms.items()]
    output.table(out, "Uncertainty of the step", ["made of", ""], doubts)
    low_s, high_s = interval(estimate.step.step_s, estimate.step.uncertainty)
    out.print(f"95 % interval of the step: {1e3 * low_s:.1f} to {1e3 * high_s:.1f} ms")
    shares = [
        [part.name, f"{1e3 * part.seconds:.3f}", f"{part.share:.1%}", f"{part.uncertainty:.0%}", part.provenance]
        for part in estimate.parts()
        if part.seconds > 0
    ]
    output.table(out, "One step of the stage that ends last", ["", "ms", "share", "uncertainty", "provenance"], shares)
    output.print_remarks(out, _idle_text(estimate))
    columns = ["stage", "total\nGB", "allocated", "weights", "grads", "optim.", "activations", "buffers", "runtime"]
    rows = []
    for stage, one in enumerate(estimate.memory):
        rows.append([str(stage), *(f"{part / 1e9:.2f}" for part in (one.total, one.allocated, *one[:-1]))])
    output.table(out, "Memory of a rank (estimated, uncertainty 6%)", columns, rows, breaks_numbers=False)
    stages = estimate.maker.details(estimate.work).get("stages", ())
    if tight := estimate.maker.tight_text(estimate.work):
        output.print_remarks(out, [tight])
    if len(stages) > 1:
        ops = [[str(one["stage"]), str(one["num_ops"]), one["first"], one["last"]] for one in stages]
        output.table(out, "Stages of the pipeline", ["stage", "ops", "first", "last"], ops, numbers_from=3)


def _idle_text(estimate: Estimate) -> list[str]:
    """Return the line on a pipeline's bubble, and on idle time that is no bubble."""
    layout = estimate.layout
    if layout.pp == 1:
        return []
    stages, chunks, passes = layout.pp, layout.virtual_stages, layout.num_micro_batches
    equal = f"(p - 1) / (v m) = {(stages - 1) / (chunks * passes):.1%}, Narayanan et al., 2021"
    formula = equal
    if layout.is_bidirectional:
        formula = "(p / 2 - 1) (F&B + B - 3 W) seconds over p stages, two on a rank; DeepSeek-AI, 2024"
    elif layout.schedule in ("zb-h1", "zb-2p"):
        formula = "less than 1F1B, Qi et al., 2024"
    return [
        f"bubble: idle by the schedule alone, {estimate.bubble_time_fraction:.1%} of the ideal time (of equal stages {formula}); "
        "imbalance: waiting for the stage that computes longest"
    ]


def _explain(out: Console, estimate: Estimate, switches: list[Switch]) -> None:
    is_narrow = out.width < NARROW
    first = 1 if is_narrow else 2
    rows = []
    for switch in switches:
        seconds = ("" if number is None else f"{1e3 * number:.3f}" for number in (switch.base_s, switch.step_s))
        change = "" if switch.change is None else f"{switch.change:+.2%}"
        own = "the estimate" if switch.provenance == "estimated" else "the same, simulated"
        why = [] if is_narrow else [switch.remark.removeprefix("base: ") or own]
        rows.append([*[switch.kind, switch.name, *seconds, change, switch.provenance][2 - first :], *why])
    columns = ["co-design", "switch", "base ms", "step ms", "change", "provenance"][2 - first :]
    columns += [] if is_narrow else ["base, or why none"]
    output.table(out, "Change by each co-design switch", columns, rows, numbers_from=first, numbers_to=first + 3)
    remarks: dict[str, list[str]] = {}
    for switch in switches:
        if switch.remark and is_narrow:
            remarks.setdefault(switch.remark, []).append(switch.name)
    lines = [f"{', '.join(names)}: {remark}" for remark, names in remarks.items()]
    if any(one.provenance == "simulated" and one.step_s is not None for one in switches):
        lines.append(f"estimated: analytic, links independent; simulated: event by event, links {estimate.costs.contention}")
    fewer = next((one.micro_batches for one in switches if len(one.micro_batches) > 1), ())
    if fewer:
        numbers = f"{' and '.join(map(str, fewer))} of {estimate.layout.num_micro_batches} micro-batches"
        lines.append(f"simulated: steps of {numbers}, continued by the steady state of the schedule")
    output.print_remarks(out, lines)
