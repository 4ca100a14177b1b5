"""The table of step times: what it holds, and that its copy on disk never lies."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from meshwright.clusters.cluster import Cluster
from meshwright.costs.settings import CostSettings
from meshwright.errors import GraphError, PlanError
from meshwright.jobs import load_graph
from meshwright.plans.splitting.op_splits import uniform_splits
from meshwright.simulation.cached_files import cache_folder
from meshwright.simulation.decision_space import step_times as module
from meshwright.simulation.decision_space.space import decision_space
from meshwright.simulation.decision_space.splitting import SplitSettings
from meshwright.simulation.decision_space.step_times import step_times
from meshwright.simulation.step.timeline import simulate

from ...samples.sample_clusters import cluster_of, matrix
from ...samples.sample_graphs import profile

HOST = {
    "name": "host",
    "device": "a100",
    "topology": {"kind": "single-host", "num_devices": 4, "fabric": "switch", "bandwidth_gbytes_per_s": 300, "latency_us": 1},
}


def cluster(device="a100", **topology):
    return Cluster.from_data({**HOST, "device": device, "topology": {**HOST["topology"], **topology}})


def job(**rest):
    """A graph that can be timed by profile and by roofline."""
    graph = profile("job", [0.02, 0.04], [0.04, 0.08], [[0, 1]], activation_bytes=[6e8, 0.0], parameter_bytes=[3e8, 6e8])
    flops = np.array([1e12, 2e12])
    return dataclasses.replace(graph, forward_flops=flops, backward_flops=2 * flops, **rest)


def table(folder, graph=None, where=None, costs=None, splitting=None, max_degree=4):
    """All figures of one graph, and whether they had to be simulated."""
    simulated = []
    times = step_times(
        [graph or job()],
        decision_space(where or cluster(), max_degree),
        costs or CostSettings(),
        splitting or SplitSettings(),
        cache=folder,
        progress=lambda name, number, total: simulated.append(name),
    )
    return np.stack([times.step_s[0], times.communication_share[0], times.can_run[0]]), bool(simulated)


def test_a_table_holds_the_simulated_step_of_each_class(tmp_path):
    graph, space = job(), decision_space(cluster(), 4)
    figures, _ = table(tmp_path, graph)
    for c, block in enumerate(space.representative.tolist()):
        devices = space.block(block)
        timeline = simulate(graph, space.cluster, uniform_splits(graph, len(devices)), devices)
        assert figures[:, c].tolist() == [timeline.step_s, timeline.communication_share, True]


def test_figures_that_change_need_another_version(tmp_path):
    # Stored tables are keyed by FIGURES_VERSION. Where this test fails because a formula, the lowering or the kernel has
    # changed on purpose, raise the version and write the new figures here, else old tables are read as if they were new.
    # One rank: 180 ms of profile. Two: 90 ms, and at last a's 300 MB in a ring: 2 x 1 us + 1 ms. Four: 45 ms, and by
    # halving and doubling 4 x 1 us + 1.5 ms.
    figures, _ = table(tmp_path)
    assert module.FIGURES_VERSION == 4
    assert figures[0] == pytest.approx([0.18, 0.091002, 0.046504], rel=1e-12)


def test_a_table_from_disk_equals_the_simulated_one(tmp_path):
    first, was_simulated = table(tmp_path)
    second, is_simulated = table(tmp_path)
    assert (was_simulated, is_simulated) == (True, False)
    assert first.tobytes() == second.tobytes()


def test_graphs_share_tables_by_content_not_by_name(tmp_path):
    table(tmp_path, job())
    assert not table(tmp_path, job(name="renamed"))[1]


@pytest.mark.parametrize(
    "change",
    [
        {"costs": CostSettings(collectives="tree")},
        {"costs": CostSettings(gradient_bytes_per_parameter_byte=2.0)},
        {"costs": CostSettings(contention="independent")},
        {"costs": CostSettings(contention="fair")},
        {"costs": CostSettings(overlap_slowdown=1.126)},
        {"where": cluster(bandwidth_gbytes_per_s=150)},
        {"where": cluster(latency_us=2)},
        {"where": cluster(num_devices=2)},
        {"where": cluster(device="v100")},
        {"graph": job(forward_s=np.array([0.03, 0.04]))},
        {"graph": job(parameter_bytes=np.array([3e8, 7e8]))},
        {"graph": job(edges=np.zeros((0, 2), np.int64))},
        {"graph": job(source="estimated")},
        {"graph": job(reference_device="a100")},
        {"splitting": SplitSettings(rule="sip-ml", quantum_us=20_000.0)},
        {"max_degree": 2},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_changed_input_never_reads_a_stale_table(tmp_path, change):
    table(tmp_path / "shared")
    figures, is_simulated = table(tmp_path / "shared", **change)
    assert is_simulated
    assert figures.tobytes() == table(tmp_path / "fresh", **change)[0].tobytes()


def test_another_version_never_reads_a_stale_table(tmp_path, monkeypatch):
    table(tmp_path)
    monkeypatch.setattr(module, "FIGURES_VERSION", module.FIGURES_VERSION + 1)
    assert table(tmp_path)[1]


def test_a_damaged_table_is_simulated_again(tmp_path):
    whole, _ = table(tmp_path)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    damaged = [b"", content[:-1], content[:40], content + b"\0", bytes(len(content)), b"no table at all"]
    damaged += [content[:i] + bytes([content[i] ^ 1 << i % 8]) + content[i + 1 :] for i in range(0, len(content), 3)]
    for bad in damaged:
        file.write_bytes(bad)
        figures, is_simulated = table(tmp_path)
        assert is_simulated
        assert figures.tobytes() == whole.tobytes()
        assert file.read_bytes() == content


def test_a_table_of_another_shape_is_simulated_again(tmp_path):
    whole, _ = table(tmp_path)
    (file,) = tmp_path.iterdir()
    table(tmp_path / "other", max_degree=2)
    (other,) = (tmp_path / "other").iterdir()
    file.write_bytes(other.read_bytes())
    figures, is_simulated = table(tmp_path)
    assert is_simulated
    assert figures.tobytes() == whole.tobytes()


def test_a_cache_that_cannot_be_written_is_named_and_done_without(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(RuntimeWarning, match=r"step times are not kept.*file/.*: cannot be written"):
        without = table(tmp_path / "file")
    assert all(np.array_equal(a, b) for a, b in zip(without, table(tmp_path / "folder"), strict=True))


def test_the_cache_is_where_the_user_says(monkeypatch):
    monkeypatch.setenv("MESHWRIGHT_CACHE", "/somewhere")
    assert cache_folder() == Path("/somewhere")
    monkeypatch.delenv("MESHWRIGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/user/cache")
    assert cache_folder() == Path("/user/cache/meshwright/step_times")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/meshwright/step_times")


def test_faster_links_never_lengthen_a_step(tmp_path):
    slow, fast = (table(tmp_path, where=cluster(bandwidth_gbytes_per_s=b), costs=CostSettings())[0] for b in (10, 300))
    assert (fast[0] <= slow[0]).all()
    assert fast[0, 1] < slow[0, 1]


def test_a_job_larger_than_every_device_is_refused_with_both_numbers(tmp_path):
    # 12 GB of weights are 96 GB of model state, on every rank that has the op; activations of 4 GB can be cut in four
    large = profile("large", [1.0], [1.0], [], activation_bytes=[4e9], parameter_bytes=[12e9])
    with pytest.raises(PlanError, match=r"job: fits no block of host: .*needs 97\.000 GB .*has 85\.201 GB \(got 'large'\)"):
        table(tmp_path, large)


def test_a_job_that_only_fits_when_it_is_cut_runs_where_it_fits(tmp_path):
    # 76 GB of model state and 20 GB of activations: 96, 86 and 81 GB on a rank of 1, 2, 4
    wide = profile("wide", [1.0], [1.0], [], activation_bytes=[20e9], parameter_bytes=[9.5e9])
    assert table(tmp_path, wide)[0][2].tolist() == [False, False, True]


def test_a_job_that_lacks_memory_on_small_devices_only_is_told_so(tmp_path):
    # 24 GB of state and 64 GB of activations: too much for one A100 (88 of 85.2 GB), and half of it (56 GB) for the V100
    # of 34 GB next to it. The A100 lacks the least, 2.8 GB.
    mixed = cluster_of(matrix(np.ones((2, 2))), name="mixed", device_overrides={"host-1": "v100"})
    wide = profile("wide", [1.0], [1.0], [], activation_bytes=[64e9], parameter_bytes=[3e9])
    with pytest.raises(PlanError, match=r"fits no block of mixed: .*needs 88\.000 GB .*has 85\.201 GB"):
        table(tmp_path, wide, mixed)


def test_a_graph_that_is_not_split_far_enough_does_not_run_on_a_larger_block(tmp_path):
    # forward 20 and 40 ms: with a quantum of 20 ms the ops are cut in 2 (ceil(1 / 2) x 2) and 2
    figures, _ = table(tmp_path, splitting=SplitSettings(rule="sip-ml", quantum_us=20_000.0))
    assert figures[2].tolist() == [True, True, False]


def test_a_graph_of_another_device_is_refused(tmp_path):
    with pytest.raises(GraphError, match="timed on v100 and cannot be divided on a100"):
        table(tmp_path, job(reference_device="v100"))


def test_progress_names_what_is_simulated(tmp_path):
    graphs = [load_graph("zoo:alexnet"), job()]
    calls = []
    for _ in range(2):
        step_times(
            graphs,
            decision_space(cluster(), 2),
            CostSettings(),
            SplitSettings(),
            cache=tmp_path,
            progress=lambda *call: calls.append(call),
        )
    assert calls == [("alexnet", 0, 2), ("job", 1, 2)]
