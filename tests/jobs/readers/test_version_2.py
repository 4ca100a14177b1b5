"""Laws of saved job graphs of format_version 2: times by device type, ops that go on one device, sizes under ``memory``."""

import hashlib
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import GraphError
from meshwright.jobs.graph import JobGraph
from meshwright.jobs.load import JobSource
from meshwright.jobs.masked import Core, core_graph
from meshwright.jobs.readers.pipedream import without_inputs
from meshwright.jobs.zoo.catalogue import zoo_graph

OLD = {
    "format_version": 1,
    "name": "chain",
    "op_names": ["a", "b", "c"],
    "op_kinds": ["op", "op", "op"],
    "forward_s": [1.0, 3.0, 3.0],
    "backward_s": [2.0, 6.0, 6.0],
    "forward_flops": [0.0, 0.0, 0.0],
    "backward_flops": [0.0, 0.0, 0.0],
    "activation_bytes": [1e9, 1e9, 1e9],
    "parameter_bytes": [1e8, 1e8, 1e8],
    "workspace_bytes": [0.0, 0.0, 1e7],
    "edges": [[0, 1], [1, 2]],
    "reference_device": "v100",
    "samples_per_step": 8,
    "source": "measured",
}
TIMES = {
    "v100": {"forward_s": [1.0, 3.0, 3.0], "backward_s": [2.0, 6.0, 6.0]},
    "mine-x": {"forward_s": [0.5, None, 1.0], "backward_s": [1.0, None, 2.0]},
}
NEW = {**OLD, "format_version": 2, "times_s": TIMES, "colocate": [["tied"], [], ["tied", "x"]]}


def test_what_version_1_held_is_written_as_before(tmp_path):
    path = tmp_path / "old.json"
    JobGraph.from_data(OLD).save(path)
    before = path.read_bytes()
    assert json.loads(before) == OLD
    # As a release that knew version 1 alone wrote it.
    assert hashlib.sha256(before).hexdigest()[:16] == "8de7235375c0f77e"
    JobGraph.load(path).save(path)
    assert path.read_bytes() == before
    assert zoo_graph("alexnet").to_data()["format_version"] == 1
    # Version 2 without anything of it is the same graph, and is written as version 1.
    plain = JobGraph.from_data({**OLD, "format_version": 2, "colocate": [[], [], []], "times_s": {}, "memory": {}})
    assert plain.to_data() == OLD
    assert plain.digest == JobGraph.from_data(OLD).digest


def test_version_2_is_read_back_as_it_was(tmp_path):
    graph = JobGraph.from_data(NEW)
    assert graph.to_data() == NEW
    assert graph.times_s["mine-x"].tolist() == [[0.5, np.inf, 1.0], [1.0, np.inf, 2.0]]
    assert graph.colocate == ({"tied"}, frozenset(), {"tied", "x"})
    graph.save(tmp_path / "new.json")
    again = JobGraph.load(tmp_path / "new.json")
    assert again.to_data() == NEW
    assert again.digest == graph.digest != JobGraph.from_data(OLD).digest
    with pytest.raises(ValueError, match="read-only"):
        graph.times_s["v100"][0] = 1.0


@pytest.mark.parametrize("changed", [{"times_s": {"v100": TIMES["v100"]}}, {"colocate": [["x"], [], ["y"]]}])
def test_the_digest_sees_times_and_groups(changed):
    assert JobGraph.from_data({**NEW, **changed}).digest != JobGraph.from_data(NEW).digest


def test_what_stands_in_times_and_memory_can_be_left_out_at_the_top():
    short = {key: each for key, each in NEW.items() if not key.endswith("_bytes") and key not in ("forward_s", "backward_s")}
    sizes = {key: OLD[key] for key in ("activation_bytes", "parameter_bytes", "workspace_bytes")}
    assert JobGraph.from_data({**short, "memory": sizes}).to_data() == NEW
    with pytest.raises(GraphError, match="forward_s: the key is missing"):
        JobGraph.from_data({**short, "memory": sizes, "reference_device": "a100"})
    with pytest.raises(GraphError, match="workspace_bytes: the key is missing"):
        JobGraph.from_data({**short, "memory": {key: sizes[key] for key in list(sizes)[:2]}})


