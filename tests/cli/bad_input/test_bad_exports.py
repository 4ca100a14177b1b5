"""Laws of exporting: a plan that contradicts itself, an unknown format or a folder in the way writes nothing."""

import json
import shlex

import pytest

from meshwright.export import targets

EXPORT = ("export", "plan.json", "--format", "slurm", "--out", "out")


@pytest.fixture
def plan(meshwright, work):
    """``plan()`` is the content of plan.json, a good plan; ``plan(content)`` replaces it."""
    assert meshwright("plan", "--job", "graph.txt", "--cluster", "cluster.yaml", "--json", "plan.json").status == 0

    def content(new=None):
        if new is None:
            return json.loads((work / "plan.json").read_text())
        (work / "plan.json").write_text(json.dumps(new))
        return new

    return content


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "PLAN|RUN: name a plan's JSON file or a run folder"),
        (("plan.json",), f"--format: name a format; valid: {', '.join(sorted(targets))}"),
        (("plan.json", "--format", "slurm"), "--out: name the folder to write"),
        (
            (".", "--format", "slurm", "--out", "out"),
            ".: holds no plans (plans/index.json); meshwright evaluate --out writes them",
        ),
    ],
)
def test_what_is_missing_of_an_export_is_told(refused, plan, arguments, message):
    assert refused("export", *arguments).startswith(message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": []}, "plan.json: rank: unknown key (got 'rank'); did you mean 'ranks'?"),
        ({"ranks": 5}, "plan.json: ranks: must be a list (got 5)"),
        ({"job": None}, "plan.json: job: must be a mapping of keys, not null"),
    ],
)
def test_a_part_of_a_plan_that_cannot_be_is_told_by_its_field(refused, plan, change, message):
    plan(plan() | change)
    assert refused(*EXPORT).startswith(message)


def test_a_plan_for_another_cluster_is_refused(meshwright, refused, plan, spoil):
    assert meshwright(*EXPORT, "--cluster", "cluster.yaml").status == 0
    spoil("cluster.yaml", "num_devices: 2", "num_devices: 1")
    content = plan()
    del content["cluster"], content["partition"], content["host_order"]
    plan(content)
    assert len(content["ranks"]) == 2
    assert refused(*EXPORT, "--cluster", "cluster.yaml").startswith(
        "plan.json: rank 1: host host-0 of cluster pair has devices 0"
    )
    content["ranks"][0]["host"] = "gpu-07"
    plan(content)
    assert refused(*EXPORT, "--cluster", "cluster.yaml").startswith("plan.json: rank 0: cluster pair has no such host")
    assert refused(*EXPORT, "--cluster", "nowhere.yaml").startswith("nowhere.yaml: no such file")


@pytest.mark.parametrize(("words", "run"), [('"my program" a: b #1', "'my program' a: b '#1'"), ("123", "123")])
def test_a_command_is_read_in_shell_words_and_not_as_yaml(meshwright, plan, work, words, run):
    assert meshwright(*EXPORT[:-2], "--out", "mpi", "--format", "openmpi", "--set", f"command={words}").status == 0
    _, _, task = (work / "mpi" / "run.sh").read_text().partition(" bash -c ")
    assert f"exec {run}\n" in shlex.split(task)[0]


@pytest.mark.parametrize("name", ["1234", "1e3", "no"])
def test_a_decision_is_a_name_and_not_a_number(meshwright, plan, work, name):
    assert meshwright(*EXPORT, "--set", f"decision={name}").status == 0
    assert f"#SBATCH --comment=mw:{name}\n" in (work / "out" / "job.sbatch").read_text()


def test_a_folder_of_other_things_is_not_replaced(refused, plan, work):
    (work / "thesis").mkdir()
    (work / "thesis" / "chapter.tex").write_text("years of work")
    place = ("export", "plan.json", "--format", "slurm", "--out")
    message = "thesis: the folder holds a file that no export wrote; choose another (got 'chapter.tex')"
    assert refused(*place, "thesis") == message
    assert refused(*place, "graph.txt") == "--out: is a file, a folder is wanted (got 'graph.txt')"
    assert refused(*place, "graph.txt/below") == f"--out: is no folder (got '{work / 'graph.txt'}')"
    assert refused(*place, ".") == "out: is the working folder or above it; name one below (got '.')"
    assert refused(*place, "").startswith("--out: must not be empty")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("[]", "run/plans/index.json: plans: must list the names of the plans"),
        ('{"plans": 5}', "run/plans/index.json: plans: must list the names of the plans"),
        ('{"plans": []}', "run/plans/index.json: no job was placed in the episode, so there is nothing to export"),
        ('{"plans": ["job-0"]}', "run/plans/job-0.json: no such file"),
        ("{", "run/plans/index.json:1: not valid JSON"),
    ],
)
def test_an_index_of_plans_that_cannot_be_is_told(refused, work, index, message):
    (work / "run" / "plans").mkdir(parents=True)
    (work / "run" / "plans" / "index.json").write_text(index)
    assert refused("export", "run", "--format", "slurm", "--out", "out").startswith(message)
