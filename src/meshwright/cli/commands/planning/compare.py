"""``meshwright compare``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ....errors import MeshwrightError
from ... import output
from ...help import COSTS, takes_keys
from ...keys import cost_settings, split_keys
from ...options import ClusterName, CostChanges, Job, JsonFile, argument

if TYPE_CHECKING:
    from rich.console import Console

    from ....planning.comparisons.compare import LayoutComparison


@takes_keys(("CompareKeys", ""), COSTS)
def compare_layouts(
    layouts: Annotated[list[str], argument("LAYOUT...", "Two or more, each as --layout of estimate: KEYS or FILE.yaml.")],
    job: Job,
    cluster: ClusterName,
    changes: CostChanges = None,
    json_file: JsonFile = None,
) -> None:
    """Put layouts of one job side by side: the step and its parts, memory, and how sure their order is.

    Examples:
      meshwright compare tp=8,dp=8,micro_batch=1,global_batch=64 \\
        tp=4,dp=16,micro_batch=1,global_batch=64 \\
        --job zoo:llama-7b --cluster preset:dgx-a100-8x8
    """
    from ....planning.comparisons.compare import compare

    if len(layouts) < 2:
        raise MeshwrightError("wants two layouts or more; estimate prices one", field="LAYOUT")
    from ...key_models import CompareKeys

    keys, priced = split_keys(CompareKeys, changes)
    costs = cost_settings(priced)
    result = compare(job, cluster, layouts, sequence_length=keys.sequence_length, costs=costs, **keys.arguments())
    out = output.console(json_file)
    _show(out, result)
    output.write_json(json_file, result.to_data())
    output.print_written(out, json_file)


def _show(out: Console, comparison: LayoutComparison) -> None:
    """Print a column for each layout, by letters that are explained below."""
    names = [chr(ord("A") + place) if place < 26 else str(place) for place in range(len(comparison.priced))]
    parts = [{part.name: part for part in one.parts()} for one in comparison.priced]
    steps = [one.step for one in comparison.priced]
    rate = steps[0].rate[0]
    rows = [
        ["step s", *(f"{step.step_s:.4g} {step.spread}" for step in steps)],
        ["to the fastest", *(f"{one.ratio - 1:+.1%}" for one in comparison.compared)],
        ["paired uncertainty", *(f"{one.uncertainty:.0%}" for one in comparison.compared)],
        ["probability of the order", *(f"{one.order_probability:.0%}" if one.uncertainty else "" for one in comparison.compared)],
        [f"{rate.removesuffix('_per_s')}/s", *(f"{step.rate[1]:,.0f}" for step in steps)],
        *([name, *(f"{part[name].seconds:.4g} s" if name in part else "" for part in parts)] for name in comparison.parts),
        ["memory GB", *(f"{one.peak.total / 1e9:.1f}" + " tight" * one.is_tight for one in comparison.priced)],
        ["devices", *(str(one.layout.world) for one in comparison.priced)],
    ]
    first = comparison.priced[0]
    title = f"Layouts of {first.job} on {first.cluster.name}, {first.maker.batch_text(first.layout.global_batch)}"
    output.table(out, title, ["", *names], rows)
    output.print_remarks(out, [f"{name}: {text}" for name, text in zip(names, comparison.texts, strict=True)])
    orders = [
        f"{names[comparison.fastest]} is the fastest; {name}: {one.text}"
        for place, (name, one) in enumerate(zip(names, comparison.compared, strict=True))
        if place != comparison.fastest
    ]
    output.print_remarks(out, [*orders, *filter(None, [comparison.framework_remark])])
