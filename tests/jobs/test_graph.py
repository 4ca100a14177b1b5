import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.devices import device_type
from meshwright.errors import GraphError, InputFileError
from meshwright.jobs import Job, zoo_graph
from meshwright.jobs.graph import JobGraph

COSTS = ("forward_s", "backward_s", "forward_flops", "backward_flops", "activation_bytes", "parameter_bytes", "workspace_bytes")


def graph(num_ops=3, edges=((0, 1), (1, 2)), **changes):
    data = {field: np.arange(1.0, num_ops + 1) for field in COSTS}
    names = tuple(f"op{i}" for i in range(num_ops))
    return JobGraph(**{"name": "g", "op_names": names, "op_kinds": ("x",) * num_ops, "edges": np.array(edges), **data, **changes})


sizes = st.floats(0, 1e8, allow_subnormal=False)  # also seconds, of which no step has more than 1e10


@st.composite
def graphs(draw):
    n = draw(st.integers(1, 8))
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n)]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    relabel = draw(st.permutations(range(n)))
    costs = {field: draw(st.lists(sizes, min_size=n, max_size=n)) for field in COSTS}
    texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    return JobGraph(
        name=draw(texts.filter(bool)),
        op_names=tuple(draw(st.lists(texts, min_size=n, max_size=n, unique=True))),
        op_kinds=tuple(draw(st.lists(texts, min_size=n, max_size=n))),
        edges=np.array([(relabel[a], relabel[b]) for a, b in edges], np.int64),
        reference_device=draw(st.sampled_from([None, "a100"])),
        samples_per_step=draw(st.sampled_from([None, 8])),
        source=draw(st.sampled_from(["measured", "estimated"])),
        **costs,
    )


@given(graphs())
def test_a_saved_graph_loads_equal(tmp_path_factory, graph):
    path = tmp_path_factory.mktemp("graph") / "g.json"
    graph.save(path)
    again = JobGraph.load(path)
    assert again.to_data() == graph.to_data()
    assert again.digest == graph.digest


@given(graphs())
def test_the_order_is_topological_and_complete(graph):
    position = np.empty(graph.num_ops, int)
    position[graph.order] = np.arange(graph.num_ops)
    assert sorted(graph.order) == list(range(graph.num_ops))
    assert all(position[a] < position[b] for a, b in graph.edges)


def test_step_and_moved_bytes_worked_by_hand():
    # times 1 + 2 + 3 forward and as much backward; op 2 reads op 1's 2 bytes, its 3 of parameters, writes 3
    assert graph().step_s == 12.0
    assert graph().moved_bytes.tolist() == [2.0, 5.0, 8.0]


def test_a_joining_op_reads_all_its_inputs():
    assert graph(edges=((0, 2), (1, 2))).moved_bytes.tolist() == [2.0, 4.0, 9.0]


def test_roofline_times_worked_by_hand():
    # a100: 312e12 * 0.5 FLOP/s, 2039e9 * 0.8 B/s, 5 us to launch. One op is bound by arithmetic, one by memory.
    timed = graph(
        2,
        ((0, 1),),
        forward_flops=[156e12, 0],
        backward_flops=[312e12, 0],
        activation_bytes=[0, 1.6312e12],
        parameter_bytes=[0, 0],
    ).timed_on(device_type("a100"))
    assert timed.forward_s == pytest.approx([1 + 5e-6, 1 + 5e-6])
    assert timed.backward_s == pytest.approx([2 + 5e-6, 2 + 5e-6])
    assert (timed.reference_device, timed.source) == ("a100", "estimated")


def test_a_graph_without_flops_is_not_timed_on_another_device():
    with pytest.raises(GraphError, match="no FLOPs"):
        graph(forward_flops=np.zeros(3)).timed_on(device_type("a100"))


