"""The JobSet: what it says, and that the published schema of JobSet v0.12.0 accepts it.

The schema is made from the CRD's ``openAPIV3Schema``. This checks form only: it runs no CEL rules and no webhooks.
"""

import copy
from typing import Any

import jsonschema
import pytest
import yaml

from meshwright.errors import ExportError
from meshwright.export import export


@pytest.fixture(scope="module")
def jobset_form(reference) -> jsonschema.Draft202012Validator:
    crd = yaml.load((reference / "schedulers/crds/jobset-v0.12.0.yaml").read_text(), Loader=yaml.CSafeLoader)
    version = next(version for version in crd["spec"]["versions"] if version["name"] == "v1alpha2")
    return jsonschema.Draft202012Validator(_closed(version["schema"]["openAPIV3Schema"]))


def test_one_pinned_job_for_each_host_in_order(running_example):
    jobset = _jobset(running_example, {"name": "gpt7b", "image": "ghcr.io/acme/train:1", "script": "train.py --epochs 3"})
    assert jobset["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    jobs = jobset["spec"]["replicatedJobs"]
    assert [_pinned_to(job) for job in jobs] == ["gpu-07", "gpu-03"]
    for node_rank, job in enumerate(jobs):
        spec = job["template"]["spec"]
        assert (spec["completionMode"], spec["parallelism"], spec["completions"], spec["backoffLimit"]) == ("Indexed", 1, 1, 0)
        container = spec["template"]["spec"]["containers"][0]
        assert container["image"] == "ghcr.io/acme/train:1"
        assert container["resources"] == {"limits": {"nvidia.com/gpu": 4}}
        assert container["command"] == [
            "torchrun",
            "--rdzv-backend=static",
            "--nnodes=2",
            f"--node-rank={node_rank}",
            "--nproc-per-node=4",
            "--master-addr=gpt7b-node0-0-0.gpt7b",
            "--master-port=29500",
            "train.py",
            "--epochs",
            "3",
        ]


def test_devices_are_ordered_among_those_that_the_pod_got(make_plan):
    # devices 6, 4 of the host: the pod sees two GPUs, of which 4 is number 0 and 6 is number 1
    jobset = _jobset(make_plan(["a", "a"], [6, 4]), {})
    environment = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["env"]
    assert {"name": "CUDA_VISIBLE_DEVICES", "value": "1,0"} in environment


def test_dollars_in_a_command_are_not_kubernetes_variables(running_example):
    jobset = _jobset(running_example, {"command": "bash -c 'echo $(hostname) $$'"})
    command = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert command[-1] == "echo $$(hostname) $$$$"


def test_the_file_is_headed_by_what_is_not_guaranteed(running_example):
    text = export(running_example, "kubernetes")["jobset.yaml"]
    assert text.startswith("# Job gpt; ranks: 8, hosts: 2.\n# What Kubernetes does not guarantee:\n# - GPU choice")


@pytest.mark.parametrize("host", ["1e3", "0o17", "true", "null", "127.0.0.1", "no"])
def test_host_names_that_look_like_other_things_stay_text(make_plan, host):
    text = export(make_plan([host]), "kubernetes")["jobset.yaml"]
    assert f"- '{host}'\n" in text
    assert _pinned_to(yaml.safe_load(text)["spec"]["replicatedJobs"][0]) == host


def test_ranks_that_torchrun_would_renumber_are_refused(make_plan):
    with pytest.raises(ExportError, match=r"rank 1: .* would start this rank on b \(got 'a'\)"):
        export(make_plan(["b", "a", "b", "a"]), "kubernetes")
    with pytest.raises(ExportError, match="same number of ranks on every host"):
        export(make_plan(["b", "b", "a"]), "kubernetes")


def test_capitals_in_a_node_name_are_refused(make_plan):
    with pytest.raises(ExportError, match=r"rank 1: a Kubernetes node has no capitals .*'GPU-1'"):
        export(make_plan(["gpu-0", "GPU-1"]), "kubernetes")


@pytest.mark.reference
@pytest.mark.parametrize("count", [1, 8])
def test_the_crd_accepts_the_jobset(make_plan, jobset_form, count):
    hosts = [host for host in ["gpu-07", "gpu-03", "gpu-10"] for _ in range(count)]
    jobset_form.validate(_jobset(make_plan(hosts), {"command": "python -m train"}))


@pytest.mark.reference
@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "replicatedJobs", 0, "name"), None),
        (("spec", "replicatedJobs", 0, "replicas"), "one"),
        (("spec", "replicatedJob"), []),
        (("spec", "network", "enableDNSHostname"), True),
        (("spec", "replicatedJobs", 0, "template", "spec", "completionMode"), 1),
        (("spec", "replicatedJobs", 0, "template", "spec", "template", "spec", "containers", 0, "comand"), ["x"]),
        (("spec", "replicatedJobs", 0, "template", "spec", "template", "spec", "containers", 0, "command"), "x"),
    ],
)
def test_the_crd_rejects_broken_jobsets(running_example, jobset_form, path, value):
    jobset = _jobset(running_example, {})
    jobset_form.validate(jobset)
    broken = copy.deepcopy(jobset)
    here = broken
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        jobset_form.validate(broken)


def _jobset(plan, options) -> dict[str, Any]:
    return yaml.safe_load(export(plan, "kubernetes", options)["jobset.yaml"])


def _pinned_to(job: dict[str, Any]) -> str:
    pod = job["template"]["spec"]["template"]["spec"]
    (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (field,) = term["matchFields"]
    assert (field["key"], field["operator"]) == ("metadata.name", "In")
    (host,) = field["values"]
    return host


def _closed(schema: Any) -> Any:
    """A CRD's schema as JSON Schema in which unknown keys are errors."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    closed = {key: _closed(value) for key, value in schema.items() if key != "properties"}
    if "properties" in schema:
        closed["properties"] = {
            key: {"type": "object"} if key == "metadata" else _closed(value) for key, value in schema["properties"].items()
        }
        if schema.get("type") == "object" and not schema.get("x-kubernetes-preserve-unknown-fields"):
            closed["additionalProperties"] = False
    return closed
