"""Instances as files: read back bit by bit, and each mistake reported with its field."""

import json

import numpy as np
import pytest
from hypothesis import given

from meshwright.errors import GraphError, InputFileError, MeshwrightError, PlanError
from meshwright.simulation.operators.instance_files import from_data, load_instance, save, to_data
from meshwright.simulation.operators.piper_files import load_piper
from meshwright.simulation.operators.published_files import load_published, load_split

from ...draws import draws
from ...planners.operators.instances import fork, small_instances
from .published_samples import PIPER, PUBLISHED, SPLIT, written


@draws(20)
@given(small_instances())
def test_what_was_written_is_read_back_bit_by_bit(instance):
    again = from_data(json.loads(json.dumps(to_data(instance))), "file.json")
    for name in instance.__dataclass_fields__:
        mine, theirs = getattr(instance, name), getattr(again, name)
        assert np.array_equal(mine, theirs)
    assert again.digest == instance.digest


def test_a_file_tells_its_form(tmp_path):
    save(fork(), tmp_path / "fork.json")
    assert load_instance(tmp_path / "fork.json").digest == fork().digest
    published = load_instance(written(tmp_path / "published.json", PUBLISHED))
    assert published.digest == load_published(tmp_path / "published.json").digest


def test_a_published_instance_is_read_as_its_authors_mean_it(tmp_path):
    result = load_published(written(tmp_path / "published.json", PUBLISHED))
    assert result.op_names == ("a", "b", "c")
    assert result.device_names == ("accelerator0", "accelerator1", "cpu0")
    assert result.is_host.tolist() == [False, False, True]
    assert result.times_s[:, 0] == pytest.approx([0.003, 0.002, 0.004])
    assert result.times_s[:, 2] == pytest.approx([0.03, 0.02, 0.005])
    assert result.group.tolist() == [0, 1, 0]
    assert result.is_backward.tolist() == [False, False, True]
    assert result.memory_bytes.tolist() == [100, 100, np.inf]
    # 0.5 ms at 1 GB/s, one tensor for both readers.
    assert result.tensor_bytes.tolist() == [5e5, 2.5e5]
    split = load_split(written(tmp_path / "split.json", SPLIT), tmp_path / "published.json", result)
    assert split.tolist() == [0, 1, 0]  # c goes with its colour


def test_an_op_that_accelerators_do_not_support_runs_on_a_host(tmp_path):
    result = load_published(written(tmp_path / "published.json", PUBLISHED, nodes__1__supportedOnFpga=0))
    assert np.isinf(result.times_s[1, :2]).all()
    with pytest.raises(GraphError, match=r"no device can run this op and hold it in memory.* \(got 'b'\)"):
        load_published(written(tmp_path / "none.json", PUBLISHED, nodes__1__supportedOnFpga=0, maxCPUs=0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"maxFPGAs": ...}, "maxFPGAs: the key is missing"),
        ({"maxFPGAs": -1}, "maxFPGAs: must be a whole number of 0 to 1000 (got -1)"),
        ({"maxFPGAs": 0, "maxCPUs": 0}, "maxFPGAs: there is no device (got 0)"),
        ({"nodes": []}, "nodes: has no node"),
        ({"nodes": {}}, "nodes: must be a list (got 'dict')"),
        ({"nodes__0": 4}, "nodes[0]: must be an object (got 'int')"),
        ({"nodes__0__id": 3}, "nodes[1].id: two nodes have this id (got 3)"),
        ({"nodes__0__cpuLatency": "fast"}, "nodes[0].cpuLatency: must be a number of 0 to 1e+12 (got 'fast')"),
        ({"nodes__0__fpgaLatency": -1.0}, "nodes[0].fpgaLatency: must be a number of 0 to 1e+12 (got -1.0)"),
        ({"nodes__0__isBackwardNode": 2}, "nodes[0].isBackwardNode: must be true or false (got 2)"),
        ({"edges__0__destId": 8}, "edges[0].destId: no node has this id (got 8)"),
        ({"edges__0__sourceId": 8}, "edges[0].sourceId: no node has this id (got 8)"),
        ({"edges__1__cost": 0.6}, "edges[1].cost: the edges of one node cost the same, as they carry its one output (got 0.6)"),
        ({"edges__2__destId": 7}, "edges: the ops wait for each other in a cycle (got 'a')"),
        (
            {"nodes__0__size": 95.0, "nodes__2__size": 9.0, "maxCPUs": 0},
            "memory_bytes: no device can hold both a and c, and they go on one device",
        ),
    ],
)
def test_a_mistake_in_a_published_instance_is_told_with_its_field(tmp_path, changes, message):
    path = written(tmp_path / "published.json", PUBLISHED, **changes)
    with pytest.raises(MeshwrightError) as error:
        load_published(path)
    assert str(error.value).startswith(f"{path}: {message}")


