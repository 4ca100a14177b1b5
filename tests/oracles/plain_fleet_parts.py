"""Jobs, hosts and menus of `plain_fleet` as objects."""

import math
from dataclasses import dataclass, field

import numpy as np

from meshwright.simulation.fleet.state import JobState


def rounded_down(number):
    """The largest power of two that is not above a number."""
    return 1 << (number.bit_length() - 1)


@dataclass(frozen=True)
class Entry:
    """A row of the menu.

    Times are by device type, devices a host, and hosts a group with whether in several sites; flows are by devices a host.
    """

    number: int
    degree: int
    step_s: dict[tuple[int, int, int], float]
    hidden_s: dict[tuple[int, int, int], float]
    flows: dict[int, list[tuple[int, int, float, float]]]

    def can_run_on(self, kind, part):
        need = self.degree // part
        return all(s < math.inf for (k, g, h), s in self.step_s.items() if (k, g) == (kind, part) and h[0] <= rounded_down(need))


@dataclass(eq=False)
class Host:
    number: int
    group: int
    class_group: int
    site: int
    kind: int
    owners: list["Job | None"]
    is_out: bool = False
    failures: int = 0
    turns_at_s: float = math.inf

    @property
    def free(self):
        return 0 if self.is_out else self.owners.count(None)


@dataclass(eq=False)
class Job:
    number: int
    kind: int
    arrival_s: float
    steps: float
    deadline_s: float
    status: JobState = JobState.TO_COME
    entry: Entry | None = None
    hosts: list[Host] = field(default_factory=list)
    part: int = 0
    start_s: float | None = None
    finish_s: float | None = None
    left_s: float | None = None
    """When it left: as it ended, or as it was turned away."""
    done: float = 0.0
    since_s: float = 0.0
    alone_s: float = 0.0
    hidden_s: float = 0.0
    step_s: float = 0.0
    restarts: int = 0
    held_device_s: float = 0.0
    shared_s: float = 0.0
    failures: int = 0
    lost_device_s: float = 0.0
    last_hosts: int = 0
    trunk_share: list[float] = field(default_factory=list)


def read_menu(table, has_sites):
    """The entries of each job type."""
    sizes = table.step_s.shape[1:]
    spreads = [(2**h, is_apart) for is_apart in (False, True)[: 1 + has_sites] for h in range(sizes[2] // (1 + has_sites))]
    menu = []
    for first, last in zip(table.first_entry[:-1].tolist(), table.first_entry[1:].tolist(), strict=True):
        menu.append([])
        for e in range(first, last):
            classes = {(k, 2**g, spreads[h]): (k, g, h) for k, g, h in np.ndindex(*sizes)}
            flows = {}
            for g in range(sizes[1]):
                rows = range(table.flow_first[e * sizes[1] + g], table.flow_first[e * sizes[1] + g + 1])
                columns = (table.flow_from, table.flow_to, table.flow_bytes, table.flow_streams)
                flows[2**g] = [tuple(column[row].item() for column in columns) for row in rows]
            step_s = {key: table.step_s[e][at].item() for key, at in classes.items()}
            hidden_s = {key: table.hidden_s[e][at].item() for key, at in classes.items()}
            menu[-1].append(Entry(e, int(table.degree[e]), step_s, hidden_s, flows))
    return menu
