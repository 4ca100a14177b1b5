"""Published figures of operator placement computed again, each next to ours, with the time that ours took.

A figure agrees if it is within its tolerance, or within half a unit of the last digit that was printed, whichever is more. Some
are only limits: a value along one order, or of a search, which ours may be below. Times and budgets of searches are CPU seconds,
so that what else the machine does decides nothing; HiGHS counts by wall time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ....budget_clock import budgets_by
from ....errors import InputFileError
from ....jobs.readers.pipedream import load_profile, without_inputs
from ....planners.operators.request import PlacementRequest
from ....planners.operators.stages.ideals import ideals, linear, num_downsets
from ....planners.operators.stages.milp import milp
from ....planners.operators.stages.pipedream import MachineLevel, pipedream
from ....planners.operators.stages.piper import piper
from ....simulation.operators.instance import OperatorInstance
from ....simulation.operators.instance_files import with_accelerators
from ....simulation.operators.piper_files import load_piper
from ....simulation.operators.placement import OperatorPlacement, value
from ....simulation.operators.published_files import load_published, load_split
from ..published_figures import Progress, PublishedFigure, collect
from .placed_latencies import latency_rows, tasklet_rows

EXACT = 1e-6
PIPEDREAM = 1e-9
S_PER_MS = 1e-3

MAX_LOAD_MS = {
    "layers_bert24_inference": ("92.406", 30, "17.7899", "17.7899", "20.0840"),
    "layers_bert24_training": ("217.813", 30, "41.7458", "41.7458", "49.4049"),
    "layers_gnmt_inference": ("182.563", 17_914, "32.9107", "33.0326", "46.2085"),
    "layers_resnet50_inference": ("201.450", 242, "33.7747", "33.7747", "43.9183"),
    "operators_bert_l-3_inference": ("49.3526", 1_428, "27.9186", "27.9186", None),
    "operators_bert_l-6_inference": ("77.4615", 1_923, "29.5795", "29.5795", None),
    "operators_resnet50_inference": ("325.132", 241, "124.3488", "124.3488", None),
    "operators_bert_l-3_training": ("122.987", 2_774, "65.3031", "65.3031", None),
    "layers_inceptionv3_inference": ("310.969", 36_596, None, "51.5519", "102.4820"),
}
"""One device, downsets, the optimum of pipelines, along one order, and the experts' split; None where there is none."""

WITHOUT_HOSTS_MS = {
    "layers_gnmt_inference": "32.9107",
    "layers_resnet50_inference": "34.2229",
    "operators_bert_l-6_inference": "33.9891",
    "operators_resnet50_inference": "128.0735",
}
BY_NUMBER_MS = {1: "84.506", 2: "44.931", 3: "32.243", 4: "24.917", 6: "17.790", 8: "14.204", 12: "10.652", 16: "7.196"}
"""BERT-24 inference by number of accelerators, with one host processor."""

ANYWHERE_MS = {
    "layers_bert24_inference": "17.778",
    "layers_gnmt_inference": "31.783",
    "operators_bert_l-3_inference": "27.574",
}
"""Placements that need not be contiguous: the best published ones, no optima."""

PIPEDREAM_S = {
    "alexnet": ("0.085321", "0.034217141", "0.018874368", "0.018874368", "0.015099494", "0.066453504"),
    "vgg16": ("0.672535", "0.205520896", "0.103833170", "0.056529767", "0.066839703", "0.411041792"),
    "resnet18": ("0.259742", "0.100004036", "0.050783327", "0.025690112", "0.023493207", "0.201601000"),
    "gnmt": ("0.089416", "0.025868000", "0.019285000", "0.019285000", "0.011081000", "0.025868000"),
}
PIPEDREAM_REPLICAS = {
    ("alexnet", 4): "3:1",
    ("alexnet", 8): "7:1",
    ("vgg16", 4): "3:1",
    ("vgg16", 8): "7:1",
    ("vgg16", 16): "13:2:1",
    ("resnet18", 4): "4",
    ("resnet18", 8): "5:3",
    ("resnet18", 16): "9:4:3",
    ("gnmt", 4): "1:1:1:1",
}
PIPER_S = {
    8: ("0.165856", "0.259752"),
    32: ("0.0415155", "0.056619"),
    64: ("0.0202006", "0.027988"),
    128: ("0.0101209", "0.013595"),
    256: ("0.0050810", "0.006809"),
}
"""By number of devices, with and without recomputation."""


@dataclass(frozen=True)
class PlacementSources:
    """The files of the published instances.

    Attributes:
        folder: holds ``dnn_partitioning/``, ``piper/`` and ``tasklets/``.
        profiles: PipeDream's, ``NAME/graph.txt``.
        search_s: seconds for each search that has no end of its own.
    """

    folder: Path
    profiles: Path
    search_s: float = 60.0


def validate(sources: PlacementSources, progress: Progress | None = None) -> list[PublishedFigure]:
    """Compute every published figure again.

    Raises:
        InputFileError: a folder or file is missing, or something in it is malformed.
    """
    for folder in (sources.folder, sources.profiles):
        if not folder.is_dir():
            raise InputFileError("no such folder", file=folder)
    with budgets_by("cpu"):
        return collect({name: partial(figures, sources) for name, figures in FAMILIES.items()}, progress, is_timed=True)


