"""schedule.csv for torch.distributed.pipelining: the order of passes of a pipeline that torch has no schedule for.

A row for each rank of a pipeline, a cell for each pass: stage, ``F`` or ``B``, micro-batch, as ``0F3``. The runtime of torch adds
what is sent and received by itself. A cell of a schedule that is not torch's own cannot have a comment, so the file has none.
"""

from __future__ import annotations

from ...costs.pipelines.tasks import FORWARD
from ...plans.document import PlacementPlan
from ...plans.frameworks.defaults import EAGER
from ...plans.partition import Layout

FILE_NAME = "schedule.csv"

NOT_GUARANTEED = (
    "Order of passes: schedule.csv holds it for eager 1F1B; the program hands the file to _PipelineScheduleRuntime's _load_csv "
    "(format compute_only), which is a private name of torch.distributed.pipelining.",
)


def schedule_text(plan: PlacementPlan) -> str | None:
    """The rows of a schedule that torch must be given, one for each stage; None where torch has the schedule."""
    layout = plan.layout()
    if layout is None or layout.schedule != EAGER or layout.pp == 1:
        return None
    return compute_rows(layout)


def compute_rows(layout: Layout) -> str:
    """Passes of every stage as torch's runtime reads them, lines ending in newlines."""
    from ...costs.pipelines.schedules import orders  # which loads numba, and no other export does

    tasks = orders(layout.schedule, layout.pp, layout.virtual_stages, layout.num_micro_batches).tolist()
    rows = (
        ",".join(f"{stage}{'F' if kind == FORWARD else 'B'}{micro}" for kind, _, micro in of_stage)
        for stage, of_stage in enumerate(tasks)
    )
    return "".join(f"{row}\n" for row in rows)
