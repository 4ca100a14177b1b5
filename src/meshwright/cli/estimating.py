"""``meshwright estimate``."""

from __future__ import annotations

from . import output


def run(
    job: str,
    cluster: str,
    layout: str,
    sequence_length: int | None,
    overlap_slowdown: float,
    collectives: str,
    collectives_table: str | None,
    is_explained: bool,
    json_file: str | None,
) -> None:
    """Price a layout, print its figures, what the step is made of and the memory of a rank, and write what was asked for."""
    from .. import settings
    from ..costs.model import CostSettings
    from ..evaluation.estimating import estimate
    from ..evaluation.explaining import explain
    from ..plans.document import figure_text

    output.check_file("--json", json_file)
    choices = {"overlap_slowdown": overlap_slowdown, "collectives": collectives, "collectives_table": collectives_table}
    costs = settings.build(CostSettings, choices)
    found = estimate(job, cluster, layout, sequence_length=sequence_length, costs=costs)
    switches = explain(found, costs) if is_explained else []
    out = output.console(json_file)
    given = found.work.layout
    lines = [[*figure_text(figure), f"{spread:.0%}", figure.provenance] for figure, spread in found.figures()]
    title = f"{found.job} on {given.world} of {found.cluster.num_devices} devices of {found.cluster.name}"
    output.table(out, title, ["", "", "uncertainty", "provenance"], lines)
    shares = [
        [part.name, f"{1e3 * part.seconds:.3f}", f"{part.share:.1%}", f"{part.uncertainty:.0%}", part.provenance]
        for part in found.parts()
        if part.seconds > 0
    ]
    output.table(out, "One step of the stage that ends last", ["", "ms", "share", "uncertainty", "provenance"], shares)
    columns = ["stage", "total GB", "parameters", "gradients", "optimizer", "activations", "buffers", "runtime"]
    rows = []
    for stage, one in enumerate(found.memory):
        parts = (one.total, one.parameters, one.gradients, one.optimizer, one.activations, one.buffers, one.runtime)
        rows.append([str(stage), *(f"{part / 1e9:.2f}" for part in parts)])
    output.table(out, "Memory of a rank (estimated, uncertainty 6%)", columns, rows)
    if is_explained:
        told = [
            [
                one.kind,
                one.name,
                one.provenance,
                *("" if seconds is None else f"{1e3 * seconds:.3f}" for seconds in (one.base_s, one.step_s)),
                "" if one.change is None else f"{one.change:+.2%}",
                one.remark,
            ]
            for one in switches
        ]
        output.table(
            out,
            "What each co-design switch changes",
            ["co-design", "switch", "provenance", "base ms", "step ms", "change", ""],
            told,
            numbers_from=3,
        )
    data = found.to_data()
    output.write_json(json_file, data | ({"switches": [one.to_data() for one in switches]} if is_explained else {}))
    output.tell_written(out, json_file)
