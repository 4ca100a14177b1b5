"""Laws of wrong jobs and clusters, as ``meshwright plan`` reports them."""

import json

import pytest

from meshwright.jobs.zoo.catalogue import zoo_names
from meshwright.planning.plan import plan


@pytest.fixture
def planned(refused):
    """The error of planning a job on a cluster."""

    def command(job="graph.txt", cluster="cluster.yaml", *more):
        return refused("plan", "--job", job, "--cluster", cluster, *more)

    return command


ZOO = ", ".join([*zoo_names()[:20], "..."])


@pytest.mark.parametrize(
    ("job", "message"),
    [
        ("grap.txt", "grap.txt: no such file (got 'grap.txt'); did you mean 'graph.txt'?"),
        ("zoo:", f"no such job in the zoo (got ''); valid: {ZOO}"),
        ("..", "..: the folder holds no graph.txt and no config.json, which says what a model is"),
    ],
)
def test_a_job_that_is_not_there_is_told_with_the_nearest(planned, job, message):
    assert planned(job) == message


def test_a_job_that_takes_no_time_is_refused(planned, work):
    text = (work / "graph.txt").read_text().replace("_time=10.0", "_time=0.0").replace("_time=20.0", "_time=0.0")
    (work / "graph.txt").write_text(text)
    assert planned() == "job: a step of this job takes no time (got 'graph.txt')"


def test_a_name_that_no_file_could_hold_is_refused(planned, work):
    folder = work / "b\udcff"  # the byte 255, which is not UTF-8
    folder.mkdir()
    (folder / "graph.txt").write_text((work / "graph.txt").read_text())
    assert planned("b\udcff").endswith(r"name: is not Unicode, so no file could hold it (got 'b\udcff')")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("num_devices: 2", "num_devices: 99999999", "5: topology.num_devices: must be at most 65536"),
        ("device: a100", "device: [a100]", "2: device: must be a mapping of keys (got ['a100'])"),
        ("device: a100\n", "", "1: device: the key is missing"),
        ("name: pair", "name: $(reboot)", "1: name: must be at most 63 small letters, digits, dots and hyphens"),
    ],
)
def test_a_wrong_cluster_is_told_by_line_key_and_value(planned, spoil, old, new, message):
    spoil("cluster.yaml", old, new)
    assert planned().startswith(f"cluster.yaml:{message}")


def test_a_job_larger_than_every_device_is_told_with_both_sizes(planned, work):
    # Two ops with 40 TB of weights each, whose model state is 8 times as large, on every rank.
    text = (work / "graph.txt").read_text().replace("parameter_size=400.0", "parameter_size=4e13")
    (work / "graph.txt").write_text(text)
    message = planned()
    assert message.startswith("job: fits no block of pair")
    assert "a rank needs 640000.000 GB and its device has 85.201 GB" in message


def test_a_job_of_a_workload_that_is_larger_than_every_device_is_told_with_file_and_key_and_what_takes_it(refused, work):
    text = (work / "graph.txt").read_text().replace("parameter_size=400.0", "parameter_size=4e13")
    (work / "graph.txt").write_text(text)
    workload = (work / "workload.yaml").read_text()
    (work / "workload.yaml").write_text(workload.replace("graphs: [zoo:squeezenet, zoo:resnet18]", "graphs: [graph.txt]"))
    message = refused("evaluate", "--benchmark", "benchmark.yaml")
    assert message.startswith("workload.yaml:1: graphs: fits no block of pair")
    assert "write `fleet:` in place of `scenario:`" in message


def test_a_deadline_that_nothing_meets_is_told_with_the_fastest(planned):
    # Two ops of 30 ms, each cut in two: a step of at least 30 ms, so 10,000 steps take at least 300 s.
    fastest_s = min(row["completion_s"] for row in plan("graph.txt", "cluster.yaml").candidates)
    assert 300 <= fastest_s < 310
    message = planned("graph.txt", "cluster.yaml", "--deadline-s", "299")
    assert message == f"deadline_s: no candidate finishes in time; the fastest takes {fastest_s:.6g} s (got 299.0)"


def test_a_folder_of_graphs_must_be_there_and_hold_a_profile(refused, work):
    (work / "empty").mkdir()
    commands = (
        ("plan", "--job", "graph.txt", "--cluster", "cluster.yaml"),
        ("plan", "--job", "zoo:vgg16", "--cluster", "cluster.yaml"),
        ("evaluate", "--benchmark", "benchmark.yaml"),
        ("train", "train.yaml"),
    )
    for command in commands:
        graphs = ["--set", "graphs="] if command[0] == "plan" else ["--graphs", ""]
        for name, message in (
            ("missing", "missing: no such folder of graphs"),
            ("graph.txt", "graph.txt: no such folder of graphs"),
            ("empty", "empty: the folder holds no profile (NAME/graph.txt)"),
        ):
            assert refused(*command, graphs[0], graphs[1] + name) == message


def test_an_odd_figure_is_warned_of_once_beside_the_result(meshwright, spoil):
    spoil("cluster.yaml", "bandwidth_gbytes_per_s: 100.0", "bandwidth_gbytes_per_s: 6000")
    for command in (
        ("plan", "--job", "graph.txt"),
        ("estimate", "--job", "graph.txt", "--layout", "dp=2,micro_batch=4,global_batch=8"),
        ("plan", "--search", "--job", "graph.txt", "--batch", 8),
    ):
        result = meshwright(*command, "--cluster", "cluster.yaml", "--json", "-")
        assert result.status == 0
        assert json.loads(result.out)
        (line,) = [line for line in result.err.splitlines() if "warning" in line]
        assert line.startswith(
            "meshwright: warning: cluster.yaml:7: topology.bandwidth_gbytes_per_s: 6000 GB/s is 6.67 times the"
        )
        assert line.endswith("did you mean 750 (6000 Gb/s)?")
