"""Laws of run folders and trained policies: a truncated, foreign or obstructing file is reported and stays as it is."""

import shutil

import pytest


@pytest.fixture
def here(trained, work):
    """A copy of it in the working folder."""
    shutil.copytree(trained, work / "run")
    return work / "run"


def test_a_whole_run_goes_on_and_ends_at_once(meshwright, here):
    result = meshwright("train", "--resume", "run")
    assert result.status == 0
    assert "run folder" in result.out


def test_a_checkpoint_of_another_kind_is_refused(refused, here):
    shutil.copy(here / "policy.pt", here / "checkpoint.pt")
    assert refused("train", "--resume", "run").startswith("run/checkpoint.pt: ")


@pytest.mark.parametrize("folder", ["missing", ".", "graph.txt"])
def test_what_is_no_run_folder_is_not_resumed(refused, folder):
    assert refused("train", "--resume", folder) == f"{folder}: is no run folder (it has no config.yaml)"


def test_a_run_is_resumed_as_it_was_begun(refused, here):
    place = ("train", "--resume", "run")
    message = "--resume: continues in its own run folder; leave out --out and --overwrite (got 'run')"
    assert refused(*place, "--out", "other") == message
    assert refused(*place, "--overwrite") == message
    assert refused(*place, "--set", "seed=1") == "run: a run is resumed as it was begun; leave out --set (got 'seed=1')"
    message = refused("train", "train.yaml", "--resume", "run", "--set", "seed=1")
    assert message.startswith("run: benchmark: differs from the config")


def test_a_run_folder_is_not_replaced_unasked(refused, here):
    advice = "give another folder, --resume it or --overwrite it"
    assert refused("train", "train.yaml", "--out", "run") == f"run: exists already; {advice}"


@pytest.mark.parametrize("more", [(), ("--overwrite",)])
def test_a_folder_of_other_things_is_never_replaced(refused, work, more):
    (work / "thesis").mkdir()
    (work / "thesis" / "chapter.tex").write_text("years of work")
    (work / "thesis" / "config.yaml").write_text("also: years of work")
    assert refused("train", "train.yaml", "--out", "thesis", *more) == "thesis: exists already; give another folder"
    assert refused("train", "train.yaml", "--out", "graph.txt", *more) == "--out: is a file, a folder is wanted (got 'graph.txt')"


def test_a_policy_that_was_not_trained_yet_is_told(refused, here):
    (here / "policy.pt").unlink()
    message = "run: the run folder holds no policy.pt (was anything trained yet?)"
    assert refused("evaluate", "run", "--benchmark", "benchmark.yaml") == message
