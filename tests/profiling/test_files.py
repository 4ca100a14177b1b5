"""Models and traces as files: ONNX holds the traced model's costs, a Chakra trace the simulated times; bad files are refused."""

import importlib.util
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given

from meshwright.devices import device_type
from meshwright.errors import InputFileError, TraceError
from meshwright.export.chakra.schema import decode, encode
from meshwright.export.chakra.traces import traces_of
from meshwright.jobs.load import load_graph
from meshwright.profiling.profile import profile

from ..draws import draws
from ..export.chakra.plans import graph_of, plan_of, plans

A100 = device_type("a100")

with_onnx = pytest.mark.skipif(
    importlib.util.find_spec("onnx") is None, reason="onnx is not installed; the extra [onnx] installs it"
)


@pytest.fixture
def exported(gpt2, tmp_path):
    """The small GPT-2 as PyTorch writes it, the batch left open."""
    path = tmp_path / "gpt2.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        model = gpt2().eval()
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter)  # the exporter joins parameters that are equal
        ids = torch.zeros(2, 32, dtype=torch.int64)
        torch.onnx.export(model, (ids,), str(path), dynamo=False, input_names=["ids"], dynamic_axes={"ids": {0: "batch"}})
    return path


@pytest.mark.library
@with_onnx
def test_onnx_computes_and_holds_what_the_traced_model_does(exported):
    traced = profile("gpt2.py:GPT2", A100, inputs=["ids=2x32:int64"], dtype="fp32")
    result = profile(str(exported), A100, batch_size=2)
    assert result.graph.forward_flops.sum() == traced.graph.forward_flops.sum()
    assert result.graph.backward_flops.sum() == traced.graph.backward_flops.sum()
    assert result.graph.parameter_bytes.sum() == traced.graph.parameter_bytes.sum()
    assert result.traced.num_parameters == traced.traced.num_parameters
    assert result.graph.samples_per_step == 2
    assert result.graph.step_s > 0
    assert any("nodes that only prepare data" in remark for remark in result.remarks)
    # As a job it is read like every other one.
    result.graph.save(exported.with_suffix(".json"))
    assert load_graph(str(exported.with_suffix(".json"))).digest == result.graph.digest


@pytest.mark.library
@with_onnx
def test_work_of_onnx_is_linear_in_the_batch(exported):
    two, six = (profile(str(exported), A100, batch_size=size).graph for size in (2, 6))
    assert (3 * two.forward_flops == six.forward_flops).all()
    assert two.parameter_bytes.tolist() == six.parameter_bytes.tolist()
    said = profile(str(exported), A100, inputs=["ids=6x32:int64"]).graph
    assert said.digest == six.digest


@pytest.mark.library
@with_onnx
def test_products_and_convolutions_of_onnx_by_hand(tmp_path):
    from onnx import TensorProto, helper, numpy_helper, save

    weights = {"w": np.ones((4, 3, 3, 3), np.float32), "m": np.ones((10, 4 * 64), np.float32), "b": np.ones(10, np.float32)}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], name="conv"),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("Gemm", ["f", "m", "b"], ["y"], transB=1, name="last"),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [2, 3, 8, 8]), ("y", [2, 10]))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [numpy_helper.from_array(v, n) for n, v in weights.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), str(tmp_path / "net.onnx"))
    result = profile(str(tmp_path / "net.onnx"), A100).graph
    assert result.op_names == ("conv", "last")  # the activation runs in the convolution, the flattening is a view
    conv, last = 2 * 2 * 4 * 64 * 27, 2 * 2 * 10 * 256
    assert result.forward_flops.tolist() == [conv, last]
    assert result.backward_flops.tolist() == [conv, 2 * last]  # nobody wants the gradient of the input
    assert result.parameter_bytes.tolist() == [4 * 108, 4 * (2560 + 10)]
    assert result.activation_bytes.tolist() == [4 * 2 * 4 * 64, 4 * 2 * 10]
    assert result.edges.tolist() == [[0, 1]]

    spoilt = (tmp_path / "net.onnx").read_bytes().replace(b"conv", b"c\xffnv")
    (tmp_path / "net.onnx").write_bytes(spoilt)
    with pytest.raises(TraceError, match=r"net\.onnx: a node has a name that is no text$"):
        profile(str(tmp_path / "net.onnx"), A100)


@pytest.mark.library
@with_onnx
def test_what_onnx_leaves_open_is_asked_for(exported):
    with pytest.raises(TraceError, match=r"ids: is batchx32: say its shape, as --input ids=8x32, or --batch"):
        profile(str(exported), A100)
    for inputs, message in (
        (["idz=2x32"], r"--input: the model has no such input \(got 'idz'\); did you mean 'ids'"),
        (["ids=2x16"], r"--input: the model's ids is batchx32 \(got '2x16'\)"),
        (["2x32"], "inputs have names"),
    ):
        with pytest.raises(TraceError, match=message):
            profile(str(exported), A100, inputs=inputs)
    for options, message in (
        ({"measures": True}, r"--times here: goes with a model that PyTorch traces, not with .onnx"),
        ({"times": "x.json"}, r"--times: goes with a model that PyTorch traces"),
        ({"sequence_length": 8}, r"--set sequence_length: goes with a config.json"),
    ):
        with pytest.raises(TraceError, match=message):
            profile(str(exported), A100, batch_size=2, **options)
    exported.write_bytes(b"no model")
    with pytest.raises(TraceError, match=r"gpt2.onnx: is no ONNX model that the onnx package reads"):
        profile(str(exported), A100)


