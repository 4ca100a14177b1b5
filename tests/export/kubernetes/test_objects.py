"""Every object that the Kubernetes forms write, as a whole: no field more, none less, each with the value of the plan."""

import re
from typing import Any
from unittest.mock import ANY

from meshwright.export import export

from ..across_hosts import plan_across, two_stages_of_two_groups
from .custom_resources import documents, pinned_to

OPTIONS = {"name": "gpt7b", "image": "ghcr.io/acme/train:1", "script": "train.py --epochs 3", "master_port": 31_337}
CLUSTER = "clos-64-4to1"


def test_the_jobset(make_plan):
    (result,) = _written(make_plan(["gpu-07", "gpu-07", "gpu-03", "gpu-03"], [5, 4, 1, 3]), "jobset", "jobset.yaml")
    master = "gpt7b-node0-0-0.gpt7b"
    assert result == _jobset(
        # of devices 5 and 4 the pod sees 4 as its first GPU; of 1 and 3, 1
        _replicated("node0", 1, _pod(_torchrun(2, 2, master, 0), _on("gpu-07"), "1,0")),
        _replicated("node1", 1, _pod(_torchrun(2, 2, master, 1), _on("gpu-03"), "0,1")),
    )


def test_the_trainjob(make_plan):
    (result,) = _written(make_plan(["gpu-07", "gpu-07", "gpu-03", "gpu-03"], [5, 4, 3, 1]), "trainjob", "trainjob.yaml")
    pod = _pod([], _on("gpu-07", "gpu-03") | _apart({"jobset.sigs.k8s.io/jobset-name": "gpt7b"}), "1,0")
    (container,) = pod["containers"]
    container["command"] = ["python", "-c", ANY, "gpu-07,gpu-03", "--rdzv-backend=static", "train.py", "--epochs", "3"]
    container["env"].insert(0, {"name": "MESHWRIGHT_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    patch = {
        "affinity": pod["affinity"],
        "containers": [{"name": "node", "volumeMounts": container["volumeMounts"]}],
        "volumes": pod["volumes"],
    }
    node = {"name": "node", "template": {"spec": {"template": {"spec": patch}}}}
    trainer = {key: container[key] for key in ("image", "command", "env")}
    runtime = {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "torch-distributed"}
    assert result == {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "gpt7b"},
        "spec": {
            "runtimeRef": runtime,
            "trainer": trainer | {"numNodes": 2, "numProcPerNode": 2, "resourcesPerNode": container["resources"]},
            "runtimePatches": [
                {"manager": "meshwright", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [node]}}}}
            ],
        },
    }


def test_volcanos_job_with_a_task_for_each_host(make_plan):
    plan = make_plan(["gpu-07", "gpu-07", "gpu-03", "gpu-03"], [5, 4, 1, 3])
    (result,) = _written(plan, "volcano", "volcano-job.yaml", queue="team-a")
    master = "gpt7b-node0-0.gpt7b"
    assert result == _volcano(
        {"queue": "team-a", "minAvailable": 2},
        {"name": "node0", "replicas": 1, "template": {"spec": _pod(_torchrun(2, 2, master, 0), _on("gpu-07"), "1,0")}},
        {"name": "node1", "replicas": 1, "template": {"spec": _pod(_torchrun(2, 2, master, 1), _on("gpu-03"), "0,1")}},
    )


def test_volcanos_job_with_a_task_for_each_stage():
    (result,) = _written(two_stages_of_two_groups(), "volcano", "volcano-job.yaml")
    words = _torchrun(8, 8, "gpt7b-stage0-0.gpt7b")
    tasks = []
    for stage, hosts in enumerate((["l3-h1", "l3-h0", "l0-h0", "l0-h1"], ["l2-h1", "l2-h0", "l1-h0", "l1-h1"])):
        command = ["sh", "-c", f'exec torchrun --node-rank="$$(({4 * stage} + VC_TASK_INDEX))" "$$@"', *words]
        affinity = _on(*hosts) | _apart({"volcano.sh/job-name": "gpt7b"})
        leaf = {"mode": "hard", "highestTierAllowed": 1}
        tasks.append(
            {
                "name": f"stage{stage}",
                "replicas": 4,
                "partitionPolicy": {"totalPartitions": 2, "partitionSize": 2, "networkTopology": leaf},
                "template": {"spec": _pod(command, affinity, "0,1,2,3,4,5,6,7")},
            }
        )
    network = {"mode": "hard", "highestTierAllowed": 2}
    assert result == _volcano({"queue": "default", "minAvailable": 8, "networkTopology": network}, *tasks)


