"""One picture as a page."""

from __future__ import annotations

from ...jobs.graph import JobGraph
from ...planning.place import PlacedOps
from ...planning.search_table import RankedLayouts
from ...simulation.step.timeline import Timeline
from ..plots.operators import placement_figure
from ..plots.static import svg
from ..plots.step import step_figure
from ..plots.trade_off import layouts_figure
from .pages import Drawn, page

_STEP = (
    "One training step as the simulator sees it. Each rank has two lanes: above what it computes, below the messages that "
    "it takes "
    "part in. Communication that lies under compute costs nothing."
)


def step_page(timeline: Timeline, graph: JobGraph, device_names: list[str]) -> str:
    """Return the page of ``plan --trace FILE.html``: one step of a job.

    Args:
        timeline: the simulated step.
        graph: the job.
        device_names: of each rank.
    """
    drawn = Drawn(step_figure(timeline, graph, device_names), _STEP)
    return page("drawing.html", title=graph.name, heading=f"One step of {graph.name}", facts=[], drawn=[drawn])


def drawn_placement(placement: PlacedOps, suffix: str) -> str:
    """Draw the ops on their devices as SVG, with one micro-batch as a page where the suffix is ``.html``."""
    if suffix != ".html":
        return svg(placement_figure(placement))
    graph = placement.graph
    names = [f"{rank.host}/{rank.local_rank}" for rank in placement.plan.ranks]
    timeline = placement.timeline()
    drawn = [
        Drawn(placement_figure(placement), "The ops of the job on their devices, and the tensors that cross between devices."),
        Drawn(step_figure(timeline, graph, names), _STEP.replace("training step", "micro-batch")),
    ]
    return page("drawing.html", title=graph.name, heading=f"{graph.name} on {placement.cluster.name}", facts=[], drawn=drawn)


def drawn_layouts(ranking: RankedLayouts, suffix: str) -> str:
    """Draw all priced layouts and the Pareto front as SVG, or as a page where the suffix is ``.html``."""
    if suffix != ".html":
        return svg(layouts_figure(ranking))
    best = ranking.best
    facts = [f"Fastest: {best.text}, {best.step_s:.4g} s a step, {best.memory_bytes / 1e9:.3g} GB of the fullest rank."]
    caption = (
        "Layouts that were priced: seconds of a step over memory of the fullest rank. A line joins the layouts of one number of "
        "devices that no other layout beats in time, memory and devices at once. Layouts that a bound rules out are not drawn."
    )
    drawn = Drawn(layouts_figure(ranking), caption)
    return page(
        "drawing.html",
        title=ranking.name,
        heading=f"Layouts of {ranking.name} on {ranking.cluster.name}",
        facts=facts,
        drawn=[drawn],
    )
