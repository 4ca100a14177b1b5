"""Exports for Kubernetes under a real API server and scheduler: nothing is dropped, and ranks come to their hosts.

The controllers of JobSet, Trainer, Volcano and Kueue are not there. Their resources are checked by their published CRDs, without
the rules in CEL, which Kubernetes 1.20 does not know. Where a pod of theirs is to be bound, the test makes the Job that they
make, and the real job controller makes the pod.
"""

import re
from copy import deepcopy
from typing import Any

import pytest
import yaml

from meshwright.cli import run_command_line as meshwright
from meshwright.export import export
from meshwright.live.keeping import KeptState
from meshwright.plans.document import PlacementPlan

from ..export.across_hosts import two_stages_of_two_groups
from ..export.kubernetes.custom_resources import documents
from . import processes
from .conftest import HOSTS
from .kubernetes import GPU, GPUS_PER_NODE, LoopbackKubernetes, Object, RefusedError

pytestmark = pytest.mark.scheduler("kubernetes")

CRDS = {
    "JobSet": "jobset-v0.12.0",
    "TrainJob": "trainjob-v2.3.0",
    "Job": "volcano-job-v1.15.1",
    "HyperNode": "volcano-hypernode-v1.15.1",
    "Topology": "kueue-topology-v0.19.2",
    "ResourceFlavor": "kueue-resourceflavor-v0.19.2",
}
"""Files of the CRDs in the reference data, by the kind of the resource."""

LATER = "completionMode"
"""Of a Job, since Kubernetes 1.21: 1.20 drops it, and gives the only pod of a Job no index."""


@pytest.fixture(scope="module")
def resources(kubernetes_server, reference) -> dict[str, str]:
    """Where the API server takes the resources of each kind, once their CRDs are known to it."""
    paths = {}
    for kind, name in CRDS.items():
        crd = yaml.load((reference / "schedulers/crds" / f"{name}.yaml").read_text(), Loader=yaml.CSafeLoader)
        kubernetes_server.create(_without_empty_defaults(crd))
        spec = crd["spec"]
        scope = "namespaces/default/" if spec["scope"] == "Namespaced" else ""
        version = "v1beta2" if "kueue" in spec["group"] else spec["versions"][0]["name"]
        paths[kind] = f"/apis/{spec['group']}/{version}/{scope}{spec['names']['plural']}"
        processes.wait_for(lambda path=paths[kind]: _is_served(kubernetes_server, path), f"the resource {kind}")
    return paths