def _max_load(sources: PlacementSources) -> Iterator[PublishedFigure]:
    for name, (one, count, best, line, expert) in MAX_LOAD_MS.items():
        path = sources.folder / "dnn_partitioning" / "throughput" / f"{name}.json"
        instance = load_published(path)
        alone_ms = float(instance.times_s[:, 0].sum()) / S_PER_MS
        yield PublishedFigure(name, "one device, ms", alone_ms, one, EXACT)
        yield PublishedFigure(name, "downsets", float(num_downsets(instance)), str(count), EXACT)
        result = _throughput(instance, "linear")
        yield PublishedFigure(name, "along one order, ms", result.value_s / S_PER_MS, line, EXACT, is_limit=True)
        result = _throughput(instance, "ideals")
        if best is not None:
            yield PublishedFigure(name, "optimum, ms", result.value_s / S_PER_MS, best, EXACT)
        else:
            yield PublishedFigure(
                name, "optimum, at most along one order, ms", result.value_s / S_PER_MS, line, EXACT, is_limit=True
            )
        if expert is not None:
            split = sources.folder / "dnn_partitioning" / "expert" / f"{name.removeprefix('layers_')}.json"
            expert_ms = value(instance, load_split(split, path, instance), "throughput") / S_PER_MS
            yield PublishedFigure(name, "experts' split, ms", expert_ms, expert, EXACT)


def _other_devices(sources: PlacementSources) -> Iterator[PublishedFigure]:
    folder = sources.folder / "dnn_partitioning" / "throughput"
    for name, published in WITHOUT_HOSTS_MS.items():
        instance = load_published(folder / f"{name}.json")
        instance = with_accelerators(instance, None, None, num_hosts=0)
        yield PublishedFigure(name, "without hosts, ms", _throughput(instance, "ideals").value_s / S_PER_MS, published, EXACT)
    for number, published in BY_NUMBER_MS.items():
        name = "layers_bert24_inference"
        instance = with_accelerators(load_published(folder / f"{name}.json"), number, None, num_hosts=1)
        ours_ms = _throughput(instance, "ideals").value_s / S_PER_MS
        yield PublishedFigure(name, f"{number} accelerators, ms", ours_ms, published, EXACT)


def _anywhere(sources: PlacementSources) -> Iterator[PublishedFigure]:
    for name, published in ANYWHERE_MS.items():
        instance = load_published(sources.folder / "dnn_partitioning" / "throughput" / f"{name}.json")
        result = milp(instance, PlacementRequest("throughput", budget_s=sources.search_s))
        yield PublishedFigure(name, "anywhere, ms", result.value_s / S_PER_MS, published, EXACT, is_limit=True)


def _pipedream(sources: PlacementSources) -> Iterator[PublishedFigure]:
    two_levels = [MachineLevel(4, 12.5e9), MachineLevel(4, 1.25e9)]
    machines = {"single": 1, "4 machines": 4, "8 machines": 8, "16 machines": 16, "4 in line": 4}
    for name, published in PIPEDREAM_S.items():
        graph = without_inputs(load_profile(sources.profiles / name / "graph.txt"))
        columns = ("single", "4 machines", "8 machines", "16 machines", "[4, 4]", "4 in line")
        for column, text in zip(columns, published, strict=True):
            levels = [MachineLevel(machines[column], 1e9)] if column in machines else two_levels
            result = pipedream(graph, levels, is_straight=column == "4 in line")
            yield PublishedFigure(name, f"{column}, s", result.value_s, text, PIPEDREAM)
            replicas = PIPEDREAM_REPLICAS.get((name, machines.get(column, 0)))
            if replicas is not None and column != "4 in line":
                ours = ":".join(map(str, result.replicas))
                yield PublishedFigure(name, f"{column}, replicas", ours, replicas, 0.0)


def _piper(sources: PlacementSources) -> Iterator[PublishedFigure]:
    file = load_piper(sources.folder / "piper" / "bert32a100.json")
    for number, published in PIPER_S.items():
        instance = replace(file, num_devices=number, memory_bytes=8.0 * 2**30, bandwidth_bytes_per_s=25.0 * 2**30)
        for recomputes, text in zip((True, False), published, strict=True):
            result = piper(instance, recomputes=recomputes)
            figure = f"{number} devices{'' if recomputes else ', no recomputation'}, s"
            yield PublishedFigure(file.name, figure, result.value_s, text, EXACT)


FAMILIES: dict[str, Callable[[PlacementSources], Iterator[PublishedFigure]]] = {
    "max-load": _max_load,
    "max-load, other devices": _other_devices,
    "max-load, not contiguous": _anywhere,
    "pipedream": _pipedream,
    "piper": _piper,
    "latency": lambda sources: latency_rows(sources.folder),
    "tasklets": lambda sources: tasklet_rows(sources.folder),
}
"""The function that computes the figures of each family."""


def _throughput(instance: OperatorInstance, planner: str) -> OperatorPlacement:
    request = PlacementRequest("throughput")
    return ideals(instance, request) if planner == "ideals" else linear(instance, request)
