"""Plans of the other numbers of devices that a search looked at."""

from __future__ import annotations

from dataclasses import replace

from ...errors import PlanError
from ...planners.layouts.ties import FARTHEST, are_tied
from ...plans import PlacementPlan
from ..search_table import RankedLayouts


def plans_by_devices(ranking: RankedLayouts) -> tuple[dict[int, PlacementPlan], tuple[str, ...]]:
    """The plan of the fastest layout, or the plain one where that is taken, on each other number of devices that was searched.

    Numbers without a plan come second, each with the reason, for people.
    """
    plans: dict[int, PlacementPlan] = {}
    left_out: list[str] = []
    searches = {one.best.devices: one for one in ranking.others}
    take = "plain" if ranking.request.take == "plain" else "fastest"
    request = replace(ranking.request, take=take, training=None, compression=None, arrange="none")
    for number in sorted({*ranking.device_counts, *searches} - {ranking.planned.devices}):
        try:
            one = searches.get(number) or _of_number(ranking, number)
            plans[number] = replace(one, request=request).plan
        except PlanError as error:
            left_out.append(f"no plan of {number} devices: {error}")
    return plans, tuple(left_out)


def _of_number(ranking: RankedLayouts, number: int) -> RankedLayouts:
    """Return the result on one number of devices, searched again where the search may have skipped the fastest or its ties.

    It has priced every layout that is within `FARTHEST` of the fastest of all.

    Raises:
        PlanError: nothing is legal or fits.
    """
    rows = tuple(one for one in ranking.by_time if one.devices == number)
    if ranking.request.take != "plain" and rows and are_tied(ranking.best.step_s, rows[0].step_s, FARTHEST):
        searched = replace(ranking.searched, ranking=rows[:1], examined=rows)
        return replace(ranking, searched=searched, device_counts=(number,))
    return RankedLayouts.from_request(ranking.maker, replace(ranking.request, top=1), [number])
