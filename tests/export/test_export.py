"""Laws of every target: the registry, options, folders, refusals, and the pages."""

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.cli import run_command_line
from meshwright.errors import ExportError, InputFileError, PlanError
from meshwright.export import export, export_run, targets, write
from meshwright.export.options import ExportOptions
from meshwright.export.target import MAX_NAME, dns_label
from meshwright.plans.document import PlacementPlan
from meshwright.plans.memory import tight_text

from ..tree import built

DOCS = Path(__file__).parents[2] / "docs"
ALL = sorted(targets)
SCHEDULERS = {
    "chakra": "Chakra",
    "deepspeed": "DeepSpeed",
    "device-map": "a device map",
    "kubernetes": "Kubernetes",
    "megatron": "Megatron-LM",
    "openmpi": "Open MPI",
    "ray": "Ray",
    "slurm": "Slurm",
    "tensorflow": "TensorFlow",
    "torchrun": "torchrun",
    "torchtitan": "torchtitan",
}
"""How each is called at the head of its files."""


@pytest.mark.parametrize("target", ALL)
def test_every_file_is_headed_by_what_is_not_guaranteed(plan_for, exported, target):
    plan, files = plan_for(target), exported(target)
    manifest = json.loads(files.pop("export.json"))
    assert manifest["not_guaranteed"] == list(targets[target].not_guaranteed)
    assert sorted([*files, "export.json"]) == manifest["files"]
    assert [(rank["rank"], rank["host"]) for rank in manifest["ranks"]] == [(r.rank, r.host) for r in plan.ranks]
    first_words = targets[target].not_guaranteed[0].split(":")[0]
    job = f"# Job {manifest['name']}; ranks: {plan.num_ranks}, hosts: {len(plan.host_order)}.\n"
    scheduler = f"# Not guaranteed by {SCHEDULERS[target]}:\n"
    for name, content in files.items():
        if isinstance(content, str) and not name.endswith(".json"):  # bytes and JSON have no comments; the manifest says it
            assert f"- {first_words}:" in content[:1500]
            assert job + scheduler in content[:1500]


@pytest.mark.parametrize("target", ALL)
def test_every_target_says_what_it_keeps_and_what_not(target):
    described = targets[target]
    assert described.name == target
    assert described.summary
    assert "\n" not in described.summary
    assert described.guaranteed
    assert described.not_guaranteed
    assert all(sentence.endswith(".") for sentence in (*described.guaranteed, *described.not_guaranteed))


@pytest.mark.parametrize("target", ALL)
def test_export_is_a_pure_function(plan_for, exported, target):
    assert exported(target) == export(plan_for(target), target, ExportOptions())


@pytest.mark.parametrize("target", sorted(set(ALL) - {"chakra", "device-map", "tensorflow"}))  # the others have none
def test_the_rendezvous_is_on_the_chosen_port_and_no_other(plan_for, target):
    texts = [text for text in export(plan_for(target), target, {"master_port": 31_337}).values() if isinstance(text, str)]
    assert any("31337" in text for text in texts)
    assert not any("29500" in text for text in texts)


def test_that_a_plan_is_tight_is_said_at_its_export_too(running_example, tmp_path, capsys):
    running_example.model_copy(update={"why": f"fastest; {tight_text(79e9, 80e9)}; more"}).save(tmp_path / "plan.json")
    words = ["--format", "torchrun", "--out", str(tmp_path / "out")]
    assert run_command_line(["export", str(tmp_path / "plan.json"), *words]) == 0
    assert f"{running_example.job.name}: memory is tight: 79.0 of 80.0 GB" in capsys.readouterr().out


def test_an_unknown_format_or_option_gets_the_nearest(running_example):
    with pytest.raises(ExportError, match="did you mean 'slurm'"):
        export(running_example, "slrum")
    with pytest.raises(ExportError, match="did you mean 'image'"):
        export(running_example, "slurm", {"imag": "x"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "Gpt"}, "name"),
        ({"name": "x" * 41}, "name"),
        ({"name": "a;b"}, "name"),
        ({"image": "a b"}, "image"),
        ({"image": "$(x)"}, "image"),
        ({"command": "python 'open"}, "command: a quotation mark is not closed"),
        ({"command": "  "}, "command: is empty"),
        ({"script": "a\nb"}, "script: holds a control character"),
        ({"script": "--node-rank=0 train.py"}, "script: begins with an option"),
        ({"command": "'-x' y"}, "command: begins with an option"),
        ({"master_port": 0}, "master_port"),
        ({"master_port": 65536}, "master_port"),
        ({"decision": "run 1"}, "decision"),
        ({"decision": "x" * 64}, "decision"),
        ({"decision": "run-"}, "decision"),
    ],
)
def test_impossible_options_are_refused(running_example, options, message):
    with pytest.raises(ExportError, match=message):
        export(running_example, "slurm", options)


