"""What holds for every target: the registry, options, folders, and that no text of a plan becomes a command."""

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import ExportError, PlanError
from meshwright.export import export, export_run, targets, write
from meshwright.export.target import MAX_NAME, ExportOptions, dns_label
from meshwright.plans.document import Rank

ALL = sorted(targets)
OWN_FILES = ("export.json", "job.sbatch", "jobset.yaml", "commands.txt", "launch.sh")
HOSTILE = [
    "$(touch owned)",
    "`touch owned`",
    "; touch owned",
    "&& touch owned",
    "|touch owned",
    "' ; touch owned; '",
    '" ; touch owned "',
    "\ntouch owned\n",
    "\nEND_OF_HOSTS\ntouch owned\n",
    "\nEND_OF_MAP\ntouch owned\n",
    "a b",
    "$$HOME $(HOME)",
    "#SBATCH --wrap=x",
    "-x",
    "--help",
    "a/../b",
    ".",
    "a:b",
    "\u00e4",
    "\u202egpu",
    "\x00",
    "x" * 300,
]
texts = st.sampled_from(HOSTILE) | st.text(max_size=20)


@pytest.mark.parametrize("target", ALL)
def test_every_file_is_headed_by_what_is_not_guaranteed(running_example, target):
    files = export(running_example, target)
    manifest = json.loads(files.pop("export.json"))
    assert manifest["not_guaranteed"] == list(targets[target].not_guaranteed)
    assert sorted([*files, "export.json"]) == manifest["files"]
    assert [(rank["rank"], rank["host"]) for rank in manifest["ranks"]] == [(r.rank, r.host) for r in running_example.ranks]
    first_words = targets[target].not_guaranteed[0].split(":")[0]
    for text in files.values():
        assert f"# - {first_words}:" in text[:1000]


@pytest.mark.parametrize("target", ALL)
def test_export_is_a_pure_function(running_example, target):
    assert export(running_example, target) == export(running_example, target, ExportOptions())


def test_an_unknown_format_or_option_gets_the_nearest(running_example):
    with pytest.raises(ExportError, match="did you mean 'slurm'"):
        export(running_example, "slrum")
    with pytest.raises(ExportError, match="did you mean 'image'"):
        export(running_example, "slurm", {"imag": "x"})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"name": "Gpt"}, "name"),
        ({"name": "x" * 41}, "name"),
        ({"name": "a;b"}, "name"),
        ({"image": "a b"}, "image"),
        ({"image": "$(x)"}, "image"),
        ({"command": "python 'open"}, "command: a quotation mark is not closed"),
        ({"command": "  "}, "command: is empty"),
        ({"script": "a\nb"}, "script: holds a control character"),
        ({"master_port": 0}, "master_port"),
        ({"master_port": 65536}, "master_port"),
    ],
)
def test_impossible_options_are_refused(running_example, options, told):
    with pytest.raises(ExportError, match=told):
        export(running_example, "slurm", options)


@pytest.mark.parametrize("target", ALL)
def test_an_illegal_plan_is_refused(make_plan, target):
    plan = make_plan(["a", "b"])
    twice = plan.model_copy(update={"ranks": (plan.ranks[0], plan.ranks[0])})
    with pytest.raises(PlanError, match="rank 0: the rank stands twice"):
        export(twice, target)


@pytest.mark.parametrize("target", ALL)
def test_a_host_name_that_was_slipped_past_the_form_is_refused(make_plan, target):
    plan = make_plan(["a"])
    hostile = plan.ranks[0].model_copy(update={"host": "a;reboot"})
    slipped = plan.model_copy(update={"ranks": (hostile,), "host_order": ("a;reboot",)})
    with pytest.raises(ExportError, match=r"rank 0: not a host name by RFC 1123 \(got 'a;reboot'\)"):
        export(slipped, target)


@given(texts)
def test_any_text_becomes_a_short_dns_label(text):
    label = dns_label(text)
    assert 1 <= len(label) <= MAX_NAME
    assert ExportOptions(name=label).name == label


def test_long_names_stay_different():
    assert dns_label("x" * 50) != dns_label("x" * 51)
    assert dns_label("zoo:GPT2 xl") == "zoo-gpt2-xl"


@given(texts.filter(lambda text: not re.fullmatch("[A-Za-z0-9]+([.-][A-Za-z0-9]+)*", text)) | st.just("x" * 300))
def test_a_hostile_host_name_is_refused(host):
    with pytest.raises(ValueError, match="RFC 1123"):
        Rank(rank=0, host=host, local_rank=0, device=0)


@settings(max_examples=80, deadline=None)
@given(job=texts.filter(bool), word=texts, target=st.sampled_from(ALL))
def test_hostile_texts_reach_the_program_as_they_are_and_do_nothing_else(tmp_path_factory, make_plan, job, word, target):
    folder = tmp_path_factory.mktemp("sandbox")
    options = {"command": shlex.join(["show-words", word])}
    if not word.isprintable():
        with pytest.raises(ExportError, match="control character"):
            export(make_plan(["a"], job=job), target, options)
        return
    assert _run(export(make_plan(["a"], job=job), target, options), target, folder) == [word]
    assert {path.name for path in folder.iterdir()} <= {*OWN_FILES, "words", "hosts.1", "bin"}