def test_arrays_are_frozen():
    for field in (*COSTS, "edges", "order", "moved_bytes"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(graph(), field)[0] = 0


def test_the_digest_ignores_names_and_sees_every_cost_and_edge():
    base = graph().digest
    assert graph(name="other", op_names=("a", "b", "c"), op_kinds=("k",) * 3).digest == base
    changed = [graph(**{field: np.array([1.0, 2.0, 4.0])}) for field in COSTS] + [graph(edges=((0, 1), (0, 2)))]
    assert len({base, *(g.digest for g in changed)}) == len(COSTS) + 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"op_names": ("a", "b", "a")}, r"op_names: the op name appears twice \(got 'a'\)"),
        ({"op_kinds": ("x",)}, "op_kinds: has 1 entries for 3 ops"),
        ({"forward_s": np.ones(2)}, r"forward_s: has shape \(2,\) for 3 ops"),
        ({"forward_s": [1, -2, 1]}, r"op1.forward_s: must be finite and not negative \(got -2.0\)"),
        ({"backward_s": [1, 1, np.nan]}, "op2.backward_s: must be finite"),
        ({"activation_bytes": [np.inf, 1, 1]}, "op0.activation_bytes: must be finite"),
        ({"edges": ((0, 3),)}, r"edges: an edge names an op outside 0..2"),
        ({"edges": ((0, 1), (0, 1))}, "edges: an edge appears twice"),
        ({"edges": ((0, 1, 2), (0, 1, 2))}, "edges: must hold pairs of op numbers"),
        ({"edges": ((0.5, 1),)}, "edges: must hold pairs of op numbers"),
        ({"edges": ((1, 1),)}, r"the ops form a cycle \(got 'op1'\)"),
        ({"forward_s": [1e308] * 3}, r"op0.forward_s: must be 0 to 1e\+10: nothing is larger"),
        ({"forward_s": [9e9] * 3}, r"forward_s: the times of all ops together: must be 0 to 1e\+10: nothing is larger"),
        ({"parameter_bytes": [1, 1e30, 1]}, r"op1.parameter_bytes: must be 0 to 1e\+19: nothing is larger"),
        ({"forward_s": [1, 10**400, 1]}, "forward_s: holds something other than numbers"),
        ({"source": "mesured"}, "source: not a valid source .* did you mean 'measured'"),
        ({"samples_per_step": 0}, "samples_per_step: must be a positive"),
        ({"reference_device": 7}, "reference_device: must be a name"),
        ({"op_names": (1, 2, 3)}, "op_names: names and kinds are texts"),
        ({"name": ""}, "name: the job needs a name"),
    ],
)
def test_an_impossible_graph_is_refused(changes, message):
    with pytest.raises(GraphError, match=message):
        graph(**changes)


def test_a_cycle_is_named():
    with pytest.raises(GraphError, match=r"cycle .*op1 -> op2"):
        graph(edges=((0, 1), (1, 2), (2, 1)))


def test_a_graph_needs_an_op():
    with pytest.raises(GraphError, match="has no ops"):
        graph(0, ())


def write(tmp_path, change):
    data = graph().to_data()
    change(data)
    path = tmp_path / "g.json"
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("edges"), "edges: the key is missing"),
        (lambda d: d.update(edgs=[]), r"unknown key \(got 'edgs'\); did you mean 'edges'"),
        (lambda d: d.update(format_version=9), r"only versions 1 and 2 are known \(got 9\)"),
        (lambda d: d.update(forward_s=["x", 1, 2]), "something other than numbers"),
        (lambda d: d.update(forward_s=[[1], 1, 2]), "something other than numbers"),
        (lambda d: d.update(forward_s=[1, 2, -3]), "op2.forward_s: must be finite"),
    ],
)
def test_a_malformed_file_is_refused_by_name(tmp_path, change, message):
    path = write(tmp_path, change)
    with pytest.raises(GraphError, match=message) as error:
        JobGraph.load(path)
    assert str(path) in str(error.value)


def test_a_missing_file_and_one_that_is_not_an_object_are_refused(tmp_path):
    with pytest.raises(InputFileError, match="no such file"):
        JobGraph.load(tmp_path / "absent.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(GraphError, match="a job graph is a JSON object"):
        JobGraph.load(tmp_path / "list.json")


def test_sequential_time_is_steps_times_step():
    graph = zoo_graph("alexnet")
    assert Job(graph, 50).sequential_s == 50 * graph.step_s


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"num_steps": 0}, "num_steps"),
        ({"num_steps": 2**53 + 1}, "num_steps"),
        ({"num_steps": 1, "arrival_s": -1.0}, "arrival_s"),
        ({"num_steps": 1, "arrival_s": math.nan}, "arrival_s"),
        ({"num_steps": 1, "deadline_s": 0.0}, "deadline_s"),
        ({"num_steps": 1, "deadline_s": math.inf}, "deadline_s"),
    ],
)
def test_an_impossible_job_is_refused(arguments, field):
    with pytest.raises(GraphError, match=f"^{field}: "):
        Job(zoo_graph("alexnet"), **arguments)
