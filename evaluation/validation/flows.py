"""Max-min fair sharing compared with finish times from elsewhere: a file of links and flows, one row per flow.

The file is JSON: ``{"links": {name: {"bandwidth": B/s, "latency": s}}, "flows": [{"path": [link, ...], "bytes": .., "start": s,
"finish": s}, ...]}``. Other keys may name the source of the figures; they are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field

from ... import files, settings
from ...clusters.topologies.topology import Links
from ...errors import ConfigError, GraphError, InputFileError
from ...settings import Settings
from ...simulation.contention import fair_sharing
from ...simulation.contention.flows import Flows
from .comparison import ComparedFigure, Comparison

MAX_RELATIVE_ERROR = 1e-9
"""By default, the largest relative error of a finish time in a file that agrees."""

Figure = Annotated[float, Field(strict=True)]  # a number, not a text that reads like one


class _Figures(Settings):
    model_config = ConfigDict(extra="ignore")


class LinkFigures(_Figures):
    """One directed link: bytes per second and seconds."""

    bandwidth: Figure = Field(gt=0)
    latency: Figure = Field(ge=0)


class FlowFigures(_Figures):
    """One flow: the names of the links that it crosses, bytes, when it starts and when it is said to finish."""

    path: list[str]
    bytes: Figure = Field(gt=0)
    start: Figure
    finish: Figure


class FlowFile(_Figures):
    """The root of the file."""

    links: dict[str, LinkFigures] = Field(min_length=1)
    flows: list[FlowFigures] = Field(min_length=1)


def validate(
    paths: Sequence[str | Path], *, max_relative_error: float = MAX_RELATIVE_ERROR, latency_first: bool = False
) -> Comparison:
    """Simulate the flows of each file and compare their finish times.

    A row's group is its file. Where the reference is zero its relative error is 0 if it is met and 1 if not.

    Args:
        paths: JSON files of the form above; one that is named twice counts once.
        max_relative_error: of a finish time.
        latency_first: as in `fair_sharing.simulate`, where the files count so.

    Raises:
        ConfigError: an allowed error that is negative or no number.
        InputFileError: a file is missing or not JSON (with the line). It has no links or no flows, lacks a key, has an
            impossible figure or names an unknown link.
    """
    if not max_relative_error >= 0:
        raise ConfigError("must be a number of at least 0", field="--set max_error", value=max_relative_error)
    rows = []
    for path in dict.fromkeys(map(str, paths)):
        links, flows, reference = load_flows(path)
        try:
            finish_s = fair_sharing.simulate(links, flows, latency_first=latency_first).finish_s.tolist()
        except GraphError as error:
            raise InputFileError(error.problem, file=path, field=error.field) from None
        for i, (ours, theirs) in enumerate(zip(finish_s, reference, strict=True)):
            rows.append(ComparedFigure("flows", path, f"flow {i}", ours, theirs, max_relative_error))
    return Comparison(tuple(rows))


def load_flows(path: str | Path) -> tuple[Links, Flows, list[float]]:
    """Return the links and flows of a file, and the finish times that it states.

    Raises:
        InputFileError: as `validate`.
    """
    result = settings.build_read(FlowFile, files.read_json(path), path)
    number = {name: i for i, name in enumerate(result.links)}
    for i, flow in enumerate(result.flows):
        for k, name in enumerate(flow.path):
            if name not in number:
                raise InputFileError("no such link", file=path, field=f"flows.{i}.path.{k}", value=name, choices=number)
        if flow.finish < flow.start:
            raise InputFileError(f"lies before the start ({flow.start})", file=path, field=f"flows.{i}.finish", value=flow.finish)
    links = Links(
        tuple(result.links),
        np.array([link.bandwidth for link in result.links.values()]),
        np.array([link.latency for link in result.links.values()]),
    )
    flows = Flows.from_paths(
        [[number[name] for name in flow.path] for flow in result.flows],
        [flow.bytes for flow in result.flows],
        [flow.start for flow in result.flows],
    )
    return links, flows, [flow.finish for flow in result.flows]
