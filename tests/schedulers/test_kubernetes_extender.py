"""A real kube-scheduler asks the service: pods of a decision come to its hosts, others anywhere, all where nobody answers."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshwright.export.kubernetes.pods import DECISION_LABEL
from meshwright.live.client import Client
from meshwright.live.decisions import JobRequest

from . import kubernetes, processes
from .kubernetes import GPUS_PER_NODE
from .test_kubernetes_state import pod

pytestmark = pytest.mark.scheduler("kubernetes")

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


@pytest.fixture(scope="module")
def asked(tmp_path_factory) -> Iterator[tuple[kubernetes.LoopbackKubernetes, Client, subprocess.Popen[bytes]]]:
    """A Kubernetes whose scheduler asks a service, which asks its API server; and the service."""
    processes.require("kubernetes", *kubernetes.PROGRAMS)
    folder = tmp_path_factory.mktemp("service")
    (folder / "three.yaml").write_text(CLUSTER)
    (port,) = processes.free_ports(1)
    extender = {
        "urlPrefix": f"http://127.0.0.1:{port}/v1/extender",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "weight": 100,
        "nodeCacheCapable": True,
        "ignorable": True,
        "httpTimeout": "200ms",
    }
    with tempfile.TemporaryDirectory(prefix="meshwright-kubernetes-") as own:
        server = kubernetes.LoopbackKubernetes(Path(own), {"extenders": [extender]})
        for name in HOSTS:
            server.add_node(name)
        words = ["--cluster", "three.yaml", "--policy", "fastest-feasible", "--state", "s.db", "--port", str(port)]
        words += ["--source", "kubernetes", "--resync-s", "0.5"]
        with (folder / "log").open("w") as log:
            service = subprocess.Popen(
                [sys.executable, "-c", "from meshwright.cli import main; main()", "serve", *words],
                cwd=folder,
                stdout=log,
                stderr=log,
                env=os.environ | {name: server.environment[name] for name in ("KUBECONFIG", "PATH", "HOME")},
            )
        try:
            processes.wait_for(lambda: "listening on" in (folder / "log").read_text(), "the service")
            yield server, Client(f"http://127.0.0.1:{port}"), service
        finally:
            service.terminate()
            service.wait()
            server.stop()


def labelled(name, *counts, decision):
    made = pod(name, *counts)
    made["metadata"]["labels"] = {DECISION_LABEL: decision}
    return made


def test_pods_of_a_decision_come_to_its_hosts_and_all_others_where_the_scheduler_likes(asked):
    server, client, service = asked
    decisions = [client.decide(WHOLE).decision for _ in HOSTS]
    planned = {decision.id: {rank["host"] for rank in decision.plan["ranks"]} for decision in decisions}
    assert sorted(host for hosts in planned.values() for host in hosts) == sorted(HOSTS)
    for number, decision in enumerate(reversed(decisions)):  # the scheduler by itself takes them in any order
        for part in range(2):
            server.create(labelled(f"part-{number}-{part}", GPUS_PER_NODE // 2, decision=decision.id))
    bound = server.wait_until_bound(6)
    for number, decision in enumerate(reversed(decisions)):
        assert {bound[f"part-{number}-{part}"] for part in range(2)} == planned[decision.id]
    for decision in decisions:
        processes.wait_for(lambda: client.view(decision.id)["status"] == "running", "running decisions")  # noqa: B023
    server.create(pod("other", 0))
    server.create(labelled("unknown", 0, decision="no-such-decision"))
    assert len(server.wait_until_bound(8)) == 8
    for name in bound:
        server.delete("Pod", name)
    for decision in decisions:
        processes.wait_for(lambda: client.view(decision.id)["status"] == "ended", "ended decisions")  # noqa: B023

    again = client.decide(WHOLE).decision
    service.kill()
    service.wait()
    began_s = time.monotonic()
    server.create(labelled("without", GPUS_PER_NODE, decision=again.id))
    processes.wait_for(lambda: "without" in server.bound(), "a pod that nobody was asked about")
    assert time.monotonic() - began_s < 30