@pytest.mark.parametrize("target", ALL)
def test_an_illegal_plan_is_refused(make_plan, target):
    plan = make_plan(["a", "b"])
    twice = plan.model_copy(update={"ranks": (plan.ranks[0], plan.ranks[0])})
    with pytest.raises(PlanError, match="rank 0: the rank appears twice"):
        export(twice, target)


@pytest.mark.parametrize("target", ALL)
def test_a_plan_without_ranks_that_was_slipped_past_the_form_is_refused(make_plan, target):
    with pytest.raises(PlanError, match="ranks: a plan has at least one rank"):
        export(make_plan(["a"]).model_copy(update={"ranks": (), "host_order": ()}), target)


@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("hosts", [["b", "b", "a"], ["b", "a", "b", "a"]], ids=["unequal", "interleaved"])
def test_hosts_with_unequal_or_interleaved_ranks_are_kept_or_refused_with_the_reason(make_plan, target, hosts):
    try:
        stored = json.loads(export(make_plan(hosts), target)["export.json"])["ranks"]
    except ExportError as error:
        reported = error
    else:
        assert [rank["host"] for rank in stored] == hosts
        return
    assert reported.field is not None
    assert len(reported.problem.split()) > 3  # a reason


@given(st.text(max_size=80))
def test_any_text_becomes_a_short_dns_label(text):
    label = dns_label(text)
    assert 1 <= len(label) <= MAX_NAME
    assert ExportOptions(name=label).name == label


def test_long_names_stay_different():
    assert dns_label("x" * 50) != dns_label("x" * 51)
    assert dns_label("zoo:GPT2 xl") == "zoo-gpt2-xl"


def test_write_makes_a_folder_and_replaces_only_its_own(running_example, tmp_path):
    out = tmp_path / "deep" / "out"
    write(export(running_example, "torchrun"), out)
    write(export(running_example, "slurm"), out)
    assert sorted(path.name for path in out.iterdir()) == ["export.json", "job.sbatch"]
    (out / "results.log").write_text("precious")
    with pytest.raises(ExportError, match=r"holds a file that no export wrote.*'results\.log'"):
        write(export(running_example, "slurm"), out)
    assert (out / "results.log").read_text() == "precious"


@pytest.mark.parametrize(("umask", "mode"), [(0o077, 0o700), (0o027, 0o750), (0o022, 0o755)])
def test_whoever_may_read_a_script_and_nobody_else_may_run_it(running_example, tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        write(export(running_example, "torchrun"), tmp_path / "out")
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "out").glob("*.sh")} == {mode}
    assert (tmp_path / "out" / "export.json").stat().st_mode & 0o111 == 0


def test_write_refuses_a_folder_with_a_link(running_example, tmp_path):
    write(export(running_example, "slurm"), tmp_path / "out")
    (tmp_path / "out" / "data").symlink_to(tmp_path)
    with pytest.raises(ExportError, match=r"holds a file that no export wrote.*'data'"):
        write(export(running_example, "slurm"), tmp_path / "out")


