"""Real schedulers on one machine, and plans whose host order no sort gives."""

import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from meshwright.clusters.cluster import Cluster
from meshwright.export.launchers.slurm_topology import topology_conf
from meshwright.plans.document import PlacementPlan

from . import kubernetes, openmpi, processes, slurm
from .ray_cluster import LoopbackRay

HOSTS = ["gpu-07", "gpu-03", "gpu-11", "gpu-05"]
CLUSTER = slurm.cluster("four-hosts", HOSTS)
EIGHT = slurm.cluster("eight-hosts", [f"node{number}" for number in range(8)])

PlanOn = Callable[[Sequence[str]], PlacementPlan]


@pytest.fixture(scope="session")
def plan_on() -> PlanOn:
    """``plan_on(["gpu-07/1", "gpu-03/0"])``: a plan on the four hosts, a rank for each device named."""

    def make(devices: Sequence[str]) -> PlacementPlan:
        ranks = []
        for number, device in enumerate(devices):
            host, _, local = device.partition("/")
            identity = HOSTS.index(host) * slurm.DEVICES_PER_HOST + int(local)
            ranks.append({"rank": number, "host": host, "local_rank": int(local), "device": identity})
        cluster = {"name": CLUSTER["name"], "data": CLUSTER}
        return PlacementPlan.model_validate({"job": {"name": "proof"}, "cluster": cluster, "ranks": ranks})

    return make


def in_a_folder(name: str, start: Callable[[Path], Any]) -> Iterator[Any]:
    """A scheduler that runs in a folder of its own until the fixture ends."""
    with tempfile.TemporaryDirectory(prefix=f"meshwright-{name}-") as folder:
        running = start(Path(folder))
        try:
            yield running
        finally:
            running.stop()


@pytest.fixture(scope="session")
def loopback_slurm() -> Iterator[slurm.LoopbackSlurm]:
    """A running Slurm with the four hosts below the switches that our exporter wrote."""
    processes.require("slurm", *slurm.PROGRAMS)
    yield from in_a_folder("slurm", lambda folder: slurm.LoopbackSlurm(folder, HOSTS, topology_conf(Cluster.from_data(CLUSTER))))


@pytest.fixture(scope="session")
def slurm_with_hooks() -> Iterator[slurm.LoopbackSlurm]:
    """A running Slurm with eight hosts and our hooks, which ask at the socket ``service`` of its folder."""
    processes.require("slurm", *slurm.PROGRAMS)
    of_cluster = slurm.LoopbackSlurm.of_cluster
    yield from in_a_folder("slurm", lambda folder: of_cluster(folder, EIGHT, slurm.QUICK, server=f"unix:{folder}/service"))


@pytest.fixture
def hooked_slurm(slurm_with_hooks) -> Iterator[slurm.LoopbackSlurm]:
    """The running Slurm with our hooks; the next test finds all hosts idle, also where this one closed some."""
    try:
        yield slurm_with_hooks
    finally:
        slurm_with_hooks.restore()


@pytest.fixture(scope="session")
def loopback_mpi() -> Iterator[openmpi.LoopbackMpi]:
    """Open MPI with a remote shell that starts each host's daemon on this machine, under the host's name."""
    processes.require("openmpi", "mpirun", "orted", "unshare", "hostname")
    with tempfile.TemporaryDirectory(prefix="meshwright-mpi-") as folder:
        named = openmpi.LoopbackMpi(Path(folder))
        probe = subprocess.run(
            [named.agent, "other-name", "hostname"], env=dict(os.environ), capture_output=True, text=True, check=False
        )
        if probe.stdout.strip() != "other-name":
            pytest.skip(f"openmpi: this machine lets no process have a host name of its own: {probe.stderr.strip()[-200:]}")
        yield named


@pytest.fixture(scope="module")
def loopback_ray(request) -> Iterator[LoopbackRay]:
    """A running Ray with the GPUs of each host that the module names; it leaves nothing behind."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip(f"ray is not installed: {processes.why_absent('ray')}")
    running = LoopbackRay(request.module.GPUS)
    try:
        yield running
    finally:
        left = running.stop()
    assert left == []


@pytest.fixture(scope="session")
def kubernetes_server() -> Iterator[kubernetes.LoopbackKubernetes]:
    """A running Kubernetes without nodes."""
    processes.require("kubernetes", *kubernetes.PROGRAMS)
    yield from in_a_folder("kubernetes", kubernetes.LoopbackKubernetes)


@pytest.fixture
def loopback_kubernetes(kubernetes_server, monkeypatch) -> Iterator[kubernetes.LoopbackKubernetes]:
    """The running Kubernetes, which our command line asks too; what a test makes of nodes, jobs and pods is gone afterwards."""
    for name in ("KUBECONFIG", "PATH", "HOME"):
        monkeypatch.setenv(name, kubernetes_server.environment[name])
    try:
        yield kubernetes_server
    finally:
        kubernetes_server.clear()
