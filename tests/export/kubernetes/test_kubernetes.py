"""The JobSet, which is the default: what it says; the choice of forms, and that the CRDs of all accept what is written."""

import shlex
import subprocess
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import ExportError
from meshwright.export import export
from meshwright.export.kubernetes.pods import DECISION_LABEL

from ...draws import draws
from ..across_hosts import plan_across, two_stages_of_two_groups
from .custom_resources import broken, check_pod, documents, form, pinned_to

FILES = {
    "jobset": ["jobset.yaml"],
    "trainjob": ["trainjob.yaml"],
    "volcano": ["volcano-job.yaml", "hypernodes.yaml"],
    "kueue": ["kueue-topology.yaml", "kueue-jobset.yaml"],
}
FORMS = list(FILES)


@pytest.mark.parametrize("form", FORMS)
def test_each_pod_names_the_decision_and_nothing_else_changes(form):
    plan = two_stages_of_two_groups()
    plain, named = (
        [part for name in FILES[form] for part in documents(export(plan, "kubernetes", {"kubernetes": form, **more})[name])]
        for more in ({}, {"decision": "run-1.b"})
    )
    results = [template for part in named for template in _templates(part)]
    assert [template["metadata"].pop("labels") for template in results] == [{DECISION_LABEL: "run-1.b"}] * len(results)
    assert len(results) == {"jobset": 8, "trainjob": 1, "volcano": 2, "kueue": 1}[form]
    for template in results:
        if not template["metadata"]:
            del template["metadata"]
    assert named == plain


@pytest.mark.parametrize("host", ["1e3", "0o17", "true", "null", "127.0.0.1", "no"])
def test_host_names_that_look_like_other_things_stay_text(make_plan, host):
    text = export(make_plan([host]), "kubernetes")["jobset.yaml"]
    assert f"- '{host}'\n" in text
    assert _pinned_to(documents(text)[0]["spec"]["replicatedJobs"][0]) == host


def test_capitals_in_a_node_name_are_refused(make_plan):
    with pytest.raises(ExportError, match=r"rank 1: a Kubernetes node has no capitals .*'GPU-1'"):
        export(make_plan(["gpu-0", "GPU-1"]), "kubernetes")


BROKEN = {
    ("jobset.yaml", "jobset-v0.12.0", "v1alpha2"): (("spec", "replicatedJob"), []),
    ("trainjob.yaml", "trainjob-v2.3.0", "v1alpha1"): (("spec", "runtimeRef", "name"), ...),
    ("volcano-job.yaml", "volcano-job-v1.15.1", "v1alpha1"): (("spec", "networkTopology", "mode"), "Hard"),
    ("hypernodes.yaml", "volcano-hypernode-v1.15.1", "v1alpha1"): (("spec", "tier"), "1"),
    ("kueue-topology.yaml", "kueue-topology-v0.19.2", "v1beta2"): (("spec", "levels"), []),
    ("kueue-topology.yaml", "kueue-resourceflavor-v0.19.2", "v1beta2"): (("spec", "nodeLabels"), ["x"]),
    ("kueue-jobset.yaml", "jobset-v0.12.0", "v1alpha2"): (("spec", "replicatedJobs", 0, "template", "spec", "completions"), "2"),
}
"""Of each CRD, by the file that holds one of its kind: a value at a path that it does not take."""


@pytest.mark.reference
@pytest.mark.parametrize("hosts", [["gpu-07"], [host for host in ("gpu-07", "gpu-03", "gpu-10") for _ in range(8)], None])
def test_the_crds_accept_every_form(reference, make_plan, hosts):
    plan = plan_across([3, 1], "tp=8,dp=2") if hosts is None else make_plan(hosts)
    files = export(plan, "kubernetes", {"kubernetes": "all", "command": "bash -c 'echo $HOME'"})
    written = [each for file in BROKEN if file[0] in files for each in _of(reference, files, *file)]
    assert len(written) >= (len(BROKEN) if hosts is None else 3)
    for checked, content in written:
        checked.validate(content)


@pytest.mark.reference
@pytest.mark.parametrize(("of", "path", "value"), [(of, *one) for of, one in BROKEN.items()])
def test_the_crds_reject_broken_ones(reference, of, path, value):
    (checked, content), *_ = _of(reference, export(two_stages_of_two_groups(), "kubernetes", {"kubernetes": "all"}), *of)
    checked.validate(content)
    with pytest.raises(jsonschema.ValidationError):
        checked.validate(broken(content, path, value))


def test_kubernetes_knows_the_pods_and_rejects_a_broken_one():
    for choice in ("jobset", "volcano", "kueue"):
        files = export(two_stages_of_two_groups(), "kubernetes", {"kubernetes": choice, "command": "sh -c 'echo $HOME'"})
        for template in [one for name in FILES[choice] for part in documents(files[name]) for one in _templates(part)]:
            check_pod(template)
    with pytest.raises(kubernetes_validate.ValidationError):
        check_pod(broken(template, ("spec", "containers", 0, "resources", "limits"), 8))


@pytest.mark.parametrize(("form", "kind"), [("trainjob", "TrainJob"), ("volcano", "Volcano task"), ("kueue", "Kueue JobSet")])
def test_pods_that_share_a_template_share_an_order_of_devices(form, kind):
    plan = two_stages_of_two_groups()
    ranks = list(plan.ranks)
    for rank, other in ((8, 9), (9, 8)):  # two devices of the second host
        device = {key: getattr(plan.ranks[other], key) for key in ("local_rank", "device")}
        ranks[rank] = plan.ranks[rank].model_copy(update=device)
    with pytest.raises(ExportError, match=f"rank 8: pods of a {kind} share one order of devices, that of l3-h1"):
        export(plan.model_copy(update={"ranks": tuple(ranks)}), "kubernetes", {"kubernetes": form})


