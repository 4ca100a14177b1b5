"""The Volcano job and the HyperNodes: what they say, and what is refused."""

from meshwright.export import export

from ..across_hosts import plan_across
from .custom_resources import documents


def test_a_group_across_leaves_is_kept_in_the_tier_that_holds_it():
    for hosts in ([0, 2, 4, 6], [0, 1, 4, 6]):  # in the second the first group has a leaf of its own
        (task,) = _job(plan_across(hosts, "tp=16,dp=2"))["spec"]["tasks"]
        assert task["partitionPolicy"]["networkTopology"]["highestTierAllowed"] == 2


def test_without_a_cluster_there_are_no_hypernodes(running_example):
    assert sorted(_files(running_example)) == ["export.json", "volcano-job.yaml"]


def _files(plan):
    return export(plan, "kubernetes", {"kubernetes": "volcano"})


def _job(plan):
    (job,) = documents(_files(plan)["volcano-job.yaml"])
    return job