def test_bytes_and_subfolders_are_written_as_they_are_and_replaced_whole(running_example, tmp_path):
    manifest = {"files": ["export.json", "run.sh", "traces/rank0.et"]}
    write({"traces/rank0.et": b"\x00\xff", "run.sh": "#!/bin/bash\n", "export.json": json.dumps(manifest)}, tmp_path / "out")
    assert (tmp_path / "out" / "traces" / "rank0.et").read_bytes() == b"\x00\xff"
    assert (tmp_path / "out" / "run.sh").stat().st_mode & 0o111
    assert not (tmp_path / "out" / "export.json").stat().st_mode & 0o111
    write(export(running_example, "slurm"), tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["export.json", "job.sbatch"]


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


def test_a_decision_names_one_plan(make_plan, tmp_path):
    with pytest.raises(ExportError, match=r"decision: names one plan, and there are 2 \(got 'run-1'\)"):
        export_run({name: make_plan([name]) for name in "ab"}, "slurm", tmp_path / "out", {"decision": "run-1"})


def test_a_run_gives_every_name_a_folder_of_its_own(make_plan, tmp_path):
    names = ["../up", "a b", "a-b-", "", "meta/Llama", "index.json", "plain", "模型"]
    done = export_run({name: make_plan(["a"]) for name in names}, "slurm", tmp_path / "out", {"name": "job"})
    rows = json.loads((tmp_path / "out" / "index.json").read_text())["plans"]
    assert [row["name"] for row in rows] == names == list(done.written)
    assert {path.parent.name for path in (tmp_path / "out").glob("*/job.sbatch")} == {row["folder"] for row in rows}
    assert len({row["folder"] for row in rows}) == len(names)
    assert rows[6]["folder"] == "plain"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    export_run({"other": make_plan(["a"])}, "slurm", tmp_path / "out")  # it is known for an export and replaced
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["index.json", "other"]


@pytest.mark.parametrize("name", ["../up", "/up", "a/../../up", "..", ""])
def test_a_file_that_leads_out_of_the_folder_is_not_written(tmp_path, name):
    with pytest.raises(InputFileError, match="leads out of the folder"):
        write({"export.json": "{}", name: "text"}, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_place_of_the_folder_is_refused_and_what_it_leads_to_stays(running_example, tmp_path):
    write(export(running_example, "slurm"), tmp_path / "out")
    for name, target in (("link", "out"), ("dangling", "absent")):
        (tmp_path / name).symlink_to(target)
        with pytest.raises(InputFileError, match=f"is a link, and links are not replaced; name what it leads to, .*{target}"):
            write(export(running_example, "torchrun"), tmp_path / name)
        assert (tmp_path / name).is_symlink()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["dangling", "export.json", "job.sbatch", "link", "out"]


@pytest.mark.parametrize(("names", "message"), [([], "no plans"), (["a.b", "a_b"], "submitted under the same name as a.b")])
def test_a_run_with_impossible_names_is_refused(make_plan, tmp_path, names, message):
    with pytest.raises(ExportError, match=message):
        export_run({name: make_plan(["a"]) for name in names}, "slurm", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_run_in_which_no_plan_can_be_expressed_is_refused(make_plan, tmp_path):
    with pytest.raises(ExportError, match=r"none of the 1 plans can be expressed; j: .*same number of ranks"):
        export_run({"j": make_plan(["b", "b", "a"])}, "slurm", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_page_tells_every_target_and_every_option():
    sections = {part.partition("\n")[0]: part for part in built("export.md").split("\n## ")}
    for title, named in (("Targets", targets), ("Options", ExportOptions.model_fields)):
        cells = [line.split("|")[1] for line in sections[title].splitlines() if line.startswith("| `")]
        rows = [row for cell in cells for row in re.findall("`([^`]+)`", cell)]
        assert sorted(rows) == sorted(named)


def test_the_least_plan_of_the_page_is_enough_for_the_targets_that_it_names():
    page = (DOCS / "formats.md").read_text()
    least = next(text for text in re.findall(r"^```json\n(.*?)^```", page, re.S | re.M) if '"ranks"' in text)
    plan = PlacementPlan.model_validate_json(least)
    named = re.search(r"((?:`\w+`, )+`\w+` and `\w+`) need no more than this", page.replace("\n", " "))[1]
    for target in re.findall(r"`(\w+)`", named):
        assert export(plan, target)


@pytest.mark.parametrize("target", ["megatron", "torchtitan"])
def test_a_plan_without_a_layout_is_told_the_search_that_finds_one(running_example, target):
    with pytest.raises(ExportError, match=f"`meshwright plan --search --for {target}` finds "):
        export(running_example, target)


@pytest.mark.parametrize("key", ["job", "cluster"])
def test_a_trace_without_a_graph_or_a_cluster_is_told_what_embeds_them(layout_example, key):
    change = {"cluster": None} if key == "cluster" else {"job": layout_example.job.model_copy(update={"graph": None})}
    with pytest.raises(ExportError, match=r"`meshwright plan` and `meshwright plan --ops` embed it"):
        export(layout_example.model_copy(update=change), "chakra")
