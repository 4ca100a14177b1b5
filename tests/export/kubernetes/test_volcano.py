"""The Volcano job and the HyperNodes: what they say, and that the CRDs of Volcano v1.15.1 accept them."""

import pytest
from jsonschema import ValidationError

from meshwright.errors import ExportError
from meshwright.export import export

from ..across_hosts import plan_across, two_stages_of_two_groups
from .custom_resources import broken, check_pod, documents, form, pinned_to


@pytest.fixture(scope="module")
def job_form(reference):
    return form(reference, "volcano-job-v1.15.1", "v1alpha1")


@pytest.fixture(scope="module")
def hypernode_form(reference):
    return form(reference, "volcano-hypernode-v1.15.1", "v1alpha1")


def test_where_groups_span_hosts_a_task_is_a_stage_and_a_partition_a_group():
    spec = _job(two_stages_of_two_groups())["spec"]
    assert spec["minAvailable"] == 8
    assert spec["networkTopology"] == {"mode": "hard", "highestTierAllowed": 2}
    assert [(task["name"], task["replicas"]) for task in spec["tasks"]] == [("stage0", 4), ("stage1", 4)]
    assert [pinned_to(_pod(task)) for task in spec["tasks"]] == [
        ["l3-h1", "l3-h0", "l0-h0", "l0-h1"],
        ["l2-h1", "l2-h0", "l1-h0", "l1-h1"],
    ]
    for task in spec["tasks"]:
        partition = task["partitionPolicy"]
        assert partition["totalPartitions"] * partition["partitionSize"] == task["replicas"]
        # each group has a leaf of its own
        assert partition == {
            "totalPartitions": 2,
            "partitionSize": 2,
            "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
        }
    commands = [_pod(task)["containers"][0]["command"] for task in spec["tasks"]]
    assert commands[0][:3] == ["sh", "-c", 'exec torchrun --node-rank="$$((0 + VC_TASK_INDEX))" "$$@"']
    assert commands[1][2] == 'exec torchrun --node-rank="$$((4 + VC_TASK_INDEX))" "$$@"'
    assert "--master-addr=gpt-stage0-0.gpt" in commands[1]


def test_a_group_across_leaves_is_kept_in_the_tier_that_holds_it():
    for hosts in ([0, 2, 4, 6], [0, 1, 4, 6]):  # in the second the first group has a leaf of its own
        (task,) = _job(plan_across(hosts, "tp=16,dp=2"))["spec"]["tasks"]
        assert task["partitionPolicy"]["networkTopology"]["highestTierAllowed"] == 2


def test_where_no_group_spans_hosts_every_host_is_a_task_on_its_node(running_example):
    spec = _job(running_example)["spec"]
    assert [pinned_to(_pod(task)) for task in spec["tasks"]] == [["gpu-07"], ["gpu-03"]]
    assert [task["replicas"] for task in spec["tasks"]] == [1, 1]
    assert [_pod(task)["containers"][0]["command"][3] for task in spec["tasks"]] == ["--node-rank=0", "--node-rank=1"]
    assert all("partitionPolicy" not in task for task in spec["tasks"])
    assert "networkTopology" not in spec


def test_the_clusters_tiers_are_hypernodes():
    nodes = documents(_files(plan_across([2, 0], "tp=8,dp=2"))["hypernodes.yaml"])
    inside = {node["metadata"]["name"]: [m["selector"]["exactMatch"]["name"] for m in node["spec"]["members"]] for node in nodes}
    tiers = {node["metadata"]["name"]: node["spec"]["tier"] for node in nodes}
    assert inside["clos-64-4to1-tier1-1"] == ["l1-h0", "l1-h1"]
    assert inside["clos-64-4to1-tier2-0"] == [f"clos-64-4to1-tier1-{leaf}" for leaf in range(4)]
    assert sorted(tiers.values()) == [1, 1, 1, 1, 2]
    # every node is in one HyperNode of tier 1
    held = [host for name in inside if tiers[name] == 1 for host in inside[name]]
    assert sorted(held) == sorted(f"l{leaf}-h{host}" for leaf in range(4) for host in range(2))


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


@pytest.mark.reference
@pytest.mark.parametrize("plan", [two_stages_of_two_groups(), plan_across([3, 1], "tp=8,dp=2")], ids=["spanning", "pinned"])
def test_the_crds_accept_them(plan, job_form, hypernode_form):
    files = _files(plan)
    (job,) = documents(files["volcano-job.yaml"])
    job_form.validate(job)
    for node in documents(files["hypernodes.yaml"]):
        hypernode_form.validate(node)
        for member in node["spec"]["members"]:  # CEL of the CRD: one selector and no more
            assert list(member["selector"]) == ["exactMatch"]


@pytest.mark.reference
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "networkTopology", "mode"), "Hard"),
        (("spec", "networkTopology", "highestTierAllowed"), -1),
        (("spec", "tasks"), []),
        (("spec", "tasks", 0, "name"), "Stage"),
        (("spec", "tasks", 0, "partitionPolicy", "partitionSize"), ...),
        (("spec", "tasks", 0, "partitionPolicy", "totalPartitions"), 0),
        (("spec", "tasks", 0, "partitionPolicy", "size"), 1),
        (("spec", "tasks", 0, "template", "spec", "containers", 0, "image"), 1),
        (("spec", "tasks", 0, "template", "spec", "container"), []),
        (("spec", "policies", 0, "event"), "PodGone"),
        (("spec", "plugins", "svc"), "x"),
        (("spec", "queue"), "A"),
    ],
)
def test_the_crd_rejects_broken_jobs(job_form, path, value):
    job = _job(two_stages_of_two_groups())
    with pytest.raises(ValidationError):
        job_form.validate(broken(job, path, value))


@pytest.mark.reference
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "tier"), ...),
        (("spec", "tier"), "1"),
        (("spec", "members"), []),
        (("spec", "members", 0, "type"), "Host"),
        (("spec", "members", 0, "selector", "exactMatch", "name"), "A_b"),
        (("spec", "members", 0, "selector", "exact"), {}),
    ],
)
def test_the_crd_rejects_broken_hypernodes(hypernode_form, path, value):
    node = documents(_files(two_stages_of_two_groups())["hypernodes.yaml"])[0]
    hypernode_form.validate(node)
    with pytest.raises(ValidationError):
        hypernode_form.validate(broken(node, path, value))


@pytest.mark.parametrize("plan", [two_stages_of_two_groups(), plan_across([3, 1], "tp=8,dp=2")], ids=["spanning", "pinned"])
def test_kubernetes_knows_the_pods(plan):
    for task in _job(plan)["spec"]["tasks"]:
        check_pod(task["template"])


def _files(plan):
    return export(plan, "kubernetes", {"kubernetes": "volcano"})


def _job(plan):
    (job,) = documents(_files(plan)["volcano-job.yaml"])
    return job


def _pod(task):
    return task["template"]["spec"]
