"""Laws of outputs: a file or folder that cannot be written is reported before the work begins."""

import pytest

COMMANDS = [
    ("train", "train.yaml"),
    ("evaluate", "--benchmark", "benchmark.yaml"),
    ("plan", "--job", "graph.txt", "--cluster", "cluster.yaml"),
    ("export", "--list"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_result_file_that_cannot_be_is_refused(refused, work, command):
    (work / "folder").mkdir()
    for file, message in (
        ("missing/result.json", "--json: no such folder (got 'missing')"),
        ("folder", "--json: is a folder, a file is wanted (got 'folder')"),
        (".", "--json: is a folder, a file is wanted (got '.')"),
        ("graph.txt/result.json", "--json: no such folder (got 'graph.txt')"),
        ("", "--json: needs a name (got '')"),
    ):
        assert refused(*command, "--json", file) == message


def test_a_trace_file_that_cannot_be_is_refused(refused):
    plan = ("plan", "--job", "graph.txt", "--cluster", "cluster.yaml")
    assert refused(*plan, "--trace", "missing/trace.json") == "--trace: no such folder (got 'missing')"
    assert refused(*plan, "--trace", "trace.json", "--json", ".") == "--json: is a folder, a file is wanted (got '.')"


def test_a_folder_of_results_that_cannot_be_is_refused(refused, work):
    (work / "thesis").mkdir()
    (work / "thesis" / "chapter.tex").write_text("years of work")
    (work / "old" / "plans").mkdir(parents=True)
    (work / "old" / "results.json").write_text("{}")
    (work / "old" / "plans" / "house.dwg").write_text("a house")
    command = ("evaluate", "--benchmark", "benchmark.yaml", "--out")
    expected = "the folder holds other things and none of"
    assert refused(*command, "graph.txt") == "--out: is a file, a folder is wanted (got 'graph.txt')"
    assert refused(*command, "graph.txt/below") == f"--out: is no folder (got '{work / 'graph.txt'}')"
    assert refused(*command, "thesis") == f"--out: {expected} results.json, config.yaml; name a new one (got 'thesis')"
    assert refused(*command, "old") == f"--out: {expected} index.json; name a new one (got 'old/plans')"
    assert refused("train", "train.yaml", "--out", "graph.txt/run") == f"--out: is no folder (got '{work / 'graph.txt'}')"


@pytest.mark.filterwarnings("ignore:step times are not kept:RuntimeWarning")
def test_a_file_that_stops_a_result_from_being_written_is_told_in_one_line(refused, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    plan = ("plan", "--job", "graph.txt", "--cluster", "cluster.yaml", "--json", "plan.json")
    assert refused(*plan) == "plan.json: cannot be written (No space left on device)"
