"""Kubernetes: which of its forms a plan is written in.

``jobset`` keeps the order of ranks and is the default. ``trainjob`` keeps it too, for an installed training runtime.
``volcano`` and ``kueue`` keep less and offer more: gang scheduling with the topology, queues. ``all`` writes each that can
express the plan.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import ExportError
from ...plans.document import PlacementPlan
from ..options import ExportOptions
from ..rank_launcher import MAX_ARGUMENT_BYTES
from ..target import Files, Target, header
from . import kueue, pods, volcano

LEFT_OUT = "left-out.txt"
CONFIG_MAP = "framework-files.yaml"

_OF_JOBSET = (
    "Gang start (JobSet): pods start as their nodes have room; without a queue such as Kueue some may wait while others hold "
    "theirs.",
)

_OF_TRAINJOB = (
    "Runtime (TrainJob): the ClusterTrainingRuntime must be one for torch whose replicated job and container are named node, "
    "as torch-distributed is.",
    "Gang start (TrainJob): pods start as their nodes have room, unless the runtime names a gang scheduler.",
)

_MAX_WORDS = 128
"""The CRD's limit on the items of ``command``."""

_IN_ORDER = """\
import os, sys
from datetime import timedelta
from torch.distributed import TCPStore
hosts, own, *words = sys.argv[1].split(","), os.environ, *sys.argv[2:]
own["MESHWRIGHT_HOST"] in hosts or sys.exit(f"node {own['MESHWRIGHT_HOST']} is not in the plan")
place, pod = hosts.index(own["MESHWRIGHT_HOST"]), int(own["PET_NODE_RANK"])
store = TCPStore(own["PET_MASTER_ADDR"], int(own["PET_MASTER_PORT"]) + 1, len(hosts), pod == 0, timedelta(hours=1))
if place == 0:
    store.set("first", own["MESHWRIGHT_ADDRESS"])
first = store.get("first").decode()
store.set(f"heard by {place}", "")
if pod == 0:
    store.wait([f"heard by {number}" for number in range(len(hosts))])
del store
os.execvp("torchrun", ["torchrun", f"--node-rank={place}", f"--master-addr={first}", *words])
"""
"""The program of each pod of a TrainJob: its node rank is the plan's for the node that Kubernetes has chosen. All read the
address of the pod on the first host from pod 0. The runtime numbers pods in ``PET_NODE_RANK``; ``PET_MASTER_ADDR`` is that of
pod 0 (kubeflow/trainer, pkg/runtime/framework/plugins/torch/torch.go)."""


def _jobset(plan: PlacementPlan, options: ExportOptions) -> Files:
    """Return a JobSet of one replicated job for each host, as all pods of a job share a template: the form that keeps the order.

    Raises:
        ExportError: unequal ranks per host, ranks of a host that do not follow one another, or a host name with capitals.
    """
    pods.check_nodes(plan, "JobSet")
    name = options.job_name(plan)
    templates = pods.pinned(plan, options, pods.pod_name(name, "node0", 0))
    jobs = [pods.replicated_job(node, 1, template) for node, template in templates]
    return {"jobset.yaml": pods.document(plan, options, (*pods.NOT_GUARANTEED, *_OF_JOBSET), pods.jobset(name, jobs))}


