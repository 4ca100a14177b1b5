"""`compare`: layouts of one job side by side, and how sure the order of each and the fastest is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...clusters import load_cluster
from ...clusters.cluster import Cluster
from ...errors import PlanError
from ...planners.layouts.results import layout_text
from ...planners.layouts.ties import Compared
from ...plans.frameworks.layout_words import strategies_of_layout
from ...plans.partition import Layout
from ..estimate import Estimate, estimate


@dataclass(frozen=True)
class LayoutComparison:
    """Layouts of one job on one cluster.

    Attributes:
        priced: the layouts, as they were named.
        fastest: place of the fastest.
        compared: each with the fastest; their paired uncertainty is 0 for the same layout.
    """

    priced: tuple[Estimate, ...]
    fastest: int
    compared: tuple[Compared, ...]

    @property
    def texts(self) -> list[str]:
        """The layouts in short."""
        return [layout_text(one.layout) for one in self.priced]

    @property
    def parts(self) -> list[str]:
        """Names of the parts of a step that some layout has."""
        return list(dict.fromkeys(part.name for one in self.priced for part in one.parts() if part.seconds > 0))

    @property
    def framework_remark(self) -> str:
        """A remark where layouts are priced as different frameworks run them; else nothing."""
        named = list(dict.fromkeys(one.layout.framework or "none named" for one in self.priced))
        if len(named) == 1:
            return ""
        return (
            f"prices are of different frameworks ({', '.join(named)}): name one framework= in all layouts to compare cuts alone"
        )

    def to_data(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        rows = zip(self.priced, self.texts, self.compared, strict=True)
        layouts = [one.to_data() | {"text": text} | compared.to_data() for one, text, compared in rows]
        return {"fastest": self.fastest, "layouts": layouts, "remark": self.framework_remark}


def compare(job: str, cluster: str | Cluster, layouts: Sequence[str | Layout], **options: Any) -> LayoutComparison:
    """Price layouts of one job.

    Args:
        job, cluster: as of `estimate.estimate`.
        layouts: each as `estimate.estimate` reads it.
        options: of `estimate.estimate`, for all layouts.

    Raises:
        PlanError: a layout cannot be, or does not fit; batches differ, or a file or option names strategies.
        MeshwrightError: job or cluster are missing or wrong.
    """
    request = options.get("training"), options.get("compression")
    for layout in layouts:
        if (strategies_of_layout(layout, *request) if isinstance(layout, str) else request) != (None, None):
            problem = "compares synchronous steps; estimate prices training and compression"
            raise PlanError(problem, field="LAYOUT", value=str(layout))
    where = load_cluster(cluster) if isinstance(cluster, str) else cluster
    priced = tuple(
        _priced(job, where, layout, f"layout {place} of {len(layouts)}", options) for place, layout in enumerate(layouts, 1)
    )
    batches = sorted({one.layout.global_batch for one in priced})
    if len(batches) > 1:
        raise PlanError("steps of different batches do not compare", field="global_batch", value=", ".join(map(str, batches)))
    fastest = min(range(len(priced)), key=lambda place: priced[place].step.step_s)
    best = priced[fastest]
    compared = tuple(Compared.from_steps(one.step, best.step, are_same=one.layout == best.layout) for one in priced)
    return LayoutComparison(priced, fastest, compared)


def _priced(job: str, cluster: Cluster, layout: str | Layout, which: str, options: dict[str, Any]) -> Estimate:
    try:
        return estimate(job, cluster, layout, **options)
    except PlanError as error:
        problem = f"{error.problem}, in {which}" if (error.field or "").startswith("layout") else error.problem
        raise PlanError(
            problem, file=error.file, line=error.line, field=error.field, value=error.value, choices=error.choices
        ) from None