def test_the_sandbox_sees_an_injected_command(tmp_path, make_plan):
    """The negative control of the test above: a file with an injected command leaves its trace there."""
    files = export(make_plan(["a"]), "slurm", {"command": "show-words x"})
    files["job.sbatch"] = files["job.sbatch"].replace("set -euo pipefail", "set -euo pipefail\ntouch owned")
    _run(files, "slurm", tmp_path)
    assert list(tmp_path.rglob("owned"))


def test_write_makes_a_folder_and_replaces_only_its_own(running_example, tmp_path):
    out = tmp_path / "deep" / "out"
    write(export(running_example, "torchrun"), out)
    write(export(running_example, "slurm"), out)
    assert sorted(path.name for path in out.iterdir()) == ["export.json", "job.sbatch"]
    (out / "results.log").write_text("precious")
    with pytest.raises(ExportError, match=r"holds a file that no export wrote.*'results\.log'"):
        write(export(running_example, "slurm"), out)
    assert (out / "results.log").read_text() == "precious"


def test_write_refuses_a_folder_of_other_things(running_example, tmp_path, monkeypatch):
    (tmp_path / "export.json").write_text('{"mine": 1}')
    with pytest.raises(ExportError, match="no export wrote"):
        write(export(running_example, "slurm"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["export.json"]
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    with pytest.raises(ExportError, match="is the working folder or above it"):
        write(export(running_example, "slurm"), ".")


def test_a_run_is_a_folder_for_each_plan_and_an_index(make_plan, tmp_path):
    plans = {"job-0": make_plan(["b", "a"]), "job-1": make_plan(["b", "b", "a"])}
    done = export_run(plans, "slurm", tmp_path / "out", {"command": "true"})
    assert done.written == {"job-0": ("export.json", "job.sbatch")}
    assert "same number of ranks" in done.refused["job-1"]
    index = json.loads((tmp_path / "out" / "index.json").read_text())
    assert [row["name"] for row in index["plans"]] == ["job-0", "job-1"]
    assert "same number of ranks" in index["plans"][1]["refused"]
    assert "--job-name=job-0" in (tmp_path / "out" / "job-0" / "job.sbatch").read_text()
    assert not (tmp_path / "out" / "job-1").exists()
    export_run({"job-2": plans["job-0"]}, "kubernetes", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["index.json", "job-2"]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        ([], "no plans"),
        (["../up"], "a plan's name becomes a folder's"),
        (["a b"], "a plan's name becomes a folder's"),
        ([""], "a plan's name becomes a folder's"),
        (["a.b", "a_b"], "submitted under the same name as a.b"),
    ],
)
def test_a_run_with_impossible_names_is_refused(make_plan, tmp_path, names, told):
    with pytest.raises(ExportError, match=told):
        export_run({name: make_plan(["a"]) for name in names}, "slurm", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_in_which_no_plan_can_be_expressed_is_refused(make_plan, tmp_path):
    with pytest.raises(ExportError, match=r"none of the 1 plans can be expressed; j: .*same number of ranks"):
        export_run({"j": make_plan(["b", "b", "a"])}, "slurm", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def _run(files: dict[str, str], target: str, folder: Path) -> list[str]:
    """Run what was exported with harmless stand-ins for its programs; returns the words that the rank's program got."""
    programs = folder / "bin"
    programs.mkdir()
    stand_ins = {
        "show-words": 'printf "%s\\0" "$@" >"$SANDBOX/words"',
        "srun": 'while [[ "$1" == --* ]]; do shift; done; SLURM_PROCID=0 SLURM_LOCALID=0 SLURMD_NODENAME=a exec "$@"',
        "torchrun": 'while [[ "$1" == --* ]]; do shift; done; exec "$@"',
        "remote": 'exec bash -c "$2"',
    }
    for name, body in stand_ins.items():
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
        (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "SANDBOX": str(folder)}
    environment |= {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "1", "REMOTE_SHELL": str(programs / "remote")}
    for name, text in files.items():
        (folder / name).write_text(text)
    if target == "kubernetes":
        pod = yaml.safe_load(files["jobset.yaml"])["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        command = [_expanded(word, environment) for word in pod["containers"][0]["command"]]
        subprocess.run(command, cwd=folder, env=environment, check=True, timeout=60)
    else:
        script = {"slurm": "job.sbatch", "torchrun": "launch.sh"}[target]
        subprocess.run(["bash", "-n", script], cwd=folder, check=True)
        subprocess.run(["bash", script], cwd=folder, env=environment, check=True, timeout=60)
    return (folder / "words").read_text().split("\0")[:-1]


def _expanded(word: str, environment: dict[str, str]) -> str:
    """A word of a container's command as Kubernetes hands it over: ``$(NAME)`` replaced where known, ``$$`` made ``$``."""
    return re.sub(r"\$\$|\$\((\w+)\)", lambda m: "$" if m[0] == "$$" else environment.get(m[1], m[0]), word)