def _trainjob(plan: PlacementPlan, options: ExportOptions) -> Files:
    """Return a TrainJob (v2 of Kubeflow Trainer): the plan's nodes for an installed ClusterTrainingRuntime.

    All nodes of a TrainJob share one pod template, so that pods find their node rank when they start (`_IN_ORDER`). The
    form is ``v1alpha1`` as of Trainer 2.3, where ``runtimePatches`` replaced ``podTemplateOverrides``; 2.2 is not compatible.
    The runtime sets torchrun's node count, processes and port by its variables ``PET_...``.

    Raises:
        ExportError: as for a JobSet; also devices in another order from host to host, or too long a command, or
            the host's network.
    """
    for key, own in (("host_network", "hostNetwork"), ("priority", "priorityClassName")):
        if getattr(options, key):
            raise ExportError(f"a TrainJob cannot ask for it; its ClusterTrainingRuntime may have {own}", field=key)
    pods.check_nodes(plan, "TrainJob")
    devices = pods.order_on_all(plan, "TrainJob")
    name = options.job_name(plan)
    command, environment = ["torchrun", "--rdzv-backend=static", *options.torchrun_words], pods.environment(options, devices)
    if len(plan.host_order) > 1:
        command = ["python", "-c", _IN_ORDER, ",".join(plan.host_order), *command[1:]]
        if (longest := len(command[3])) > MAX_ARGUMENT_BYTES:  # host names are ASCII
            raise ExportError("hosts' names make too long an argument; take jobset", field="kubernetes", value=f"{longest} bytes")
        environment.insert(0, {"name": "MESHWRIGHT_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    if len(command) > _MAX_WORDS:
        raise ExportError(f"a TrainJob's command has at most {_MAX_WORDS} words", field="command", value=f"{len(command)} words")
    pod = {
        "affinity": pods.one_on_each(plan.host_order, {"jobset.sigs.k8s.io/jobset-name": name}),
        "containers": [{"name": "node", "volumeMounts": pods.mounts(options), **pods.may_lock(options)}],
        "volumes": pods.volumes(options),
        **pods.account_and_tolerations(options),
    }
    node = {"name": "node", "template": {"spec": {"template": pods.template(options, pod)}}}
    patch = {"manager": "meshwright", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [node]}}}}
    trainjob = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": options.runtime},
            "trainer": {
                "image": options.image,
                "numNodes": len(plan.host_order),
                "numProcPerNode": len(devices),
                "command": pods.escaped(command),
                "env": environment,
                "resourcesPerNode": {"limits": pods.limits(options, len(devices))},
            },
            "runtimePatches": [patch],
        },
    }
    sentences = (*pods.NOT_GUARANTEED[:1], *_OF_TRAINJOB, *pods.NOT_GUARANTEED[1:])
    return {"trainjob.yaml": pods.document(plan, options, sentences, trainjob)}


_FORMS: dict[str, Callable[[PlacementPlan, ExportOptions], Files]] = {
    "jobset": _jobset,
    "trainjob": _trainjob,
    "volcano": volcano.render,
    "kueue": kueue.render,
}

_NOT_GUARANTEED = (
    *pods.NOT_GUARANTEED,
    *_OF_JOBSET,
    *_OF_TRAINJOB,
    *volcano.NOT_GUARANTEED,
    *kueue.NOT_GUARANTEED,
)


def render(plan: PlacementPlan, options: ExportOptions) -> Files:
    """Return the form that the options choose, or all; with all, ``left-out.txt`` says what is left out and why.

    Raises:
        ExportError: the chosen form, or none of all, can express the plan.
    """
    rendered: Files = {}
    if options.carried:
        rendered[CONFIG_MAP] = pods.document(plan, options, pods.NOT_GUARANTEED, pods.config_map(options))
    if options.kubernetes != "all":
        return rendered | _FORMS[options.kubernetes](plan, options)
    refused: dict[str, ExportError] = {}
    for form, write in _FORMS.items():
        try:
            rendered |= write(plan, options)
        except ExportError as error:
            refused[form] = error
    if len(refused) == len(_FORMS):
        raise refused["jobset"]
    if refused:
        head = header(options.job_name(plan), plan, "Kubernetes", _NOT_GUARANTEED)
        rendered[LEFT_OUT] = head + "".join(f"{form}: {error}\n" for form, error in refused.items())
    return rendered


TARGET = Target(
    name="kubernetes",
    summary="a JobSet with one job for each host, pinned to its node; or a TrainJob, a Volcano job, or a JobSet for Kueue",
    guaranteed=(
        "JobSet: each host's ranks run on the node of that name, numbered host by host in the plan's host order, and the master "
        "address is the pod on the host of rank 0.",
        "TrainJob: each host's ranks run on the node of that name, in the plan's host order; the master is the pod on the "
        "host of rank 0.",
        "Volcano: each pipeline stage runs on its hosts, each tensor-parallel group that spans hosts inside one HyperNode no "
        "wider than planned; where no group spans hosts, as the JobSet. All pods start together.",
        "Kueue: the ranks run on the plan's hosts, and tensor-parallel groups that span hosts each inside one domain no wider "
        "than planned.",
    ),
    not_guaranteed=_NOT_GUARANTEED,
    render=render,
    names_devices=False,
    remark=pods.remark,
)
