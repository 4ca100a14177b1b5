"""``meshwright list``: every name that a command takes, one a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from typing import Annotated, NamedTuple

from ... import files, packaged
from ...errors import ConfigError
from .. import output
from ..options import JsonFile, argument


class ListedName(NamedTuple):
    """A name as a command takes it, of what kind it is, and one line on it."""

    kind: str
    name: str
    description: str


def list_names(
    what: Annotated[
        str | None,
        argument(
            "WHAT",
            "presets (benchmarks, clusters, jobs, workloads, job-types and train; or one of these), policies, environments, "
            "frameworks, formats or devices.",
        ),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """List every name of a kind with a description, one a line.

    Examples:
      meshwright list policies
      meshwright list clusters
    """
    if what not in (target := {**LISTS, "presets": presets}):
        raise ConfigError("is missing" if what is None else "no such list", field="WHAT", value=what, choices=target)
    result = list(target[what]())
    output.write_json(json_file, [one._asdict() for one in result])
    console = output.console(json_file)
    for one in result:
        console.print(f"{one.name}: {one.description}", soft_wrap=True)


def presets() -> Iterator[ListedName]:
    """Yield all that comes with the package as files or graphs and is named without a path."""
    for one in ("benchmarks", "clusters", "jobs", "workloads", "job-types", "train"):
        yield from LISTS[one]()


def _shipped(kind: str, folder: str, prefix: str = "preset:") -> Iterator[ListedName]:
    """Yield the YAML files of a folder of configs, described by the first sentence of the comment at the top of each."""
    held = packaged.Shipped(folder, kind)
    for name in held.names():
        comment = takewhile(lambda line: line.startswith("#"), files.read_text(held.path(name)).splitlines())
        first = " ".join(line.lstrip("# ") for line in comment).partition(". ")[0].removesuffix(".")
        yield ListedName(kind, prefix + name, first)


def _jobs() -> Iterator[ListedName]:
    from ...jobs.zoo.catalogue import zoo_graph, zoo_names

    for name in zoo_names():
        yield ListedName("job", f"zoo:{name}", f"a built-in graph of {zoo_graph(name).num_ops} ops")


def _policies() -> Iterator[ListedName]:
    """Yield all policies, each once: one that several worlds have is described for all of them."""
    described: dict[str, list[str]] = {}
    for one in _policies_by_world():
        described.setdefault(one.name, []).append(one.description)
    yield from (ListedName("policy", name, "; also ".join(one)) for name, one in described.items())


def _policies_by_world() -> Iterator[ListedName]:
    from ...models.policy_files import SHIPPED, shipped_folder
    from ...planners.arrangement.arrange import SOLVERS
    from ...planners.fleet import rules as fleet
    from ...planners.fleet.rule import ENTRY_WORDS, ORDER_WORDS, EntryRule
    from ...planners.operators.place import PLACEMENT_PLANNERS
    from ...planners.own_policy import OWN
    from ...planners.rules import NAMES
    from ...worlds.elastic.world import ElasticWorld
    from ...worlds.operators.rules import CONSTANTS

    for name in (*NAMES, "fixed-K", "ladder-K-K", "best-fixed", "rollout"):
        yield ListedName("policy", name, "a rule for one job at a time, as of preset:quickstart; @PLACEMENT may follow")
    of_fleets, again = "a rule of fleets, as of preset:llm-256: ", "; with elastic: it also decides running jobs again"
    for name, (order, entry, decides_again) in fleet.BASES.items():
        more = {"least-interference": ", where slowdowns are least", "searched": "; as fifo"}.get(name, "")
        more += again if decides_again else ""
        yield ListedName("policy", name, f"{of_fleets}{ORDER_WORDS[order]}, {ENTRY_WORDS[entry]}{more}")
    for name, words in {
        "ORDER:ENTRY": f"an order ({', '.join(fleet.ORDERS)}) and an entry (another rule), with +backfill, +refuse-N and @PLACE",
        "fixed-N": f"{ENTRY_WORDS[EntryRule.FIXED]}, N",
        "goodput-shares-N": f"{ENTRY_WORDS[EntryRule.FAIR_SHARE]}, N at least{again}",
        f"{fleet.PRICED}-W": f"{ENTRY_WORDS[EntryRule.PRICED]}, where a waiting job counts W times{again}",
        fleet.BEST_FIXED_ENTRY: "fixed-N with the best N on validation episodes",
        fleet.BEST_SHARES: "goodput-shares-N with the best N on validation episodes",
        fleet.BEST_PRICED: f"{fleet.PRICED}-W with the best W on validation episodes",
        "random": "each possible action as often as any other",
        "rollout:RULE": "a rollout planner over a rule",
        "synchronous-only:POLICY": "a policy with all inexact entries masked",
    }.items():
        yield ListedName("policy", name, of_fleets + words)
    for name in ElasticWorld.rules:
        yield ListedName("policy", name, "a scheduler of elastic jobs, as of preset:elastic-published-1.0")
    for name, planner in PLACEMENT_PLANNERS.items():
        yield ListedName("policy", name, f"a planner of ops, as of preset:latency-tight: {planner.rule}")
    for name in CONSTANTS:
        yield ListedName("policy", name, "a rule of ops, as of preset:latency-tight")
    for name in SOLVERS:
        yield ListedName("policy", name, "a solver of tasklets, as of preset:tasklets-64; @SECONDS may follow")
    of = {"fleet": "fleets", "operators": "ops", "tasklets": "tasklets", "json": "elastic jobs"}
    for path in sorted(shipped_folder().iterdir()):
        name, *ending = path.name.split(".")
        if ending and ending[-1] in ("pt", "json"):
            yield ListedName("policy", SHIPPED + name, f"trained, of {of.get(ending[0], 'jobs')}")
    yield ListedName("policy", f"{OWN}MODULE:NAME", "your own, in every world")


def _environments() -> Iterator[ListedName]:
    import inspect

    import gymnasium

    from ...envs.registration import IDS

    for name in IDS:
        module, _, attribute = str(gymnasium.spec(name).entry_point).partition(":")
        described = inspect.getdoc(getattr(__import__(module, fromlist=[attribute]), attribute)) or ""
        yield ListedName("environment", name, described.partition("\n")[0].removesuffix("."))


def _frameworks() -> Iterator[ListedName]:
    from ...plans.frameworks.table import FRAMEWORKS

    yield from (ListedName("framework", name, one.title) for name, one in FRAMEWORKS.items())


def _formats() -> Iterator[ListedName]:
    from ...export import targets

    yield from (ListedName("format", name, one.summary) for name, one in targets.items())


LISTS: dict[str, Callable[[], Iterator[ListedName]]] = {
    "benchmarks": partial(_shipped, "benchmark", "benchmarks"),
    "clusters": partial(_shipped, "cluster", "clusters"),
    "jobs": _jobs,
    "workloads": partial(_shipped, "workload", "workloads"),
    "job-types": partial(_shipped, "job types", "job_types", ""),
    "train": partial(_shipped, "training config", "train"),
    "policies": _policies,
    "environments": _environments,
    "frameworks": _frameworks,
    "formats": _formats,
    "devices": partial(_shipped, "device", "devices", ""),
}
"""By name of a list what it holds; `presets` joins some."""
