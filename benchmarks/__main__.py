"""Time the parts that have to be fast, each together with its plain counterpart in the same run.

Every figure is the median of five; compilation is paid before and reported apart. Writes ``benchmarks/out/bench.json``
and the same as a table, ``benchmarks/out/bench.md``.
"""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from .speed.measure import REPEATS, BenchmarkFigure

OUT = Path(__file__).resolve().parent / "out" / "bench.json"


SECTIONS = {
    "kernel": "basics:kernel_figures",
    "fair-sharing": "fair_sharing:fair_sharing_events",
    "environment": "basics:environment_figures",
    "vector": "vector:vector_figures",
    "policy": "policy:policy_figures",
    "learning": "policy:learning_figures",
    "fleet": "fleet:fleet_figures",
    "live": "live:live_figures",
    "service": "service:service_figures",
    "search": "pricing:search_figures",
    "pricing": "pricing:pricing_figures",
    "start-up": "basics:start_up_figures",
}
"""Module of `benchmarks.speed` and function of each, imported where it is asked for."""


def figures_of(section: str) -> list[BenchmarkFigure]:
    """Return the figures of a section."""
    module, _, name = SECTIONS[section].partition(":")
    return list(getattr(import_module(f"{__package__}.speed.{module}"), name)())


def main() -> None:
    """Run the sections that are named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="which sections to run; all by default")
    target = parser.parse_args().sections or list(SECTIONS)
    from meshwright import files

    console = Console(stderr=True)
    load_before = os.getloadavg()[0]
    figures = [figure for name in track(target, "measuring", console=console, transient=True) for figure in figures_of(name)]
    machine = {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.system(),
        "load_before": round(load_before, 2),
        "load_after": round(os.getloadavg()[0], 2),
    }
    files.write_json(OUT, {"machine": machine, "repeats": REPEATS, "figures": [asdict(figure) for figure in figures]})
    table = _markdown(machine, figures)
    files.write_text(OUT.with_suffix(".md"), table)
    print(table, end="")
    console.print(f"written to {OUT} and {OUT.with_suffix('.md').name}")


def _markdown(machine: dict[str, Any], figures: Sequence[BenchmarkFigure]) -> str:
    about = f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}, {machine['system']}"
    load = f"load of one minute {machine['load_before']:.2f} before, {machine['load_after']:.2f} after"
    rows = [f"{about}; {load}; median of {REPEATS}", "", "| figure | value | unit | measured on |", "|---|---|---|---|"]
    rows += [f"| {figure.name} | {_shown(figure.value)} | {figure.unit} | {figure.on} |" for figure in figures]
    return "\n".join(rows) + "\n"


def _shown(value: float) -> str:
    return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
