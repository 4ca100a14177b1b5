"""The Volcano job and the HyperNodes: what they say, and what is refused."""

import pytest

from meshwright.errors import ExportError
from meshwright.export import export

from ..across_hosts import plan_across, two_stages_of_two_groups
from .custom_resources import check_pod, documents


def test_a_group_across_leaves_is_kept_in_the_tier_that_holds_it():
    for hosts in ([0, 2, 4, 6], [0, 1, 4, 6]):  # in the second the first group has a leaf of its own
        (task,) = _job(plan_across(hosts, "tp=16,dp=2"))["spec"]["tasks"]
        assert task["partitionPolicy"]["networkTopology"]["highestTierAllowed"] == 2


def test_without_a_cluster_there_are_no_hypernodes(running_example):
    assert sorted(_files(running_example)) == ["export.json", "volcano-job.yaml"]


def test_devices_in_another_order_within_a_task_are_refused():
    plan = two_stages_of_two_groups()
    swapped = {8: 9, 9: 8}  # two devices of the second host
    ranks = [
        rank.model_copy(
            update={key: getattr(plan.ranks[swapped.get(rank.rank, rank.rank)], key) for key in ("local_rank", "device")}
        )
        for rank in plan.ranks
    ]
    with pytest.raises(ExportError, match=r"rank 8: pods of a Volcano task share one order of devices, that of l3-h1"):
        _files(plan.model_copy(update={"ranks": tuple(ranks)}))


@pytest.mark.parametrize("plan", [two_stages_of_two_groups(), plan_across([3, 1], "tp=8,dp=2")], ids=["spanning", "pinned"])
def test_kubernetes_knows_the_pods(plan):
    for task in _job(plan)["spec"]["tasks"]:
        check_pod(task["template"])


def _files(plan):
    return export(plan, "kubernetes", {"kubernetes": "volcano"})


def _job(plan):
    (job,) = documents(_files(plan)["volcano-job.yaml"])
    return job
