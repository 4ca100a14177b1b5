"""Kueue's Topology, flavor and JobSet: what they say, and what is refused."""

import pytest

from meshwright.errors import ExportError
from meshwright.export import export

from ..across_hosts import plan_across, two_stages_of_two_groups
from .custom_resources import documents


def test_groups_that_span_hosts_are_slices_in_the_narrowest_tier_that_holds_them():
    assert _annotations(two_stages_of_two_groups()) == {
        "kueue.x-k8s.io/podset-required-topology": "meshwright/tier-2",
        "kueue.x-k8s.io/podset-slice-required-topology": "meshwright/tier-1",
        "kueue.x-k8s.io/podset-slice-size": "2",
    }
    # all within one leaf
    assert _annotations(plan_across([3, 2], "tp=16")) == {
        "kueue.x-k8s.io/podset-required-topology": "meshwright/tier-1",
        "kueue.x-k8s.io/podset-slice-required-topology": "meshwright/tier-1",
        "kueue.x-k8s.io/podset-slice-size": "2",
    }


def test_slices_are_as_wide_as_the_widest_group_needs():
    # the first group has a leaf of its own, the second one lies on two
    assert _annotations(plan_across([0, 1, 2, 4], "tp=16,dp=2"))["kueue.x-k8s.io/podset-slice-required-topology"] == (
        "meshwright/tier-2"
    )


def test_a_pod_takes_its_whole_host_so_that_the_hosts_device_numbers_hold():
    plan = plan_across([3, 1], "tp=8,dp=2")
    upper = enumerate(rank for rank in plan.ranks if rank.local_rank >= 4)
    ranks = tuple(rank.model_copy(update={"rank": number, "coordinates": None}) for number, rank in upper)
    half = plan.model_copy(update={"ranks": ranks, "partition": None, "stages": ()})
    container = _pod(half)["containers"][0]
    assert container["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert {"name": "CUDA_VISIBLE_DEVICES", "value": "4,5,6,7"} in container["env"]


def test_a_plan_without_a_cluster_is_refused(running_example):
    with pytest.raises(ExportError, match="cluster: the plan embeds no cluster, so its topology is unknown"):
        _objects(running_example)


def _objects(plan, **options):
    files = export(plan, "kubernetes", {"kubernetes": "kueue", **options})
    return {each["kind"]: each for name in ("kueue-topology.yaml", "kueue-jobset.yaml") for each in documents(files[name])}


def _template(plan):
    (node,) = _objects(plan)["JobSet"]["spec"]["replicatedJobs"]
    return node["template"]["spec"]["template"]


def _annotations(plan):
    return _template(plan)["metadata"]["annotations"]


def _pod(plan):
    return _template(plan)["spec"]