def test_volcanos_stages_number_their_hosts_one_after_another():
    (result,) = _written(plan_across(range(8), "tp=16,pp=4"), "volcano", "volcano-job.yaml")
    pods = [task["template"]["spec"] for task in result["spec"]["tasks"]]
    firsts = [int(re.search(r"\((\d+) \+ VC_TASK_INDEX\)", pod["containers"][0]["command"][2])[1]) for pod in pods]
    assert firsts == [0, 2, 4, 6]
    assert [host for pod in pods for host in pinned_to(pod)] == [f"l{leaf}-h{host}" for leaf in range(4) for host in range(2)]


def test_each_file_says_each_sentence_of_its_form_once():
    own = {
        "jobset": ["Gang start (JobSet)"],
        "trainjob": ["Runtime (TrainJob)", "Gang start (TrainJob)"],
        "volcano": ["Order in a task (Volcano)", "HyperNodes (Volcano)", "Plugins (Volcano)"],
        "kueue": ["Order of hosts (Kueue)", "Labels (Kueue)", "Quota (Kueue)"],
    }
    for form, sentences in own.items():
        files = export(two_stages_of_two_groups(), "kubernetes", OPTIONS | {"kubernetes": form})
        for name in set(files) - {"export.json"}:
            said = re.findall(r"^# - ([^:]+):", files[name], re.M)
            assert sorted(said) == sorted(
                ["GPU choice", *sentences, "Exclusiveness", "Node names", "Restarts", "Network", "Image"]
            )
            assert said[0] == "GPU choice"


def test_volcanos_hypernodes():
    result = _written(plan_across([2, 0], "tp=8,dp=2"), "volcano", "hypernodes.yaml")
    leaves = [_hypernode(1, leaf, "Node", f"l{leaf}-h0", f"l{leaf}-h1") for leaf in range(4)]
    assert result == [*leaves, _hypernode(2, 0, "HyperNode", *(f"{CLUSTER}-tier1-{leaf}" for leaf in range(4)))]


def test_kueues_jobset_topology_and_labels():
    plan = plan_across([3, 1], "tp=8,dp=2")
    (result,) = _written(plan, "kueue", "kueue-jobset.yaml", queue="team-a")
    command = ["sh", "-c", 'exec torchrun --node-rank="$$((0 + JOB_COMPLETION_INDEX))" "$$@"']
    command += _torchrun(2, 8, "gpt7b-node-0-0.gpt7b")
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["l1-h1", "l0-h1"]}
    node = _replicated("node", 2, _pod(command, _required({"matchExpressions": [expression]}), "0,1,2,3,4,5,6,7"))
    node["template"]["spec"]["template"]["metadata"] = {
        "annotations": {"kueue.x-k8s.io/podset-required-topology": "meshwright/tier-2"}
    }
    expected = _jobset(node)
    expected["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team-a"}
    assert result == expected
    labels = ("meshwright/tier-2", "meshwright/tier-1", "kubernetes.io/hostname")
    flavor = {"nodeLabels": {"meshwright/cluster": CLUSTER}, "topologyName": CLUSTER}
    assert _written(plan, "kueue", "kueue-topology.yaml") == [
        _object("kueue.x-k8s.io/v1beta2", "Topology", CLUSTER, {"levels": [{"nodeLabel": label} for label in labels]}),
        _object("kueue.x-k8s.io/v1beta2", "ResourceFlavor", CLUSTER, flavor),
    ]
    script = export(plan, "kubernetes", OPTIONS | {"kubernetes": "kueue"})["label-nodes.sh"]
    assert script.startswith("#!/bin/bash\n# Job gpt7b; ranks: 16, hosts: 2.\n# Not guaranteed by Kubernetes:\n")
    assert [line for line in script.splitlines() if not line.startswith("#")] == [
        "set -euo pipefail",
        *(
            f"kubectl label --overwrite node l{leaf}-h{host} meshwright/cluster={CLUSTER} "
            f"meshwright/tier-1=d{leaf} meshwright/tier-2=d0"
            for leaf in range(4)
            for host in range(2)
        ),
    ]


