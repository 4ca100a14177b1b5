"""Plans of the other numbers of devices that a search looked at."""

from __future__ import annotations

from dataclasses import replace

from ...errors import PlanError
from ...planners.layouts.results import Searched
from ...plans import PlacementPlan
from ..search_table import RankedLayouts


def plans_by_devices(found: RankedLayouts) -> dict[int, PlacementPlan]:
    """The plan of the fastest layout on each number of devices that was searched, besides that of the search itself.

    A number on which nothing fits is left out. One on which nothing is faster than on fewer devices is searched by itself, since
    the search passes its layouts by.
    """
    plans = {one.best.devices: one.plan for one in found.others}
    for number in found.device_counts:
        if number == found.taken.devices or number in plans:
            continue
        request = replace(found.request, take="fastest", training=None, compression=None, arrange="none")
        front = tuple(one for one in found.searched.front if one.devices == number)
        if front:
            examined = tuple(one for one in found.searched.examined if one.devices == number)
            searched = Searched(front[:1], front, examined, found.searched.counts)
            plans[number] = replace(found, searched=searched, request=request, device_counts=(number,)).plan
            continue
        try:
            plans[number] = RankedLayouts.of(found.maker, replace(request, top=1), [number]).plan
        except PlanError:
            continue
    return plans
