"""``meshwright dev menus``."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import output


def show_menu(
    benchmark: Annotated[str, typer.Argument(metavar="BENCHMARK", help="Of a fleet: preset:NAME, its bare name, or a YAML.")],
) -> None:
    """Price the menu of a fleet's benchmark and print it, a layout a row; prices are kept on disk for later runs.

    Examples:
      meshwright dev menus llm-256
    """
    from ...envs.fleet.benchmark import load_fleet_benchmark
    from ...envs.fleet.menu_lines import menu_lines

    found = load_fleet_benchmark(benchmark)
    with output.progress() as bars, output.set_up(bars) as priced:
        fleet = found.build(progress=priced)
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
    output.table(output.console(), f"Menu of {found.name} on {fleet.cluster.name}", columns, rows, numbers_from=4)
