"""A stand-in for Ray: as much of it as the exported driver uses, without a cluster.

``STAND_IN_NODES`` holds, as JSON, a list of ``[label, free GPUs, all GPUs]`` for the nodes; node ``i`` is 192.0.2.i. Actors
run at once, in the driver's own process, so that no line of theirs comes late and nobody waits for one. A bundle goes to the
first node with its label that has a GPU left. With ``STAND_IN_SHUFFLED`` it goes to any node: some releases of Ray ignored
labels. With ``STAND_IN_OLD`` bundles know no labels.
"""

from pathlib import Path

_RAY = """
import json
import os
import time

time.sleep = lambda seconds: None

__version__ = "2.0"
NODES = [dict(label=label, free=list(range(free)), all=total) for label, free, total in json.loads(os.environ["STAND_IN_NODES"])]
RESULTS = {}
HERE = {}


class RayError(Exception):
    pass


class exceptions:
    RayError = RayError


class PlacementGroup:
    def __init__(self, selectors):
        self.places = []
        for selector in selectors:
            for number, node in enumerate(NODES):
                is_right = "STAND_IN_SHUFFLED" in os.environ or selector == {"host": node["label"]}
                if is_right and node["free"]:
                    self.places.append((number, node["free"].pop(0)))
                    break
        self.is_whole = len(self.places) == len(selectors)
        if not self.is_whole:
            give_back(self)

    def wait(self, seconds):
        return self.is_whole


def give_back(group):
    for number, gpu in group.places:
        NODES[number]["free"] = sorted([*NODES[number]["free"], gpu])
    group.places = []


class Method:
    def __init__(self, bound, place):
        self.bound, self.place = bound, place

    def remote(self, *arguments):
        HERE["place"] = self.place
        name = f"result{len(RESULTS)}"
        RESULTS[name] = self.bound(*arguments)
        return name


class Actor:
    def __init__(self, instance, place):
        self._instance, self._place = instance, place

    def __getattr__(self, name):
        return Method(getattr(self._instance, name), self._place)


class Remote:
    def __init__(self, kind):
        self.kind = kind

    def options(self, scheduling_strategy):
        return Placed(self.kind, scheduling_strategy)


class Placed:
    def __init__(self, kind, strategy):
        self.kind, self.strategy = kind, strategy

    def remote(self):
        return Actor(self.kind(), self.strategy.group.places[self.strategy.index])


class Context:
    def get_node_id(self):
        return f"node{HERE['place'][0]}"


def init(address, log_to_driver):
    if address == "nowhere":
        raise ConnectionError("nobody answers")


def remote(**options):
    assert options["num_gpus"] == 1
    return Remote


def nodes():
    return [
        {"NodeID": f"node{i}", "Alive": True, "Labels": {"host": n["label"]}, "Resources": {"GPU": float(n["all"])}}
        for i, n in enumerate(NODES)
    ]


def get(reference):
    return [RESULTS[each] for each in reference] if isinstance(reference, list) else RESULTS[reference]


def wait(references, num_returns=1, timeout=None):
    return references[:num_returns], references[num_returns:]


def get_runtime_context():
    return Context()


def get_gpu_ids():
    return [HERE["place"][1]]


def kill(actor):
    pass


def shutdown():
    pass
"""

_UTIL = """
import os

from ray import HERE, PlacementGroup, give_back


def get_node_ip_address():
    return f"192.0.2.{HERE['place'][0]}"


def placement_group(bundles, strategy="PACK", name="", bundle_label_selector=()):
    assert bundles == [{"GPU": 1}] * len(bundle_label_selector)
    return PlacementGroup(bundle_label_selector)


def remove_placement_group(group):
    give_back(group)


if "STAND_IN_OLD" in os.environ:

    def placement_group(bundles, strategy="PACK", name=""):
        return PlacementGroup([])
"""

_STRATEGIES = """
class PlacementGroupSchedulingStrategy:
    def __init__(self, group, placement_group_bundle_index):
        self.group, self.index = group, placement_group_bundle_index
"""


def install(folder: Path) -> None:
    """Write the package into a folder, which PYTHONPATH can then name."""
    (folder / "ray" / "util").mkdir(parents=True)
    (folder / "ray" / "__init__.py").write_text(_RAY)
    (folder / "ray" / "util" / "__init__.py").write_text(_UTIL)
    (folder / "ray" / "util" / "scheduling_strategies.py").write_text(_STRATEGIES)