@pytest.mark.library
@with_onnx
@pytest.mark.parametrize("options", [{"batch_size": 4}, {"inputs": ["x=4x3"]}])
def test_shapes_that_the_file_declares_are_those_of_nodes_of_which_none_can_be_inferred(tmp_path, options):
    from onnx import TensorProto, helper, numpy_helper, save

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="first"),
        helper.make_node("Own", ["y"], ["z"], name="own", domain="of.a.vendor"),
        helper.make_node("Shape", ["z"], ["sizes"], name="sizes"),
        helper.make_node("Reshape", ["z", "sizes"], ["r"], name="same"),
        helper.make_node("MatMul", ["r", "v"], ["out"], name="last"),
    ]
    info, real = helper.make_tensor_value_info, TensorProto.FLOAT
    held = [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in (("w", (3, 8)), ("v", (8, 5)))]
    ends = [info("x", real, ["batch", 3])], [info("out", real, ["batch", 5])]
    for declared in ([info("z", real, ["batch", 8])], []):
        graph = helper.make_graph(nodes, "net", *ends, held, value_info=declared)
        imports = [helper.make_opsetid("", 17), helper.make_opsetid("of.a.vendor", 1)]
        save(helper.make_model(graph, opset_imports=imports), str(tmp_path / "net.onnx"))
        if declared:
            result = profile(str(tmp_path / "net.onnx"), A100, **options).graph
            assert dict(zip(result.op_names, result.forward_flops, strict=True))["last"] == 2 * 4 * 8 * 5
        else:
            with pytest.raises(TraceError, match="its shape does not follow from the file"):
                profile(str(tmp_path / "net.onnx"), A100, **options)


def test_onnx_without_the_package_says_what_installs_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    (tmp_path / "m.onnx").write_bytes(b"")
    with pytest.raises(TraceError, match=r"the extra \[onnx\] installs"):
        profile(str(tmp_path / "m.onnx"), A100)
    with pytest.raises(InputFileError, match=r"gone.onnx"):
        profile(str(tmp_path / "gone.onnx"), A100)


@draws(20)
@given(plans())
def test_a_trace_that_was_written_is_read_back(plan):
    for trace in traces_of(plan)[0]:
        again = decode(encode(trace))
        assert (again.version, dict(again.metadata)) == (trace.version, dict(trace.metadata))
        for node, read in zip(trace.nodes, again.nodes, strict=True):
            for field in ("id", "name", "type", "data_deps", "ctrl_deps"):
                assert getattr(read, field) == getattr(node, field)
            assert dict(read.attributes) == dict(node.attributes)
            assert (read.start_micros, read.duration_micros) == (node.start_micros, node.duration_micros)


def test_a_chakra_trace_of_two_ops_worked_by_hand(tmp_path):
    # op0 on one rank for 1 ms, op1 halved over two for 0.5 ms, backward twice as long; gradients of 500 bytes are summed.
    graph = graph_of([(0, 1)], [1000, 10], [0, 500])
    (tmp_path / "rank0.et").write_bytes(encode(traces_of(plan_of(graph, [1, 2]))[0][0]))
    result = profile(str(tmp_path / "rank0.et"), A100).graph
    assert result.op_names == ("op0", "op1")
    assert result.edges.tolist() == [[0, 1]]
    assert result.forward_s.tolist() == pytest.approx([1e-3, 0.5e-3])
    assert result.backward_s.tolist() == pytest.approx([2e-3, 1e-3])
    assert result.parameter_bytes.tolist() == [0, 500]
    assert result.source == "measured"


def test_a_chakra_trace_of_a_small_gpt2_is_the_graph_that_was_simulated(gpt2, tmp_path):
    graph = profile("gpt2.py:GPT2", A100, inputs=["ids=2x32:int64"]).graph
    slow = np.full(graph.num_ops, 1.25e-7)  # a trace's own times are whole microseconds
    graph = replace(graph, forward_s=slow, backward_s=2 * slow, reference_device=None, source="measured")
    (tmp_path / "rank0.et").write_bytes(encode(traces_of(plan_of(graph, [1] * graph.num_ops))[0][0]))
    result = profile(str(tmp_path / "rank0.et"), A100).graph
    assert sorted(result.op_names) == sorted(graph.op_names)
    number = {name: op for op, name in enumerate(result.op_names)}
    expected = {(number[graph.op_names[a]], number[graph.op_names[b]]) for a, b in graph.edges.tolist()}
    assert set(map(tuple, result.edges.tolist())) == expected
    assert result.forward_s.tolist() == pytest.approx(slow.tolist())
    assert result.backward_s.tolist() == pytest.approx((2 * slow).tolist())
    of = dict(zip(graph.op_names, graph.forward_flops.tolist(), strict=True))
    assert result.forward_flops.tolist() == [of[name] for name in result.op_names]


@pytest.mark.parametrize("content", [b"", b"\x05ab", b"\xff" * 12, b"{}", b"\x03\x0a\x7f\x01"])
def test_what_is_no_chakra_trace_is_refused(tmp_path, content):
    (tmp_path / "x.et").write_bytes(content)
    with pytest.raises(TraceError, match=r"x.et: (is no Chakra execution trace|holds no node that computes)"):
        profile(str(tmp_path / "x.et"), A100)


def test_options_of_models_do_not_go_with_a_trace(tmp_path):
    (tmp_path / "x.et").write_bytes(b"")
    for options, message in (
        ({"batch_size": 2}, "--batch: goes with a model; a trace says what ran"),
        ({"inputs": ["3x8"]}, "--input: goes with a model"),
        ({"measures": True}, r"--times here: goes with a model that PyTorch traces, not with \.et"),
    ):
        with pytest.raises(TraceError, match=message):
            profile(str(tmp_path / "x.et"), A100, **options)