def _without_empty_defaults(schema: Any) -> Any:
    """A CRD in which texts that are empty by default are required: Kubernetes 1.20 takes such a default for null, and refuses."""
    if isinstance(schema, list):
        return [_without_empty_defaults(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    stored = {key: _without_empty_defaults(part) for key, part in schema.items() if key != "default" or part != ""}
    parts = schema.get("properties")
    if isinstance(parts, dict) and (expected := [name for name, part in parts.items() if part.get("default") == ""]):
        stored["required"] = sorted({*schema.get("required", ()), *expected})
    return stored


def _is_served(server: LoopbackKubernetes, path: str) -> bool:
    try:
        server.ask("GET", path)
    except RefusedError:
        return False
    return True


def test_the_server_keeps_every_field_of_every_form(kubernetes_server, resources):
    files = export(two_stages_of_two_groups(), "kubernetes", {"kubernetes": "all", "name": "gpt7b", "decision": "run-1"})
    written = [one for name, text in files.items() if name.endswith(".yaml") for one in documents(text)]
    assert {one["kind"] for one in written} == set(resources)
    for one in written:
        assert dropped(one, kubernetes_server.create(one, path=resources[one["kind"]], dry_run=True)) == []
    (jobset,) = documents(files["jobset.yaml"])
    misspelt = deepcopy(jobset)
    misspelt["spec"]["replicatedJobs"][0]["replica"] = 1
    stored = kubernetes_server.create(misspelt, path=resources["JobSet"], dry_run=True)
    assert dropped(misspelt, stored) == [".spec.replicatedJobs.0.replica"]
    jobset["spec"]["replicatedJobs"][0]["replicas"] = "one"
    with pytest.raises(RefusedError, match="must be of type integer"):
        kubernetes_server.create(jobset, path=resources["JobSet"], dry_run=True)


def test_every_rank_comes_to_its_host_and_the_state_knows_the_plan(loopback_kubernetes, plan_on, tmp_path, capsys):
    server = loopback_kubernetes
    for name in ("gpu-01", *HOSTS, "gpu-99"):
        server.add_node(name)
    plan = plan_on([f"{host}/{device}" for host in HOSTS for device in (1, 0, 3)])
    plan.save(tmp_path / "first.json")
    state = str(tmp_path / "state.db")
    assert meshwright(["state", "read", "kubernetes", "--state", state]) == 0
    assert meshwright(["state", "add", str(tmp_path / "first.json"), "--state", state]) == 0
    out = str(tmp_path / "deploy")
    words = ["export", str(tmp_path / "first.json"), "--format", "kubernetes", "--out", out, "--set", "decision=first"]
    assert meshwright([*words, "--set", "name=gpt7b"]) == 0
    (jobset,) = documents((tmp_path / "deploy" / "jobset.yaml").read_text())
    made = jobs_of_jobset(jobset)
    for one in made:
        assert dropped(one, server.create(one)) == [f".spec.{LATER}"]
    server.wait_until_bound(len(HOSTS))
    assert hosts_by_rank(server) == {rank.rank: rank.host for rank in plan.ranks}
    capsys.readouterr()
    assert meshwright(["state", "read", "kubernetes", "--state", state]) == 0
    output = capsys.readouterr().out
    assert "1 job on 12 devices, 0 hosts closed" in output
    assert "not as it was known" not in output
    (job,) = KeptState(tmp_path / "state.db").read().jobs
    assert (job.id, job.decision, job.source) == ("default/gpt7b", "first", "kubernetes")
    assert job.devices == dict.fromkeys(HOSTS, (0, 1, 3))  # those that were planned


def test_a_pod_that_is_bound_elsewhere_than_planned_is_told(loopback_kubernetes, plan_on, tmp_path, capsys):
    server = loopback_kubernetes
    for name in (*HOSTS, "gpu-99"):
        server.add_node(name)
    plan = plan_on([f"{host}/0" for host in HOSTS])
    plan.save(tmp_path / "first.json")
    state = str(tmp_path / "state.db")
    assert meshwright(["state", "add", str(tmp_path / "first.json"), "--state", state]) == 0
    (jobset,) = documents(export(plan, "kubernetes", {"decision": "first", "name": "gpt7b"})["jobset.yaml"])
    made = jobs_of_jobset(jobset)
    text = str(made[1]["spec"]["template"]["spec"].pop("affinity"))
    assert HOSTS[1] in text
    made[1]["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "gpu-99"}
    for one in made:
        server.create(one)
    server.wait_until_bound(len(HOSTS))
    assert hosts_by_rank(server) == {rank.rank: rank.host for rank in plan.ranks} | {1: "gpu-99"}
    capsys.readouterr()
    assert meshwright(["state", "read", "kubernetes", "--state", state]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert (
        "not as it was known: default/gpt7b runs on gpu-05/0, gpu-07/0, gpu-11/0, gpu-99/0, "
        "planned as first was gpu-03/0, gpu-05/0, gpu-07/0, gpu-11/0"
    ) in output


def test_a_host_without_room_keeps_its_pod_waiting_and_no_other_host_gets_it(loopback_kubernetes, plan_on):
    for name in (*HOSTS, "gpu-99"):
        loopback_kubernetes.add_node(name, gpus=1 if name == HOSTS[1] else GPUS_PER_NODE)
    (jobset,) = documents(export(plan_on([f"{host}/{one}" for host in HOSTS for one in (0, 1)]), "kubernetes")["jobset.yaml"])
    for one in jobs_of_jobset(jobset):
        loopback_kubernetes.create(one)
    loopback_kubernetes.wait_until_bound(len(HOSTS) - 1)
    processes.wait_for(lambda: len(loopback_kubernetes.cannot_be_bound()) == 1, "the pod that does not fit")
    assert sorted(loopback_kubernetes.bound().values()) == sorted({*HOSTS} - {HOSTS[1]})


@pytest.mark.parametrize("form", ["trainjob", "volcano", "kueue"])
def test_pods_that_share_a_template_take_the_planned_hosts_one_each(loopback_kubernetes, form):
    """By the Kubernetes scheduler: Volcano has one of its own, which is not there."""
    server = loopback_kubernetes
    plan = two_stages_of_two_groups()
    for name in ("l9-h0", *plan.host_order, "l9-h1"):
        server.add_node(name)
    for number, (count, template) in enumerate(shared_templates(plan, form)):
        spec = {"parallelism": count, "completions": count, "template": template}
        server.create({"kind": "Job", "metadata": {"name": f"made-{number}"}, "spec": spec})
    bound = server.wait_until_bound(len(plan.host_order))
    assert sorted(bound.values()) == sorted(plan.host_order)
    if form == "volcano":  # a task for each stage
        for number, hosts in enumerate((plan.host_order[:4], plan.host_order[4:])):
            assert {node for name, node in bound.items() if name.startswith(f"made-{number}-")} == set(hosts)


def jobs_of_jobset(jobset: Object) -> list[Object]:
    """The Jobs that JobSet makes of a JobSet, one of each replicated job, with the labels that it gives their pods."""
    name = jobset["metadata"]["name"]
    made = []
    for one in jobset["spec"]["replicatedJobs"]:
        assert one["replicas"] == 1
        spec = deepcopy(one["template"]["spec"])
        metadata = spec["template"].setdefault("metadata", {})
        labels = {"jobset-name": name, "replicatedjob-name": one["name"], "job-index": "0", "restart-attempt": "0"}
        metadata["labels"] = metadata.get("labels", {}) | {f"jobset.sigs.k8s.io/{key}": text for key, text in labels.items()}
        made.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"{name}-{one['name']}-0"}, "spec": spec})
    return made


def shared_templates(plan: PlacementPlan, form: str) -> list[tuple[int, Object]]:
    """The pod templates of a form with the number of their pods, and with the labels and fields that its controller adds."""
    files = export(plan, "kubernetes", {"kubernetes": form, "name": "gpt7b"})
    if form == "kueue":
        (result,) = documents(files["kueue-jobset.yaml"])
        (job,) = jobs_of_jobset(result)
        return [(job["spec"]["completions"], job["spec"]["template"])]
    if form == "volcano":
        (result,) = documents(files["volcano-job.yaml"])
        tasks = result["spec"]["tasks"]
        return [(task["replicas"], _labelled(task["template"], "volcano.sh/job-name")) for task in tasks]
    (result,) = documents(files["trainjob.yaml"])
    trainer, (patch,) = result["spec"]["trainer"], result["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    template = node["template"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    container |= {key: trainer[key] for key in ("image", "command", "env")} | {"resources": trainer["resourcesPerNode"]}
    template["spec"]["restartPolicy"] = "Never"
    return [(trainer["numNodes"], _labelled(template, "jobset.sigs.k8s.io/jobset-name"))]


def _labelled(template: Object, label: str) -> Object:
    return template | {"metadata": {"labels": {label: "gpt7b"}}}


def hosts_by_rank(server: LoopbackKubernetes) -> dict[int, str]:
    """The node on which each rank starts, from what the pods run: torchrun numbers ranks by node rank and processes of a node."""
    results: dict[int, str] = {}
    for pod in server.listed("Pod"):
        (container,) = pod["spec"]["containers"]
        words = " ".join(container["command"])
        node_rank, per_node = (int(re.search(rf"--{name}=(\d+)", words)[1]) for name in ("node-rank", "nproc-per-node"))
        assert container["resources"]["requests"] == container["resources"]["limits"] == {GPU: str(per_node)}
        for local in range(per_node):
            rank = node_rank * per_node + local
            assert rank not in results
            results[rank] = pod["spec"]["nodeName"]
    return dict(sorted(results.items()))


def dropped(sent: Any, stored: Any, path: str = "") -> list[str]:
    """Where what the server has is not what it was sent; what it adds by itself does not count."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        return [one for key in sent for one in dropped(sent[key], stored.get(key), f"{path}.{key}")]
    if isinstance(sent, list) and isinstance(stored, list) and len(sent) == len(stored):
        return [one for number, part in enumerate(sent) for one in dropped(part, stored[number], f"{path}.{number}")]
    is_quantity = path.rpartition(".")[2] == GPU.rpartition(".")[2] and str(sent) == str(stored)
    return [] if sent == stored or is_quantity else [path]
