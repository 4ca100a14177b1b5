"""A service next to a real Kubernetes, whose scheduler asks it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from meshwright.export.kubernetes.pods import DECISION_LABEL
from meshwright.live.client import Client
from meshwright.live.decisions import JobRequest

from .. import kubernetes, processes
from ..kubernetes import GPUS_PER_NODE
from ..test_kubernetes_state import pod

HOSTS = ("gpu-03", "gpu-05", "gpu-07")
CLUSTER = f"""name: three
device: a100
host_names: [{", ".join(HOSTS)}]
topology:
  kind: clos
  num_hosts: 3
  devices_per_host: {GPUS_PER_NODE}
  intra_host_bandwidth_gbytes_per_s: 300.0
  intra_host_latency_us: 0.6
  nics_per_host: 4
  nic_bandwidth_gbytes_per_s: 12.5
  nic_latency_us: 1.35
  hosts_per_leaf: 3
  num_spines: 1
  oversubscription: 2.0
  spine_latency_us: 0.5
"""
WHOLE = JobRequest(job="zoo:alexnet", steps=100, devices=GPUS_PER_NODE)


LOOK_FIRST = {
    "filterVerb": "filter",
    "prioritizeVerb": "prioritize",
    "weight": 100,
    "nodeCacheCapable": True,
    "ignorable": True,
    "httpTimeout": "200ms",
}
"""A scheduler's configuration from docs/service.md."""

BIND = {
    "bindVerb": "bind",
    "nodeCacheCapable": True,
    "ignorable": True,
    "httpTimeout": "5s",
    "managedResources": [{"name": kubernetes.GPU}],
}
"""The same of the pods that want GPUs, once they have their nodes."""


class ServedKubernetes:
    """A Kubernetes of three nodes whose scheduler asks a service, which asks its API server.

    Args:
        folder: of the service.
        own: empty folder of the Kubernetes.
        extenders: what the scheduler asks, without the address.
        words: more options of the service.
    """

    def __init__(self, folder: Path, own: Path, extenders: Sequence[dict], words: Sequence[str]) -> None:
        self.folder = folder
        (folder / "three.yaml").write_text(CLUSTER)
        (self.port,) = processes.free_ports(1)
        request = [{"urlPrefix": f"http://127.0.0.1:{self.port}/v1/extender", **extender} for extender in extenders]
        self.server = kubernetes.LoopbackKubernetes(own, {"extenders": request} if request else None)
        for name in HOSTS:
            self.server.add_node(name)
        self.client = Client(f"http://127.0.0.1:{self.port}")
        self._words = ["--cluster", "three.yaml", "--policy", "fastest-feasible", "--state", "s.db", "--listen", f":{self.port}"]
        self._words += ["--source", "kubernetes", *words]
        self._service: subprocess.Popen[bytes] | None = None

    @property
    def told(self) -> str:
        """Output of the service since it started last."""
        return (self.folder / "log").read_text()

    def start(self) -> None:
        """Start the service, on what it knew before."""
        with (self.folder / "log").open("w") as log:
            self._service = subprocess.Popen(
                [sys.executable, "-c", "from meshwright.cli import main; main()", "serve", *self._words],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env=os.environ | {name: self.server.environment[name] for name in ("KUBECONFIG", "PATH", "HOME")},
            )
        processes.wait_for(lambda: "listening on" in self.told, "the service", told=lambda: self.told)

    def kill(self) -> None:
        """End the service at once."""
        if self._service is not None:
            self._service.kill()
            self._service.wait()


@contextmanager
def served_kubernetes(folder: Path, extenders: Sequence[dict], *words: str) -> Iterator[ServedKubernetes]:
    """A `ServedKubernetes` that runs meanwhile; arguments as of it."""
    processes.require("kubernetes", *kubernetes.PROGRAMS)
    with tempfile.TemporaryDirectory(prefix="meshwright-kubernetes-") as own:
        served = ServedKubernetes(folder, Path(own), extenders, words)
        try:
            served.start()
            yield served
        finally:
            served.kill()
            served.server.stop()


def labelled(name: str, *counts: int, decision: str) -> dict:
    """A pod that names a decision."""
    made = pod(name, *counts)
    made["metadata"]["labels"] = {DECISION_LABEL: decision}
    return made


def hosts_of(decision) -> set[str]:
    """The hosts of a decision's plan."""
    return {rank["host"] for rank in decision.plan["ranks"]}