@given(st.lists(st.sets(st.sampled_from("pqrs")), min_size=1, max_size=8))
def test_ops_share_a_group_where_a_chain_of_labels_joins_them(labels):
    n = len(labels)
    zeros = [0.0] * n
    group = JobGraph("g", [f"o{v}" for v in range(n)], ["op"] * n, *[zeros] * 7, [], colocate=labels).group
    joined = np.array([[a == b or bool(labels[a] & labels[b]) for b in range(n)] for a in range(n)])
    for _ in range(n):
        joined = joined @ joined
    assert (joined == (group[:, None] == group)).all()
    assert group.tolist() == joined.argmax(axis=1).tolist()


def test_a_graph_made_of_another_keeps_what_holds_of_its_ops():
    graph = JobGraph.from_data({**NEW, "op_kinds": ["Input", "op", "op"]})
    less = without_inputs(graph)
    assert less.times_s["mine-x"].tolist() == [[np.inf, 1.0], [np.inf, 2.0]]
    assert less.colocate == (frozenset(), {"tied", "x"})
    core = core_graph(graph, Core(width=0.5))
    assert not core.times_s  # they are those of whole ops
    assert core.colocate == graph.colocate


def test_who_does_not_place_ops_is_told_what_is_left_out(tmp_path):
    JobGraph.from_data(NEW).save(tmp_path / "new.json")
    source = JobSource(str(tmp_path / "new.json"))
    remark = "left out: times_s of mine-x, v100 and colocate of the file, which `meshwright plan --ops` alone reads"
    assert source.load().remarks == (remark,)
    assert source.load(is_placed=True).remarks == ()


def changed_times(**changes):
    return {"times_s": {"a100": {**TIMES["v100"], **changes}}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 1}, "times_s: goes with format_version 2"),
        ({"format_version": 3}, "format_version: only versions 1 and 2 are known (got 3)"),
        ({"times": {}}, "times: unknown key (got 'times'); did you mean 'times_s'?"),
        ({"times_s": []}, "times_s: must be an object (got 'list')"),
        ({"times_s": {"a100": [1, 2, 3]}}, "times_s.a100: must be an object (got 'list')"),
        ({"times_s": {"a100": {"forward_s": [1, 2, 3]}}}, "times_s.a100.backward_s: the key is missing"),
        (changed_times(forward=[1, 2, 3]), "times_s.a100.forward: unknown key (got 'forward'); did you mean 'forward_s'?"),
        (changed_times(forward_s=5), "times_s.a100.forward_s: must be a list, a number for each op"),
        (changed_times(forward_s=[1, "2", 3]), "times_s.a100.forward_s: must hold numbers, and null where"),
        (changed_times(forward_s=[1, True, 3]), "times_s.a100.forward_s: must hold numbers, and null where"),
        (changed_times(forward_s=[1, -2, 3]), "times_s.a100.forward_s.b: must be 0 or more (got -2.0)"),
        (changed_times(backward_s=[1, 2, 1e11]), "times_s.a100.backward_s.c: must be 0 to 1e+10: nothing is larger"),
        (changed_times(backward_s=[1, 2]), "times_s.a100.backward_s: has 2 entries, and forward_s has 3"),
        (changed_times(forward_s=[1, 2], backward_s=[1, 2]), "times_s.a100: has 2 entries for 3 ops"),
        ({"times_s": {"": TIMES["v100"]}}, "times_s: a device type needs a name"),
        (
            {"times_s": {"v100": TIMES["mine-x"]}},
            "times_s.v100.forward_s.a: is not the forward_s of a, 1, though the reference device is v100 (got 0.5)",
        ),
        ({"colocate": "tied"}, "colocate: must hold a list of labels for each op"),
        ({"colocate": ["tied", [], []]}, "colocate: must hold a list of labels for each op"),
        ({"colocate": [["tied"], [], [1]]}, "colocate.2: labels are texts, several for each op"),
        ({"colocate": [["tied"], ["tied"]]}, "colocate: has 2 entries for 3 ops"),
        ({"memory": [1, 2, 3]}, "memory: must be an object (got 'list')"),
        ({"memory": {"workspace_bytes": [1, 2, 3]}}, "memory.workspace_bytes: is at the top of the file as well"),
        ({"memory": {"outputs": [1]}}, "memory.outputs: unknown key (got 'outputs')"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(changes, message, tmp_path):
    path = tmp_path / "new.json"
    path.write_text(json.dumps({**NEW, **changes}))
    with pytest.raises(GraphError) as refused:
        JobGraph.load(path)
    assert str(refused.value).startswith(f"{path}: {message}")
    assert "\n" not in str(refused.value)