def test_a_truncated_file_is_no_json(tmp_path):
    for data, read in ((PUBLISHED, load_published), (PIPER, load_piper), (to_data(fork()), load_instance)):
        path = written(tmp_path / "cut.json", data)
        path.write_text(path.read_text()[:-40])
        with pytest.raises(InputFileError, match="not valid JSON"):
            read(path)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"fpgas__0__nodes": [7, 8]}, InputFileError, "fpgas[0].nodes: no node of the instance has this id (got 8)"),
        ({"fpgas__0__nodes": [7, 3]}, InputFileError, "fpgas[1].nodes: the node is on two devices (got 3)"),
        ({"fpgas__1__nodes": []}, PlanError, "no device is given to this node (got 'b')"),
        ({"cpus": [{"nodes": [9]}, {"nodes": [3]}]}, PlanError, "cpus: the instance has only 1 of these devices (got 2)"),
    ],
)
def test_a_mistake_in_a_split_is_told_with_its_field(tmp_path, changes, error, message):
    instance = load_published(written(tmp_path / "published.json", PUBLISHED))
    path = written(tmp_path / "split.json", SPLIT, **changes)
    with pytest.raises(error) as raised:
        load_split(path, tmp_path / "published.json", instance)
    assert str(raised.value) == f"{path}: {message}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "format_version: only version 1 is known (got 2)"),
        ({"kind": "job"}, "kind: must be operator-instance (got 'job')"),
        ({"edges": ...}, "edges: the key is missing"),
        ({"edgse": []}, "edgse: unknown key (got 'edgse'); did you mean 'edges'?"),
        ({"times_s__0": [1.0]}, "times_s: its rows must be equally long"),
        ({"times_s__0__0": "x"}, "times_s: must hold numbers (got 'x')"),
        ({"times_s__0__0": True}, "times_s: must hold numbers (got True)"),
        ({"edges__0__0": 1.5}, "edges: must hold whole numbers (got 1.5)"),
        ({"is_host__0": 1}, "is_host: must hold true or false (got 1)"),
        ({"op_names__0": 4}, "op_names: must be a list of texts"),
        ({"edges__0__1": 9}, "edges: an edge names an op that is not there (got 9)"),
        ({"group__1": 5}, "group: groups are numbered from 0 in order of their first op"),
        ({"memory_bytes__0": -1.0}, "memory_bytes: must be 0 or more"),
        ({"resident_bytes__0": None}, "resident_bytes: must hold numbers"),
    ],
)
def test_a_mistake_in_an_instance_is_told_with_its_field(tmp_path, changes, message):
    path = written(tmp_path / "instance.json", to_data(fork()), **changes)
    with pytest.raises(MeshwrightError) as error:
        load_instance(path)
    assert str(error.value).startswith(f"{path}: {message}")


def test_pipers_instance_is_read_with_its_transfers(tmp_path):
    result = load_piper(written(tmp_path / "piper.json", PIPER))
    assert result.op_names == ("a 1", "b 2")
    assert result.degrees.tolist() == [1]
    assert result.edge_bytes.tolist() == [3.0]
    assert result.tail_sync_bytes.ravel().tolist() == [1.0]
    assert result.head_sync_bytes.ravel().tolist() == [2.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bandwidth": ...}, "bandwidth: the key is missing"),
        ({"maxDevices": 0}, "maxDevices: must be a whole number of 1 to 10000 (got 0)"),
        ({"nodes__1__id": 1}, "nodes[1].id: two nodes have this id (got 1)"),
        ({"nodes__0__TMPCs": {}}, "nodes[0].TMPCs: has no option"),
        ({"nodes__0__TMPCs": {"7" * 5_000: []}}, "nodes[0].TMPCs."),
        ({"bandwidth": 0.5}, "bandwidth: must be 1 byte a second or more (got 0.5)"),
        ({"nodes__0__TMPCs": {"two": []}}, "nodes[0].TMPCs.two: is a degree of tensor parallelism, a whole number from 1"),
        ({"nodes__0__TMPCs__1__0__syncTimeBw": {}}, "nodes[0].TMPCs.1[0].syncTimeBw.2: the key is missing"),
        ({"edges__0__destId": 5}, "edges[0].destId: no node has this id (got 5)"),
        ({"edges__0__destId": 1}, "nodes[0].TMPCs.1[0].syncTimeFw.1: the key is missing"),
    ],
)
def test_a_mistake_in_pipers_instance_is_told_with_its_field(tmp_path, changes, message):
    path = written(tmp_path / "piper.json", PIPER, **changes)
    with pytest.raises(MeshwrightError) as error:
        load_piper(path)
    assert str(error.value).startswith(f"{path}: {message}")