def test_all_forms_are_written_for_a_plan_that_every_form_can_express():
    files = export(two_stages_of_two_groups(), "kubernetes", {"kubernetes": "all"})
    expected = ["jobset.yaml", "kueue-jobset.yaml", "kueue-topology.yaml", "label-nodes.sh", "trainjob.yaml", "volcano-job.yaml"]
    assert sorted(files) == sorted([*expected, "export.json", "hypernodes.yaml"])


def test_of_all_forms_those_that_cannot_express_the_plan_are_left_out_with_the_reason(running_example):
    files = export(running_example, "kubernetes", {"kubernetes": "all"})
    assert sorted(files) == ["export.json", "jobset.yaml", "left-out.txt", "volcano-job.yaml"]
    messages = [line for line in files["left-out.txt"].splitlines() if not line.startswith("#")]
    assert messages[0].startswith("trainjob: rank 4: pods of a TrainJob share one order of devices, that of gpu-07 (3,2,1,0)")
    assert messages[1:] == ["kueue: cluster: the plan embeds no cluster, so its topology is unknown"]


@draws(5)
@given(hosts=st.permutations(["gpu-07", "gpu-03", "a", "b.c", "gpu-10"]))
def test_any_order_of_hosts_is_kept_by_the_jobset_and_by_volcanos_pinned_tasks(make_plan, hosts):
    files = export(make_plan(hosts), "kubernetes", {"kubernetes": "all"})
    (jobset,), (job,) = documents(files["jobset.yaml"]), documents(files["volcano-job.yaml"])
    assert [_pinned_to(each) for each in jobset["spec"]["replicatedJobs"]] == hosts
    assert [pinned_to(task["template"]["spec"]) for task in job["spec"]["tasks"]] == [[host] for host in hosts]
    ranks = [command[3] for content in (jobset, job) for command in _commands(content)]
    assert ranks == [f"--node-rank={rank}" for rank in range(5)] * 2


def test_a_plan_that_no_form_can_express_is_refused(make_plan):
    with pytest.raises(ExportError, match="the JobSet's torchrun wants the same number of ranks on every host"):
        export(make_plan(["b", "b", "a"]), "kubernetes", {"kubernetes": "all"})


@pytest.mark.parametrize("choice", FORMS)
def test_each_form_refuses_by_itself_what_its_torchrun_would_renumber(make_plan, choice):
    with pytest.raises(ExportError, match=r"rank 1: .* would start this rank on b \(got 'a'\)"):
        export(make_plan(["b", "a", "b", "a"]), "kubernetes", {"kubernetes": choice})


HOSTILE = [
    "$(HOME)",
    "$$",
    "`touch owned`",
    "'; touch owned; '",
    '"; touch owned; "',
    "$((1))",
    "a b",
    "--",
    "*",
    "~",
    "\u00e4",
    "{{x}}",
]


@pytest.mark.parametrize("chosen", FORMS)
@draws(5)
@given(word=st.sampled_from(HOSTILE) | st.text(max_size=10).filter(str.isprintable))
def test_a_containers_command_hands_on_its_words_as_they_are(tmp_path_factory, chosen, word):
    folder = tmp_path_factory.mktemp("sandbox")
    for name in ("torchrun", "python"):
        (folder / name).write_text('#!/bin/bash\nprintf "%s\\0" "$@" >"$SANDBOX/words"\n')
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "SANDBOX": str(folder), "LC_ALL": "C.UTF-8"}
    environment |= {"VC_TASK_INDEX": "3", "JOB_COMPLETION_INDEX": "3"}
    files = export(two_stages_of_two_groups(), "kubernetes", {"kubernetes": chosen, "script": shlex.join(["train.py", word])})
    # the last pod: of a JobSet's eight jobs, of the second stage's four pods, of four; a TrainJob's pod finds its rank itself
    command = [each for name in FILES[chosen] for content in documents(files[name]) for each in _commands(content)][-1]
    subprocess.run([part.replace("$$", "$") for part in command], cwd=folder, env=environment, check=True, timeout=60)
    words = (folder / "words").read_text().split("\0")[:-1]
    assert words[-2:] == ["train.py", word]
    ranks = [word for word in words if word.startswith("--node-rank")]
    assert (
        ranks == {"jobset": ["--node-rank=7"], "volcano": ["--node-rank=7"], "kueue": ["--node-rank=3"], "trainjob": []}[chosen]
    )
    assert {path.name for path in folder.iterdir()} == {"python", "torchrun", "words"}


def _of(reference, files, file, name, version) -> list[tuple[jsonschema.Draft202012Validator, dict[str, Any]]]:
    """The objects of a CRD's kind in a file, each with the schema."""
    checked = form(reference, name, version)
    kind = checked.schema["properties"]["kind"]["const"]
    return [(checked, each) for each in documents(files[file]) if each["kind"] == kind]


def _pinned_to(job: dict[str, Any]) -> str:
    (host,) = pinned_to(job["template"]["spec"]["template"]["spec"])
    return host


def _commands(value: Any) -> list[list[str]]:
    """The command of every container in a document."""
    if isinstance(value, list):
        return [command for part in value for command in _commands(part)]
    if not isinstance(value, dict):
        return []
    own = [value["command"]] if "command" in value else []
    return own + [command for part in value.values() for command in _commands(part)]


def _templates(value: Any) -> list[dict[str, Any]]:
    """Every pod template in a document: what holds the spec of a pod."""
    if isinstance(value, list):
        return [template for part in value for template in _templates(part)]
    if not isinstance(value, dict):
        return []
    if "affinity" in value.get("spec", {}):
        return [value]
    return [template for part in value.values() for template in _templates(part)]
