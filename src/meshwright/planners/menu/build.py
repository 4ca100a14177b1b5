"""`build_menu`: the menu of some types of jobs on a cluster, priced once and kept on disk between runs."""

from __future__ import annotations

import io
import itertools
import json
import math
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import files
from ...clusters.cluster import Cluster
from ...costs.settings import CostSettings
from ...costs.training_step.kernels import kernel_model
from ...errors import ConfigError, PlanError
from ...plans.frameworks.defaults import LauncherName
from ...plans.partition import Layout
from ...plans.rank_order import ORDERS
from ...simulation import cached_files
from ...simulation.fleet.menu_table import MenuTable
from .entries import BreakEven, EntryMaker, MenuEntry, PricedEntry, SplitEntry
from .job_types import JobType, job_type
from .named_entry import OWN
from .settings import JobTypeSettings, MenuSettings

# Raised whenever the search, the prices of layouts or the file change.
FIGURES_VERSION = 7


@dataclass(frozen=True, eq=False)
class Menu:
    """The layouts of jobs.

    Attributes:
        table: its figures.
        job_types: the types, in the table's order.
        entries: the layout of each entry, in the table's order; of op graphs that a workload draws, how far ops are split.
        exposed: share of a step with messages and no computation, ``(E, D, G, H)`` as the table's step times; None where no
            entry has a name.
        break_evens: break-even of each named entry, ranked or not, on each type and number of devices on which it is legal.
    """

    table: MenuTable
    job_types: tuple[JobType, ...]
    entries: tuple[MenuEntry | SplitEntry, ...]
    exposed: NDArray[np.float64] | None = None
    break_evens: tuple[BreakEven, ...] = ()

    @property
    def is_exact(self) -> NDArray[np.bool_]:
        """Whether each entry gives the update of synchronous training, or of a job that has no other, ``(E,)``."""
        return np.array([entry.named is None or entry.named.is_exact or entry.named.is_given for entry in self.entries], np.bool_)


def build_menu(
    job_types: Sequence[JobTypeSettings],
    cluster: Cluster,
    menu: MenuSettings | None = None,
    costs: CostSettings | None = None,
    *,
    frameworks: Sequence[LauncherName | None] = (),
    cache: Path | None = None,
    is_strict: bool = True,
    progress: Callable[[str, int, int], None] | None = None,
) -> Menu:
    """Find and price the layouts of some types of jobs, or read them from disk.

    Args:
        job_types: see `load_job_types`.
        cluster: where they run.
        menu: how far layouts are looked for.
        costs: choices of the cost model, with defaults of `CostSettings.of_layouts`.
        frameworks: of each type the one that runs its layouts, in all rank orders; by default that of the menu.
        cache: folder of what is kept; None takes `kept_files.cache_folder`.
        is_strict: whether numbers of devices that no type can use are refused.
        progress: called before each search for layouts with a type's name, and the number of its degree of how many. Not called
            where the menu is read from disk.

    Raises:
        ConfigError: a number of devices that no type can use.
        PlanError: no layout of a type fits the cluster on any of the numbers of devices.
        MeshwrightError: a job, or a file that the costs name, is missing or wrong.
    """
    written = menu or MenuSettings()
    choice, priced_by = written.on(cluster.num_devices), (costs or CostSettings()).of_layouts
    _check(choice, cluster)
    types = tuple(job_type(one) for one in job_types)
    key = _key(types, cluster, choice, priced_by, *frameworks)
    path = (cached_files.cache_folder() if cache is None else cache) / f"{key}.menu"
    result = _read(path, choice, types)
    if result is None:
        result = _built(types, cluster, choice, priced_by, frameworks, progress)
        cached_files.write(path, _content(result))
    if is_strict:
        _check_all_used(choice, types, result, is_written="degrees" in written.model_fields_set)
    return Menu(result.table, types, result.entries, result.exposed, result.break_evens)


def _check(menu: MenuSettings, cluster: Cluster) -> None:
    """Refuse what no job can use."""
    menu.check()
    for degree in menu.degrees:
        if degree > cluster.num_devices:
            raise ConfigError(f"{cluster.name} has {cluster.num_devices} devices", field="menu.degrees", value=degree)


def _key(
    types: Sequence[JobType], cluster: Cluster, menu: MenuSettings, costs: CostSettings, *frameworks: LauncherName | None
) -> str:
    models = [kernel_model(device, costs.kernels) for device in cluster.device_types]
    kernels = [(model.host_us, *(kept.model_dump() for kept in (model.constants, model.tuned) if kept)) for model in models]
    own = [one.own and one.own.model_dump(mode="json") for one in types]
    priced = [one.digest for one in types], cluster.digest, cluster.topology.host_group, menu.model_dump(), costs.digest
    return files.digest(FIGURES_VERSION, *priced, kernels, own, *([frameworks] if any(frameworks) else []))


class _Found(NamedTuple):
    """The part of a menu on disk; see `Menu`, and `FoundEntries` for refusals."""

    table: MenuTable
    entries: tuple[MenuEntry, ...]
    exposed: NDArray[np.float64] | None
    break_evens: tuple[BreakEven, ...]
    refused: dict[str, str]


