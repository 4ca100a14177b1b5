"""A menu with the step times that jobs really had, and for each job only the entries that its request allows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError
from ...planners.menu.build import Menu
from ...simulation.fleet.menu_table import MenuTable
from ...simulation.ragged import row_starts
from ..decisions import JobRequest
from .durations import RealDurations


def real_menu(menu: Menu, requests: Sequence[JobRequest], durations: RealDurations) -> Menu:
    """The menu of some jobs as their runs show it.

    Args:
        menu: as it is predicted, a type for each request.
        requests: which numbers of devices are wanted of each.
        durations: what the runs show.

    Raises:
        ConfigError: a request wants numbers of devices for which there is no layout.
    """
    table = menu.table
    step_s, is_wanted = table.step_s.copy(), np.ones(len(table.degree), np.bool_)
    for number, request in enumerate(requests):
        entries = range(int(table.first_entry[number]), int(table.first_entry[number + 1]))
        for entry in entries:
            degree = int(table.degree[entry])
            is_wanted[entry] = degree <= (request.max_devices or degree) and degree == (request.devices or degree)
            for part in range(step_s.shape[2]):
                step_s[entry, :, part] *= durations.ratio(request, degree, 1 << part == degree)
        if not is_wanted[entries].any():
            wanted = request.devices or request.max_devices
            raise ConfigError("no layout has so many devices", field=menu.job_types[number].name, value=wanted)
    kept = np.flatnonzero(is_wanted)
    real = _with_entries(table._replace(step_s=step_s), kept)
    exposed = None if menu.exposed is None else menu.exposed[kept]
    return Menu(real, menu.job_types, tuple(menu.entries[entry] for entry in kept), exposed)


def _with_entries(table: MenuTable, kept: NDArray[np.int64]) -> MenuTable:
    """Some entries of a table."""
    count = np.searchsorted(kept, table.first_entry)
    step_s = table.step_s[kept]
    cost = table.degree[kept] * step_s.min(axis=(1, 2, 3))
    parts = step_s.shape[2]
    rows = (kept[:, None] * parts + np.arange(parts)).ravel()
    lengths = np.diff(table.flow_first)[rows]
    flows = np.concatenate([np.arange(table.flow_first[row], table.flow_first[row + 1]) for row in rows]).astype(np.int64)
    return table._replace(
        first_entry=count.astype(np.int64),
        degree=table.degree[kept],
        memory_bytes=table.memory_bytes[kept],
        step_s=step_s,
        hidden_s=table.hidden_s[kept],
        flow_first=row_starts(lengths),
        flow_from=table.flow_from[flows],
        flow_to=table.flow_to[flows],
        flow_bytes=table.flow_bytes[flows],
        flow_streams=table.flow_streams[flows],
        work_device_s=np.minimum.reduceat(cost, count[:-1]),
    )
