import numpy as np
import pytest

from meshwright.errors import GraphError, InputFileError
from meshwright.jobs.readers.pipedream import load_profile, without_inputs

FIELDS = "forward_compute_time=1.5, backward_compute_time=3.0, activation_size=100.0, parameter_size=20.0"
SMALL = f"""\
node2 -- Conv2d(3, 64, kernel_size=(3, 3)) -- {FIELDS}
node1 -- Input0 -- forward_compute_time=0.0, backward_compute_time=0.0, activation_size=[6.0; 2.0; 1.5], parameter_size=0.0
\tnode1 -- node2
"""

# Ops and edges, counted with `grep -c '^node'` and `grep -cP '^\t'`.
PROFILES = {
    "alexnet": (23, 23),
    "gnmt": (48, 58),
    "inception_v3": (326, 362),
    "resnet18": (71, 79),
    "resnet50": (177, 193),
    "squeezenet1_0": (68, 76),
    "vgg16": (41, 41),
}


def profile(tmp_path, text):
    path = tmp_path / "tiny" / "graph.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text.encode())
    return path


def test_a_small_profile_worked_by_hand(tmp_path):
    graph = load_profile(profile(tmp_path, SMALL))
    assert graph.name == "tiny"
    assert graph.op_names == ("node2", "node1")  # as in the file, not sorted
    assert graph.op_kinds == ("Conv2d", "Input0")
    assert graph.forward_s.tolist() == [0.0015, 0.0]  # 1.5 ms
    assert graph.backward_s.tolist() == [0.003, 0.0]
    assert graph.activation_bytes.tolist() == [100.0, 9.5]  # 6 + 2 + 1.5
    assert graph.parameter_bytes.tolist() == [20.0, 0.0]
    assert graph.edges.tolist() == [[1, 0]]
    assert (graph.reference_device, graph.samples_per_step, graph.source) == (None, None, "measured")
    assert not graph.has_flops


def test_blank_lines_and_windows_line_endings_change_nothing(tmp_path):
    plain = load_profile(profile(tmp_path, SMALL)).to_data()
    assert load_profile(profile(tmp_path, "\n" + SMALL.replace("\n", "\r\n\r\n"))).to_data() == plain


def test_without_inputs_keeps_all_else(tmp_path):
    graph = load_profile(profile(tmp_path, SMALL + f"node3 -- ReLU -- {FIELDS}\n\tnode2 -- node3\n"))
    rest = without_inputs(graph)
    assert rest.op_names == ("node2", "node3")
    assert rest.edges.tolist() == [[0, 1]]
    assert rest.step_s == graph.step_s
    with pytest.raises(GraphError, match="no op but its inputs"):
        without_inputs(load_profile(profile(tmp_path, SMALL.splitlines()[1])))


@pytest.mark.parametrize(
    ("line", "number", "message"),
    [
        ("node1 Conv2d", 4, "neither an op"),
        ("node3 -- ", 4, r"neither an op .* \(got 'node3 --'\)"),
        ("\tnode1 -- node9", 4, r"the edge names an op that is not in the file \(got 'node9'\); valid: node1, node2"),
        ("\tnode1 -- node2", 4, "the edge is already on line 3"),
        (f"node1 -- ReLU -- {FIELDS}", 4, r"the op appears twice \(got 'node1'\)"),
        (f"node3 -- ReLU -- {FIELDS}, colour=1", 4, "node3.colour: unknown field"),
        (f"node3 -- ReLU -- {FIELDS.replace('parameter_size', 'parameter_sise')}", 4, "did you mean 'parameter_size'"),
        (f"node3 -- ReLU -- {FIELDS.rpartition(',')[0]}", 4, "node3.parameter_size: the field is missing"),
        (f"node3 -- ReLU -- {FIELDS}, parameter_size=1", 4, "node3.parameter_size: the field appears twice"),
        (f"node3 -- ReLU -- {FIELDS.replace('1.5', '-1.5')}", 4, r"forward_compute_time: must be finite .* \(got '-1.5'\)"),
        (f"node3 -- ReLU -- {FIELDS.replace('3.0', 'nan')}", 4, r"backward_compute_time: must be finite .* \(got 'nan'\)"),
        (f"node3 -- ReLU -- {FIELDS.replace('3.0', 'inf')}", 4, "backward_compute_time: must be finite"),
        (f"node3 -- ReLU -- {FIELDS.replace('100.0', '[1; -1]')}", 4, "activation_size: must be finite"),
        (f"node3 -- ReLU -- {FIELDS.replace('20.0', '[1; 1]')}", 4, "parameter_size: must be a number"),
        (f"node3 -- ReLU -- {FIELDS.replace('20.0', 'many')}", 4, r"parameter_size: must be a number \(got 'many'\)"),
        ("node3 -- ReLU -- fast", 4, "a field must read name=value"),
    ],
)
def test_a_malformed_line_is_named(tmp_path, line, number, message):
    path = profile(tmp_path, SMALL + line + "\n")
    with pytest.raises(GraphError, match=message) as error:
        load_profile(path)
    assert str(error.value).startswith(f"{path}:{number}: ")
    assert "\n" not in str(error.value)


def test_a_cycle_is_named(tmp_path):
    path = profile(tmp_path, SMALL + "\tnode2 -- node1\n")
    with pytest.raises(GraphError, match=r"cycle .*node1") as error:
        load_profile(path)
    assert "node2" in str(error.value)


def test_an_empty_or_missing_file_is_refused(tmp_path):
    with pytest.raises(GraphError, match="has no ops"):
        load_profile(profile(tmp_path, "\n"))
    with pytest.raises(InputFileError, match=r"no such file .* did you mean .*graph.txt"):
        load_profile(tmp_path / "tiny" / "graphs.txt")


@pytest.mark.reference
@pytest.mark.parametrize("model", PROFILES)
def test_the_published_profiles_read_whole(reference, model):
    path = reference / "pipedream" / model / "graph.txt"
    graph = load_profile(path)
    assert (graph.num_ops, graph.num_edges) == PROFILES[model]
    assert graph.name == model
    lines = path.read_text().splitlines()
    assert graph.num_ops + graph.num_edges == len(lines)
    assert graph.op_names == tuple(line.split()[0] for line in lines if not line.startswith("\t"))
    assert len(np.unique(graph.edges)) == graph.num_ops  # no op stands apart


@pytest.mark.reference
def test_steps_of_published_profiles(reference):
    # semantics.md, section 1: AlexNet's step takes 721.2 ms, of which the data loader takes 635.9.
    alexnet = load_profile(reference / "pipedream" / "alexnet" / "graph.txt")
    assert alexnet.step_s == pytest.approx(0.7212, abs=1e-4)
    assert alexnet.step_s - without_inputs(alexnet).step_s == pytest.approx(0.6359, abs=1e-4)
    # Section 6: 50 steps of ResNet-18 add up to 36,668.35 in the published simulator, which takes ms for s.
    resnet18 = load_profile(reference / "pipedream" / "resnet18" / "graph.txt")
    assert 50 * 1000 * resnet18.step_s == pytest.approx(36668.35, abs=1e-6)


@pytest.mark.reference
def test_list_valued_activations_are_summed(reference):
    graph = load_profile(reference / "pipedream" / "gnmt" / "graph.txt")
    # node7 LSTM: [6291456.0; 131072.0; 131072.0]
    assert graph.activation_bytes[graph.op_names.index("node7")] == 6553600.0
