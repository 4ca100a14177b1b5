"""Small instances in the forms of published files."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

_NODE = {"cpuLatency": 20, "fpgaLatency": 3.0, "supportedOnFpga": 1}
PUBLISHED: dict[str, Any] = {
    "maxSizePerFPGA": 100.0,
    "maxFPGAs": 2,
    "maxCPUs": 1,
    "nodes": [
        {**_NODE, "id": 7, "name": "a", "cpuLatency": 30, "isBackwardNode": 0, "colorClass": 1, "size": 10.0},
        {**_NODE, "id": 3, "name": "b", "fpgaLatency": 2.0, "isBackwardNode": False, "size": 20.0, "supportedOnFpga": True},
        {**_NODE, "id": 9, "name": "c", "cpuLatency": 5, "fpgaLatency": 4.0, "isBackwardNode": 1, "colorClass": 1},
    ],
    "edges": [
        {"sourceId": 7, "destId": 3, "cost": 0.5},
        {"sourceId": 7, "destId": 9, "cost": 0.5},
        {"sourceId": 3, "destId": 9, "cost": 0.25},
    ],
}
SPLIT: dict[str, Any] = {"fpgas": [{"nodes": [7]}, {"nodes": [3]}], "cpus": [{"nodes": []}]}

_OPTION = {"timePerSample": 1.0, "parameterSize": 8.0, "memoryUsageA": 4.0, "memoryUsageB": 2.0}
PIPER: dict[str, Any] = {
    "maxDevices": 2,
    "maxMemoryPerDevice": 100.0,
    "bandwidth": 10.0,
    "mbsInBatch": 4,
    "nodes": [
        {"id": 1, "name": "a", "TMPCs": {"1": [{**_OPTION, "id": "vanilla", "syncTimeFw": {}, "syncTimeBw": {"2": 1.0}}]}},
        {"id": 2, "name": "b", "TMPCs": {"1": [{**_OPTION, "id": "vanilla", "syncTimeFw": {"1": 2.0}, "syncTimeBw": {}}]}},
    ],
    "edges": [{"sourceId": 1, "destId": 2, "communicationCost": 3.0}],
}


def written(path: Path, data: Any, **changes: Any) -> Path:
    """A file of some data with changes: dotted keys, with numbers for places in lists; ... takes a key away."""
    data = copy.deepcopy(data)
    for key, value in changes.items():
        *way, last = key.split("__")
        at = data
        for part in way:
            at = at[int(part)] if isinstance(at, list) else at[part]
        place: Any = int(last) if isinstance(at, list) else last
        if value is ...:
            del at[place]
        else:
            at[place] = value
    path.write_text(json.dumps(data))
    return path
