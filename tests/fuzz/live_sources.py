"""Readers of what schedulers list."""

import json
from collections import defaultdict
from pathlib import Path

from meshwright.live.sources import kubernetes, ray, slurm, slurm_json
from meshwright.live.sources.listings import Listing
from meshwright.live.state import ClusterState

from .inputs import ROOT
from .running import NonsenseError, Target

RECORDED = ROOT / "tests" / "live" / "sources" / "data"


def _possible(listing: Listing) -> None:
    """Refuse a device that is held twice or that its host does not have; a state is kept and read as it is."""
    state = listing.state
    held: defaultdict[str, set[int]] = defaultdict(set)
    for job in state.jobs:
        for host, devices in job.devices.items():
            size = state.hosts[host].num_devices if host in state.hosts else None
            if held[host] & set(devices) or (size is not None and devices and max(devices) >= size):
                raise NonsenseError(f"devices: {job.id} holds {devices} of {size} on {host}")
            held[host].update(devices)
    assert ClusterState.model_validate_json(state.model_dump_json()) == state
    assert all(remark and len(remark) < 1000 for remark in listing.remarks)


def _slurm(text: str, folder: Path) -> None:
    _possible(slurm.read(text))


def _slurm_json(text: str, folder: Path) -> None:
    _possible(slurm_json.read(text))


def _kubernetes(text: str, folder: Path) -> None:
    _possible(kubernetes.read(text))


def _ray(text: str, folder: Path) -> None:
    _possible(ray.read(text))


def _recorded(name: str) -> str:
    """A recorded JSON in one line, as mutations of a text want it."""
    return json.dumps(json.loads((RECORDED / name).read_text()))


SLURM_JSON = ("slurm-22.05-again.json", "slurm-v0.0.39-by-hand.json", "slurm-v0.0.41-by-hand.json")

TARGETS = (
    Target("slurm", "text", lambda: ((RECORDED / "slurm-22.05.txt").read_text(),), _slurm),
    Target("slurm-json", "text", lambda: tuple((RECORDED / name).read_text() for name in SLURM_JSON), _slurm_json),
    Target("kubernetes", "json", lambda: (_recorded("kubernetes.json"),), _kubernetes),
    Target("ray", "json", lambda: (_recorded("ray-2.60.json"),), _ray),
)