def _written(plan, form: str, name: str, **options: Any) -> list[dict[str, Any]]:
    return documents(export(plan, "kubernetes", OPTIONS | {"kubernetes": form} | options)[name])


def _torchrun(num_nodes: int, per_node: int, master: str, node_rank: int | None = None) -> list[str]:
    return [
        "torchrun",
        "--rdzv-backend=static",
        f"--nnodes={num_nodes}",
        *([] if node_rank is None else [f"--node-rank={node_rank}"]),
        f"--nproc-per-node={per_node}",
        f"--master-addr={master}",
        "--master-port=31337",
        *("train.py", "--epochs", "3"),
    ]


def _pod(command: list[str], affinity: dict[str, Any], visible: str) -> dict[str, Any]:
    container = {
        "name": "node",
        "image": "ghcr.io/acme/train:1",
        "command": command,
        "env": [
            {"name": "CUDA_DEVICE_ORDER", "value": "PCI_BUS_ID"},
            {"name": "CUDA_VISIBLE_DEVICES", "value": visible},
            {"name": "MESHWRIGHT_HOST", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "ports": [{"containerPort": 31_337}],
        "resources": {"limits": {"nvidia.com/gpu": len(visible.split(","))}},
        "volumeMounts": [{"name": "shared-memory", "mountPath": "/dev/shm"}],
    }
    volumes = [{"name": "shared-memory", "emptyDir": {"medium": "Memory"}}]
    return {"restartPolicy": "Never", "affinity": affinity, "containers": [container], "volumes": volumes}


def _required(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def _on(*hosts: str) -> dict[str, Any]:
    return _required(*({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [host]}]} for host in hosts))


def _apart(labels: dict[str, str]) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _object(version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _replicated(name: str, num_pods: int, pod: dict[str, Any]) -> dict[str, Any]:
    job = {"parallelism": num_pods, "completions": num_pods, "completionMode": "Indexed", "backoffLimit": 0}
    return {"name": name, "replicas": 1, "template": {"spec": job | {"template": {"spec": pod}}}}


def _jobset(*jobs: dict[str, Any]) -> dict[str, Any]:
    network = {"enableDNSHostnames": True, "subdomain": "gpt7b", "publishNotReadyAddresses": True}
    spec = {"network": network, "failurePolicy": {"maxRestarts": 0}, "replicatedJobs": list(jobs)}
    return _object("jobset.x-k8s.io/v1alpha2", "JobSet", "gpt7b", spec)


def _volcano(spec: dict[str, Any], *tasks: dict[str, Any]) -> dict[str, Any]:
    ends = [{"event": event, "action": "AbortJob"} for event in ("PodEvicted", "PodFailed")]
    fixed = {"schedulerName": "volcano", "maxRetry": 0, "plugins": {"env": [], "svc": []}, "policies": ends}
    return _object("batch.volcano.sh/v1alpha1", "Job", "gpt7b", fixed | spec | {"tasks": list(tasks)})


def _hypernode(tier: int, domain: int, kind: str, *members: str) -> dict[str, Any]:
    selected = [{"type": kind, "selector": {"exactMatch": {"name": member}}} for member in members]
    name = f"{CLUSTER}-tier{tier}-{domain}"
    return _object("topology.volcano.sh/v1alpha1", "HyperNode", name, {"tier": tier, "members": selected})
