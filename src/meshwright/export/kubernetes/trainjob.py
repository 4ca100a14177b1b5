"""Kubeflow Trainer's TrainJob (v2): the plan's set of nodes for an installed ClusterTrainingRuntime.

All nodes of a TrainJob share one pod template, so it keeps which nodes are taken, not which of them has which rank. The
form is ``v1alpha1`` as of Trainer 2.3, where ``runtimePatches`` replaced ``podTemplateOverrides``; 2.2 is not compatible.
The runtime sets torchrun's node count, node rank and master address by its variables ``PET_...``.
"""

from __future__ import annotations

from ...errors import ExportError
from ...plans.document import PlacementPlan
from ..options import ExportOptions
from ..target import Files
from . import pods

FILE_NAME = "trainjob.yaml"

NOT_GUARANTEED = (
    "Order of hosts (TrainJob): the pods take the planned nodes, one each, in an order that Kubernetes chooses; which node has "
    "rank 0 is known at run time only. The JobSet keeps the order.",
    "Runtime (TrainJob): the ClusterTrainingRuntime must be one for torch whose replicated job and container are named node, "
    "as torch-distributed is.",
    "Gang start (TrainJob): pods start as their nodes have room, unless the runtime names a gang scheduler.",
)

_MAX_WORDS = 128
"""The CRD's limit on the items of ``command``."""


def render(plan: PlacementPlan, options: ExportOptions) -> Files:
    """The files of a TrainJob.

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
    command = ["torchrun", "--rdzv-backend=static", *options.torchrun_words]
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
                "env": pods.environment(options, devices),
                "resourcesPerNode": {"limits": pods.limits(options, len(devices))},
            },
            "runtimePatches": [patch],
        },
    }
    return {
        FILE_NAME: pods.document(plan, options, (pods.NOT_GUARANTEED[0], *NOT_GUARANTEED, *pods.NOT_GUARANTEED[1:]), trainjob)
    }
