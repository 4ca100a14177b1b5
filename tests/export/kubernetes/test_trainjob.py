"""The TrainJob: what it says, and what it refuses."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from meshwright.errors import ExportError
from meshwright.export import export

from ...schedulers.processes import free_ports
from .custom_resources import check_pod, documents

OPTIONS = {"kubernetes": "trainjob", "name": "gpt7b", "image": "ghcr.io/acme/train:1", "script": "train.py --epochs 3"}


def test_a_command_of_more_words_than_the_crd_takes_is_refused(make_plan):
    with pytest.raises(ExportError, match=r"command: a TrainJob's command has at most 128 words .*'129 words'"):
        _trainjob(make_plan(["a"]), script="x" + " y" * 126)
    assert len(_trainjob(make_plan(["a"]), script="x" + " y" * 125)["spec"]["trainer"]["command"]) == 128
    with pytest.raises(ExportError, match=r"kubernetes: hosts' names make too long an argument; take jobset .*'131072 bytes'"):
        _trainjob(make_plan([f"{number:063}" for number in range(2047)] + ["z" * 60 + ".zzz"]))


def test_the_name_keeps_the_crds_rules(make_plan):
    # CEL of the CRD: RFC 1035 label of at most 63 characters.
    for job in ("x" * 300, "9 lives", "Ä"):
        name = documents(export(make_plan(["a"], job=job), "kubernetes", {"kubernetes": "trainjob"})["trainjob.yaml"])[0]
        assert re.fullmatch("[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name["metadata"]["name"])


def test_the_patch_makes_a_pod_that_kubernetes_knows_of_the_runtime_that_the_user_chooses(make_plan):
    spec = _trainjob(make_plan(["a", "b"]), runtime="torch.of-mine")["spec"]
    assert spec["runtimeRef"]["name"] == "torch.of-mine"
    (node,) = spec["runtimePatches"][0]["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = node["template"]["spec"]["template"]["spec"]
    (mounts,) = pod["containers"]
    trainer = spec["trainer"]
    container = mounts | {key: trainer[key] for key in ("image", "command", "env")} | {"resources": trainer["resourcesPerNode"]}
    check_pod({"spec": {**pod, "restartPolicy": "Never", "containers": [container]}})


def test_pods_on_any_node_find_the_planned_rank_and_the_first_host(make_plan, tmp_path):
    trainer = _trainjob(make_plan(["b", "a", "c"]), script="train.py")["spec"]["trainer"]
    (tmp_path / "torchrun").symlink_to("/bin/echo")
    common = {"PATH": f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin", "PET_MASTER_ADDR": "localhost"}
    common["PET_MASTER_PORT"] = str(free_ports(1)[0] - 1)
    command = [word.replace("$$", "$") for word in trainer["command"]]
    started = {}
    for pod, host in enumerate("cab"):  # pod 0 is not on the first host
        own = {"PET_NODE_RANK": str(pod), "MESHWRIGHT_HOST": host, "MESHWRIGHT_ADDRESS": f"10.0.0.{pod}"}
        started[host] = subprocess.Popen(command, env=common | own, stdout=subprocess.PIPE, text=True)
    words = {host: one.communicate(timeout=100)[0].split() for host, one in started.items()}
    for place, host in enumerate("bac"):
        assert words[host] == [f"--node-rank={place}", "--master-addr=10.0.0.2", "--rdzv-backend=static", "train.py"]


def _trainjob(plan, **options):
    (job,) = documents(export(plan, "kubernetes", OPTIONS | options)["trainjob.yaml"])
    return job
