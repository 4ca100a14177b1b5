"""Laws of the network of pods: every form asks for the cards that are named, and no text can be read otherwise."""

import pytest

from meshwright.errors import ExportError
from meshwright.export import ExportOptions, export, targets

from ..across_hosts import two_stages_of_two_groups
from .custom_resources import check_pod, documents, form

ASKED = {
    "rdma_resource": "rdma/hca_shared_devices_a=4",
    "networks": "nets/roce-a,roce-b",
    "tolerations": "nvidia.com/gpu:NoSchedule,team=1e3,pool=y,spare",
    "service_account": "trainer",
    "resources": "cpu=64,memory=512Gi",
    "volumes": "data:/data:ro,/scratch:/scratch",
    "env": "NCCL_DEBUG=INFO PRICE='$(id) a'",
}
WANTED = [
    {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    {"key": "team", "operator": "Equal", "value": "1e3"},
    {"key": "pool", "operator": "Equal", "value": "y"},
    {"key": "spare", "operator": "Exists"},
]
VOLUMES = [
    {"name": "volume0", "persistentVolumeClaim": {"claimName": "data"}},
    {"name": "volume1", "hostPath": {"path": "/scratch"}},
]
FILES = {"jobset": "jobset.yaml", "volcano": "volcano-job.yaml", "kueue": "kueue-jobset.yaml", "trainjob": "trainjob.yaml"}


def written(kind, **options):
    return documents(export(two_stages_of_two_groups(), "kubernetes", {"kubernetes": kind, **options})[FILES[kind]])[0]


def pod_templates(found):
    """Every pod template below an object."""
    if isinstance(found, list):
        return [one for each in found for one in pod_templates(each)]
    if not isinstance(found, dict):
        return []
    own = [found] if "containers" in found.get("spec", {}) else []
    return own + [one for each in found.values() for one in pod_templates(each)]


@pytest.mark.parametrize("kind", FILES)
def test_every_pod_of_every_form_asks_for_the_cards_networks_and_taints(kind):
    result = written(kind, **ASKED)
    templates = pod_templates(result)
    assert templates
    for template in templates:
        (container,) = template["spec"]["containers"]
        own = result["spec"]["trainer"]["resourcesPerNode"] if kind == "trainjob" else container["resources"]
        assert own == {"limits": {"nvidia.com/gpu": 8, "rdma/hca_shared_devices_a": 4, "cpu": "64", "memory": "512Gi"}}
        assert container["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
        assert template["spec"]["tolerations"] == WANTED
        assert template["spec"]["serviceAccountName"] == "trainer"
        assert template["spec"]["volumes"][-2:] == VOLUMES
        mounted = [{"name": "volume0", "mountPath": "/data", "readOnly": True}, {"name": "volume1", "mountPath": "/scratch"}]
        assert container["volumeMounts"][-2:] == mounted
        variables = (result["spec"]["trainer"] if kind == "trainjob" else container)["env"]
        assert variables[-2:] == [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "PRICE", "value": "$$(id) a"}]
        assert template["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "nets/roce-a,roce-b"


def test_what_the_yaml_of_kubectl_takes_for_a_truth_or_a_number_is_quoted():
    text = export(two_stages_of_two_groups(), "kubernetes", {"kubernetes": "jobset", **ASKED})["jobset.yaml"]
    assert "value: 'y'" in text
    assert "value: '1e3'" in text


@pytest.mark.parametrize(
    ("kind", "name", "version"),
    [
        ("jobset", "jobset-v0.12.0", "v1alpha2"),
        ("kueue", "jobset-v0.12.0", "v1alpha2"),
        ("volcano", "volcano-job-v1.15.1", "v1alpha1"),
        ("trainjob", "trainjob-v2.3.0", "v1alpha1"),
    ],
)
def test_the_published_forms_have_what_is_asked_for(reference, kind, name, version):
    form(reference, name, version).validate(written(kind, **ASKED))


@pytest.mark.parametrize("kind", ["jobset", "volcano", "kueue"])
def test_the_hosts_network_comes_with_its_dns_and_is_a_pods(kind):
    for template in pod_templates(written(kind, host_network=True, priority="high", **ASKED)):
        assert template["spec"]["priorityClassName"] == "high"
        assert (template["spec"]["hostNetwork"], template["spec"]["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
        check_pod(template)


def test_a_trainjob_has_no_field_for_the_hosts_network():
    with pytest.raises(ExportError, match=r"host_network: a TrainJob cannot ask for it; its ClusterTrainingRuntime may"):
        written("trainjob", host_network=True)
    with pytest.raises(ExportError, match=r"priority: a TrainJob cannot ask for it; its ClusterTrainingRuntime may have"):
        written("trainjob", priority="high")
    files = export(two_stages_of_two_groups(), "kubernetes", {"kubernetes": "all", "host_network": True})
    assert "\ntrainjob: host_network: " in files["left-out.txt"]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("rdma_resource", "hca"),
        ("rdma_resource", "rdma/hca=0"),
        ("rdma_resource", "rdma/hca\n- x"),
        ("rdma_resource", "rdma/hca: 1"),
        ("rdma_resource", "nvidia.com/gpu"),
        ("rdma_resource", "nvidia.com/gpu=2"),
        ("networks", "a b"),
        ("networks", '[{"name": "a"}]'),
        ("networks", "a\n"),
        ("tolerations", "key:Never"),
        ("tolerations", "key=a b"),
        ("tolerations", "{key}"),
        ("tolerations", "a,,b"),
        ("resources", "nvidia.com/gpu=4"),
        ("resources", "cpu=lots"),
        ("volumes", "data:relative"),
        ("priority", "High"),
        ("service_account", "a: b"),
    ],
)
def test_what_could_be_read_otherwise_is_refused(key, text):
    with pytest.raises(ExportError) as refused:
        written("jobset", **{key: text})
    assert refused.value.field == key


def test_fast_cards_without_rdma_are_remarked(layout_example, make_plan):
    remark = targets["kubernetes"].remark
    said = remark(layout_example, ExportOptions())  # cards of 25 GB/s
    assert said.startswith("the plan counts on 25 GB/s between hosts, and its pods ask for no RDMA")
    assert "--set rdma_resource=NAME" in said
    assert remark(layout_example, ExportOptions(rdma_resource="rdma/hca")) is None
    assert remark(two_stages_of_two_groups(), ExportOptions()) is None  # cards of 100 Gb/s
    assert remark(make_plan(["a", "b"]), ExportOptions()) is None
    assert targets["slurm"].remark(layout_example, ExportOptions()) is None
