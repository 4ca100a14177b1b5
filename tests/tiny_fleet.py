"""A fleet that is priced in a second: two convolutional networks on four hosts of four devices below two leaf switches."""

from functools import cache

from meshwright import settings
from meshwright.envs.fleet.fleet import build_fleet
from meshwright.envs.fleet.settings import FleetSettings

CLUSTER = """
name: tiny
device: a100
topology:
  kind: clos
  num_hosts: 4
  devices_per_host: 4
  intra_host_bandwidth_gbytes_per_s: 300.0
  intra_host_latency_us: 0.6
  nics_per_host: 2
  nic_bandwidth_gbytes_per_s: 12.5
  nic_latency_us: 1.35
  hosts_per_leaf: 2
  num_spines: 1
  oversubscription: 4.0
  spine_latency_us: 0.5
"""

SETTINGS = {
    "job_types": [
        {"name": "vgg16", "job": "zoo:vgg16", "global_batch": 256},
        {"name": "resnet18", "job": "zoo:resnet18", "global_batch": 256},
    ],
    "menu": {"degrees": [1, 2, 4, 8, 16], "layouts": 2},
    "num_jobs": 30,
    "load": 0.9,
    "duration": {"median_s": 300.0, "sigma": 1.0, "most_s": 3000.0},
    "requested": {2: 1.0, 4: 2.0, 8: 1.0},
    "queue_capacity": 20,
    "visible_jobs": 4,
}


@cache
def _written(folder):
    path = folder / "tiny.yaml"
    path.write_text(CLUSTER)
    return str(path)


def fleet_settings(folder, **changes):
    """Settings of the tiny fleet, its cluster written into a folder."""
    return settings.build_settings(FleetSettings, {**SETTINGS, "cluster": _written(folder), **changes})


def tiny_fleet(folder, **changes):
    """The tiny fleet; each menu is priced once for all tests of a process."""
    return build_fleet(fleet_settings(folder, **changes))
