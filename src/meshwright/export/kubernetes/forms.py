"""Kubernetes: which of its forms a plan is written in.

``jobset`` keeps the order of ranks and is the default. ``trainjob``, ``volcano`` and ``kueue`` keep less and offer more:
an installed training runtime, gang scheduling with the topology, queues. ``all`` writes each that can express the plan.
"""

from __future__ import annotations

from collections.abc import Callable

from ...errors import ExportError
from ...plans.document import PlacementPlan
from ..launchers.torchrun import node_words
from ..options import ExportOptions
from ..requirements import hosts_of
from ..target import Files, Target, header
from . import kueue, pods, trainjob, volcano

LEFT_OUT = "left-out.txt"
CONFIG_MAP = "framework-files.yaml"

_OF_JOBSET = (
    "Gang start (JobSet): pods start as their nodes have room; without a queue such as Kueue some may wait while others hold "
    "theirs.",
)


def _jobset(plan: PlacementPlan, options: ExportOptions) -> Files:
    """A JobSet of one replicated job for each host, as all pods of a job share a template: the form that keeps the order.

    Raises:
        ExportError: unequal ranks per host, ranks of a host that do not follow one another, or a host name with capitals.
    """
    pods.check_nodes(plan, "JobSet")
    name = options.job_name(plan)
    jobs = []
    for node_rank, (host, devices) in enumerate(hosts_of(plan).items()):
        command = node_words(plan, options, node_rank, pods.pod_name(name, "node0", 0))
        pod = pods.pod(options, command, pods.visible(devices), pods.on_nodes([host]))
        jobs.append(pods.replicated_job(f"node{node_rank}", 1, pods.template(options, pod)))
    return {"jobset.yaml": pods.document(plan, options, (*pods.NOT_GUARANTEED, *_OF_JOBSET), pods.jobset(name, jobs))}


_FORMS: dict[str, Callable[[PlacementPlan, ExportOptions], Files]] = {
    "jobset": _jobset,
    "trainjob": trainjob.render,
    "volcano": volcano.render,
    "kueue": kueue.render,
}

_NOT_GUARANTEED = (
    *pods.NOT_GUARANTEED,
    *_OF_JOBSET,
    *trainjob.NOT_GUARANTEED,
    *volcano.NOT_GUARANTEED,
    *kueue.NOT_GUARANTEED,
)


def render(plan: PlacementPlan, options: ExportOptions) -> Files:
    """The form that the options choose, or all; with all, ``left-out.txt`` says what is left out and why.

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
        "TrainJob: the ranks run on the plan's hosts, one pod on each.",
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
