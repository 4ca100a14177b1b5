"""Workloads of Kueue, and an API that is a dictionary."""

from __future__ import annotations

import asyncio
import copy
import tempfile
from contextlib import contextmanager
from pathlib import Path

from meshwright.errors import ConflictError, InputFileError, StateError
from meshwright.live.actuators import kubernetes_api
from meshwright.live.actuators.kueue_check import API, KueueCheck
from meshwright.live.actuators.kueue_objects import CONTROLLER, KueueWorkload
from meshwright.live.service import Service

from ..controller_samples import controller
from ..live_samples import HOSTS

CHECK = "ours"
BASE = f"{API}/v1beta2"
ASKED = {"name": CHECK, "state": "Pending", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}


def workload(name, count=2, devices=2, job="zoo:alexnet", generation=1, **status):
    """One with quota that asks our check, and another one that we leave alone."""
    limits = {"resources": {"limits": {"nvidia.com/gpu": devices}}} if devices else {}
    annotations = {"meshwright.dev/job": job, "meshwright.dev/steps": "100"} if job else {}
    template = {"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c", **limits}]}}
    other = ASKED | {"name": "theirs", "state": "Ready", "retryCount": 3}
    return {
        "metadata": {"name": name, "namespace": "team", "uid": f"u-{name}", "generation": generation, "creationTimestamp": name},
        "spec": {"podSets": [{"name": "main", "count": count, "template": template}], "unknown": [1]},
        "status": {
            "conditions": [{"type": "QuotaReserved", "status": "True"}],
            "admissionChecks": [other, dict(ASKED)],
            "unknown": {"kept": True},
            **status,
        },
    }


class DictApi:
    """An API with Workloads and nodes; calls may fail, and lists come in any order, with repetitions."""

    def __init__(self):
        self.check = {"metadata": {"generation": 1}, "spec": {"controllerName": CONTROLLER}}
        self.workloads: dict[str, dict] = {}
        self.nodes = {host: {"metadata": {"name": host, "labels": {}}} for host in HOSTS}
        self.failing: set[int] = set()
        self.order = lambda items: items
        self.calls = self.writes = 0

    def _count(self):
        self.calls += 1
        if self.calls in self.failing:
            raise InputFileError("no answer", file="kubectl")

    def get(self, path):
        self._count()
        if path == API:
            return {"versions": [{"version": "v1beta1"}, {"version": "v1beta2"}]}
        if path == "/api/v1/nodes":
            return {"items": copy.deepcopy(list(self.nodes.values()))}
        if path.startswith(f"{BASE}/admissionchecks"):
            return copy.deepcopy(self.check)
        return {"metadata": {}, "items": self.order(copy.deepcopy(list(self.workloads.values())))}

    def replace(self, path, content):
        self._count()
        self.writes += 1
        if "admissionchecks" in path:
            self.check = content
            return
        name = path.split("/")[-2]
        if name not in self.workloads:
            raise StateError("(NotFound)")
        if content.get("version", 0) != self.workloads[name].get("version", 0):
            raise ConflictError("(Conflict)")
        self.workloads[name] = {**content, "version": content.get("version", 0) + 1}

    def label_nodes(self, names, key, value):
        self._count()
        for name in names:
            labels = self.nodes[name]["metadata"]["labels"]
            if value is None:
                labels.pop(key, None)
            else:
                labels[key] = value

    def says(self, name) -> dict:
        return next(one for one in self.workloads[name]["status"]["admissionChecks"] if one["name"] == CHECK)

    def given(self) -> dict[str, str]:
        """The decision of each Workload with quota that has one."""
        result = {name: KueueWorkload(one, CHECK) for name, one in self.workloads.items()}
        return {name: one.updates for name, one in result.items() if one.may_hold and one.updates is not None}


def stand_in(patch) -> DictApi:
    """A dictionary in place of the real API, as long as the patch holds."""
    made = DictApi()
    for name in ("get", "replace", "label_nodes"):
        patch.setattr(kubernetes_api, name, lambda *words, name=name: getattr(made, name)(*words))
    return made


@contextmanager
def turns(planners, path=None, clock=None):
    """A call that lets a service take some turns, and the controller."""
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        path = path or Path(folder) / "s.db"
        made = controller(path, planners, clock)
        service = Service(made, path)
        check = KueueCheck(CHECK, service)

        async def take(number):
            for _ in range(number):
                await check.turn()

        runner.run(service.start())
        try:
            yield lambda number=1: runner.run(take(number)), made
        finally:
            runner.run(service.stop())


def held(made) -> set[str]:
    return {job.id for job in made.store.last()[1].jobs}