def _built(
    types: Sequence[JobType],
    cluster: Cluster,
    menu: MenuSettings,
    costs: CostSettings,
    frameworks: Sequence[LauncherName | None],
    progress: Callable[[str, int, int], None] | None,
) -> _Found:
    menus = {one: menu.model_copy(update={"framework": one, "orders": ORDERS}) for one in frameworks if one} | {None: menu}
    makers = {one: EntryMaker(cluster, own, costs) for one, own in menus.items()}
    results: list[list[PricedEntry]] = []
    break_evens: list[BreakEven] = []
    refused: dict[str, str] = {}
    for number, (job, framework) in enumerate(itertools.zip_longest(types, frameworks)):
        results.append([])
        refusal: PlanError | None = None
        for place, degree in enumerate(menu.degrees):
            if progress is not None:
                progress(job.name, number * len(menu.degrees) + place, len(types) * len(menu.degrees))
            try:
                made = makers[framework].entries(number, job, degree)
                results[-1] += made.entries
                break_evens += made.break_evens
                refused |= made.refused
            except PlanError as error:
                refusal = error
        if not results[-1]:
            assert refusal is not None, "without entries something was refused"
            raise PlanError(f"{job.name} on {cluster.name}: {refusal.problem}", field="job_types", value=job.name)
    entries = tuple(entry.entry for entries in results for entry in entries)
    exposed = np.stack([entry.exposed for entries in results for entry in entries]) if menu.has_strategies else None
    return _Found(_table(types, results), entries, exposed, tuple(break_evens), refused)


def _check_all_used(menu: MenuSettings, types: Sequence[JobType], result: _Found, *, is_written: bool) -> None:
    """Refuse a number of devices that somebody has written, or a named entry, that no type can use."""
    legal = {one.name for one in result.break_evens if math.isfinite(one.step_s)}
    for named in (*menu.entries, *menu.unranked):
        if named.name not in legal:
            why = result.refused.get(named.name, "it fits no device")
            raise ConfigError(f"no job type can use it: {why}", field=f"menu.entries.{named.name}")
    used = {entry.layout.world for entry in result.entries}
    for degree in menu.degrees if is_written else ():
        if degree not in used:
            names = ", ".join(job.name for job in types)
            raise ConfigError(f"no layout of {names} fits so many devices", field="menu.degrees", value=degree)


def _table(types: Sequence[JobType], result: list[list[PricedEntry]]) -> MenuTable:
    entries = [entry for one in result for entry in one]
    flows = [() if sent is None else sent.flows for entry in entries for sent in entry.traffic]
    columns = list(zip(*(flow for flow in flows if flow), strict=True)) or [()] * 4
    step_s, degree = np.stack([entry.step_s for entry in entries]), np.array([e.entry.layout.world for e in entries], np.int64)
    first = np.cumsum([0, *(len(one) for one in result)])
    cost = degree * np.where(np.isfinite(step_s), step_s, math.inf).min(axis=(1, 2, 3))
    return MenuTable(
        first_entry=first.astype(np.int64),
        degree=degree,
        memory_bytes=np.array([entry.entry.memory_bytes for entry in entries]),
        step_s=step_s,
        hidden_s=np.stack([entry.hidden_s for entry in entries]),
        flow_first=np.cumsum([0, *(len(flow[0]) if flow else 0 for flow in flows)]).astype(np.int64),
        flow_from=_joined(columns[0], np.int64),
        flow_to=_joined(columns[1], np.int64),
        flow_bytes=_joined(columns[2], np.float64),
        flow_streams=_joined(columns[3], np.int64),
        state_bytes=np.array([job.state_bytes for job in types]),
        work_device_s=np.array([cost[a:b].min() for a, b in itertools.pairwise(first)]),
    )


def _joined(parts: Sequence[NDArray[Any]], kind: type[np.generic]) -> NDArray[Any]:
    return np.concatenate([np.zeros(0, kind), *parts]).astype(kind)


def _content(result: _Found) -> bytes:
    """Return a menu as it is kept on disk: the arrays, and the layouts as JSON."""
    layouts = json.dumps([[e.job_type, e.layout.model_dump(mode="json"), e.order, e.memory_bytes] for e in result.entries])
    arrays: dict[str, Any] = {"entries": np.frombuffer(layouts.encode(), np.uint8), **result.table._asdict()}
    if result.break_evens or result.refused or any(e.named is not None for e in result.entries):
        names = [None if e.named is None else e.named.name for e in result.entries]
        named = json.dumps({"names": names, "told": result.break_evens, "refused": result.refused})
        arrays["named"] = np.frombuffer(named.encode(), np.uint8)
    if result.exposed is not None:
        arrays["exposed"] = result.exposed
    made = io.BytesIO()
    np.savez(made, **arrays)
    return made.getvalue()


def _read(path: Path, menu: MenuSettings, types: Sequence[JobType]) -> _Found | None:
    """Return the menu in a file; None where it is absent or damaged (it is then built again)."""
    content = cached_files.read(path)
    if content is None:
        return None
    of_name = {entry.name: entry for entry in menu.entries}
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            table = MenuTable(**{name: archive[name] for name in MenuTable._fields})
            layouts = json.loads(archive["entries"].tobytes())
            named: dict[str, Any] = {"names": [None] * len(layouts), "told": (), "refused": {}}
            if "named" in archive:
                named = json.loads(archive["named"].tobytes())
            exposed = archive.get("exposed")
        entries = tuple(
            MenuEntry(
                number,
                Layout(**keys),
                order,
                size,
                None if name is None else types[number].own if name == OWN else of_name[name],
            )
            for (number, keys, order, size), name in zip(layouts, named["names"], strict=True)
        )
    except (ValueError, KeyError, IndexError, zipfile.BadZipFile):
        return None
    return _Found(table, entries, exposed, tuple(BreakEven(*one) for one in named["told"]), named["refused"])
