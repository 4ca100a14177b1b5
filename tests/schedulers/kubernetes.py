"""A real Kubernetes without kubelets: etcd, API server, scheduler and controllers on free ports of the loopback, as this user.

The tests register nodes as a kubelet does. No container ever runs, so a bound pod stays `Pending` until a test says
otherwise.
"""

import csv
import json
import os
import secrets
import ssl
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from .processes import Daemons, free_ports, search_path, wait_for

PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kubectl", "openssl")
GPU = "nvidia.com/gpu"
GPUS_PER_NODE = 8
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
LOOPBACK = "127.0.0.1"

Object = dict[str, Any]

PATHS = {
    "Node": "/api/v1/nodes",
    "Namespace": "/api/v1/namespaces",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "Job": "/apis/batch/v1/namespaces/{namespace}/jobs",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "AdmissionCheck": "/apis/kueue.x-k8s.io/v1beta2/admissionchecks",
    "Workload": "/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
}
"""Where the objects of a kind are."""


class RefusedError(Exception):
    """The API server's answer in place of an object."""


class LoopbackKubernetes:
    """A running Kubernetes.

    Args:
        folder: an empty folder.
        configuration: keys of the scheduler's own configuration, as ``extenders``.
    """

    def __init__(self, folder: Path, configuration: Object | None = None) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.certificates = folder / "certificates"
        self.token = secrets.token_hex(16)
        (folder / "log").mkdir()
        self.environment = {**os.environ, "PATH": search_path(), "HOME": str(folder), "KUBECONFIG": str(self.kubeconfig)}
        self.daemons = Daemons(self.environment, folder / "log")
        etcd, peers, port, health = free_ports(4)
        self.address = f"https://{LOOPBACK}:{port}"
        try:
            self._start_server(f"http://{LOOPBACK}:{etcd}", f"http://{LOOPBACK}:{peers}", port)
            self._start_deciders(f"{LOOPBACK}:{health}", configuration or {})
        except BaseException:
            self.stop()
            raise

    def _start_server(self, etcd: str, peers: str, port: int) -> None:
        self.daemons.start(
            "etcd",
            "/usr/bin/env",
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={etcd}",
            f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
        )
        key = self.folder / "accounts.key"
        words = ("openssl", "genrsa", "-out", str(key), "2048")
        subprocess.run(words, env=self.environment, check=True, capture_output=True, timeout=60)
        with (self.folder / "tokens.csv").open("w", newline="") as file:
            csv.writer(file).writerow([self.token, "tester", "1", "system:masters"])
        self.daemons.start(
            "kube-apiserver",
            "/usr/bin/env",
            "kube-apiserver",
            f"--etcd-servers={etcd}",
            f"--bind-address={LOOPBACK}",
            f"--advertise-address={LOOPBACK}",
            f"--secure-port={port}",
            f"--cert-dir={self.certificates}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--service-account-issuer={self.address}",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--disable-admission-plugins=ServiceAccount",  # whose controller makes an account and a token in each namespace
        )
        self._write_kubeconfig()
        wait_for(self.is_ready, "the API server", limit_s=120, told=self.daemons.told)

    def _start_deciders(self, health: str, more: Object) -> None:
        """The scheduler and, of the controllers, those of jobs and nodes and those that remove pods."""
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1beta1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig)},
            "leaderElection": {"leaderElect": False},
            "healthzBindAddress": health,
            "metricsBindAddress": health,
            **more,
        }
        (self.folder / "scheduler.json").write_text(json.dumps(configuration))
        self.daemons.start(
            "kube-scheduler", "/usr/bin/env", "kube-scheduler", f"--config={self.folder / 'scheduler.json'}", "--secure-port=0"
        )
        self.daemons.start(
            "kube-controller-manager",
            "/usr/bin/env",
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            "--controllers=job,nodelifecycle,podgc,garbagecollector",
            "--leader-elect=false",
            "--port=0",
            "--secure-port=0",
            # No kubelet renews its node's lease here, so that a node is as its own status says.
            "--node-monitor-grace-period=24h",
            "--node-startup-grace-period=24h",
        )

    def _write_kubeconfig(self) -> None:
        authority = str(self.certificates / "apiserver.crt")
        named = {
            "clusters": [{"name": "loopback", "cluster": {"server": self.address, "certificate-authority": authority}}],
            "users": [{"name": "tester", "user": {"token": self.token}}],
            "contexts": [{"name": "loopback", "context": {"cluster": "loopback", "user": "tester"}}],
        }
        whole = {"apiVersion": "v1", "kind": "Config", "current-context": "loopback", **named}
        self.kubeconfig.write_text(json.dumps(whole))  # JSON is YAML

    def is_ready(self) -> bool:
        """Whether the API server answers, and has what it makes by itself."""
        try:
            self.ask("GET", "/readyz")
            self.ask("GET", "/api/v1/namespaces/default")
        except (OSError, RefusedError):
            return False
        return True

    def ask(self, method: str, path: str, content: Object | None = None, form: str = "application/json") -> Object:
        """A request to the API server, and what it answers.

        Raises:
            RefusedError: it refuses.
        """
        request = urllib.request.Request(
            self.address + path,
            method=method,
            data=None if content is None else json.dumps(content).encode(),
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": form},
        )
        trusted = ssl.create_default_context(cafile=str(self.certificates / "apiserver.crt"))
        try:
            with urllib.request.urlopen(request, context=trusted, timeout=30) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            raise RefusedError(error.read().decode()[:1000]) from None
        return json.loads(text) if text.startswith("{") else {}

    def create(self, content: Object, namespace: str = "default", path: str | None = None, *, dry_run: bool = False) -> Object:
        """Create an object, or let the server only check it; as the server has it then."""
        where = (path or PATHS[content["kind"]]).format(namespace=namespace)
        return self.ask("POST", where + ("?dryRun=All" if dry_run else ""), content)

    def patch(self, kind: str, name: str, change: Object, namespace: str = "default", part: str = "") -> Object:
        """Merge a change into an object or a part of it, ``/status``."""
        where = f"{PATHS[kind].format(namespace=namespace)}/{name}{part}"
        return self.ask("PATCH", where, change, "application/merge-patch+json")

    def delete(self, kind: str, name: str, namespace: str = "default", grace_s: int = 0) -> None:
        """Delete an object and what it owns; what ends by itself gets so many seconds for it."""
        where = f"{PATHS[kind].format(namespace=namespace)}/{name}"
        self.ask("DELETE", where, {"gracePeriodSeconds": grace_s, "propagationPolicy": "Background"})

    def listed(self, kind: str, namespace: str | None = "default") -> list[Object]:
        """All objects of a kind, of one namespace or, with None, of all."""
        path = PATHS[kind]
        path = path.replace("/namespaces/{namespace}", "") if namespace is None else path.format(namespace=namespace)
        result = self.ask("GET", path)["items"]
        assert isinstance(result, list)
        return result

    def add_node(self, name: str, *, gpus: int = GPUS_PER_NODE, allocatable: int | None = None, is_ready: bool = True) -> None:
        """Register a node, as its kubelet does it."""
        self.create({"kind": "Node", "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
        rest = {"cpu": "64", "memory": "512Gi", "pods": "110"}
        ready = READY if is_ready else {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
        usable = gpus if allocatable is None else allocatable
        status = {"capacity": rest | {GPU: str(gpus)}, "allocatable": rest | {GPU: str(usable)}, "conditions": [ready]}
        self.patch("Node", name, {"status": status}, part="/status")
        self.wait_for_taints(name, [] if is_ready else ["node.kubernetes.io/not-ready"])

    def wait_for_taints(self, node: str, keys: list[str]) -> None:
        """Wait until the controller of nodes has given a node these taints and no others."""

        def are_there() -> bool:
            taints = self.ask("GET", f"{PATHS['Node']}/{node}")["spec"].get("taints", [])
            return sorted({taint["key"] for taint in taints}) == keys

        wait_for(are_there, f"the taints of {node}", told=self.daemons.told)

    def clear(self) -> None:
        """Delete every job, pod and node."""
        now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}

        def are_gone() -> bool:
            for kind in ("Job", "Pod"):
                for namespace in {one["metadata"]["namespace"] for one in self.listed(kind, None)}:
                    self.ask("DELETE", PATHS[kind].format(namespace=namespace), now)
            return not self.listed("Job", None) and not self.listed("Pod", None)

        wait_for(are_gone, "the end of all pods", told=self.daemons.told)
        self.ask("DELETE", PATHS["Node"], now)

    def bound(self, namespace: str = "default") -> dict[str, str]:
        """The nodes of the pods that have one, by name."""
        return {
            pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in self.listed("Pod", namespace) if "nodeName" in pod["spec"]
        }

    def wait_until_bound(self, count: int, namespace: str = "default") -> dict[str, str]:
        """Wait until so many pods of a namespace have nodes; the nodes by pod."""
        wait_for(lambda: len(self.bound(namespace)) == count, f"{count} bound pods", told=self.daemons.told)
        return self.bound(namespace)

    def cannot_be_bound(self, namespace: str = "default") -> set[str]:
        """The pods that the scheduler has tried and found no node for."""
        tried = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        return {
            pod["metadata"]["name"]
            for pod in self.listed("Pod", namespace)
            if any(tried.items() <= condition.items() for condition in pod["status"].get("conditions", ()))
        }

    def stop(self) -> None:
        """End every program."""
        self.daemons.stop()
