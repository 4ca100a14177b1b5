"""Laws of a traced model: hand-worked numbers, equal results of both tracers, tied parameters once, repeatability, bad input."""

import pytest

from meshwright.devices import device_type
from meshwright.errors import InputFileError, TraceError
from meshwright.jobs.load import load_graph
from meshwright.profiling.profile import profile

A100 = device_type("a100")


def profiled(name, *inputs, **options):
    return profile(f"models.py:{name}", A100, inputs=inputs, **options)


def test_a_perceptron_by_hand(models):
    # 3 rows, 8 -> 16 -> 4, two per multiply-add; nobody wants the gradient of the input, so the first layer has one product less
    result = profiled("mlp", "3x8")
    first, second = 2 * 3 * 8 * 16, 2 * 3 * 16 * 4
    graph = result.graph
    assert graph.op_kinds == ("linear", "linear")
    assert graph.edges.tolist() == [[0, 1]]
    assert graph.forward_flops.tolist() == [first, second]
    assert graph.backward_flops.tolist() == [first, 2 * second]
    assert graph.parameter_bytes.tolist() == [2 * (8 * 16 + 16), 2 * (16 * 4 + 4)]
    assert graph.activation_bytes.tolist() == [2 * 3 * 16, 2 * 3 * 4]
    assert graph.samples_per_step == 3
    assert result.traced.num_parameters == 8 * 16 + 16 + 16 * 4 + 4
    assert [op.kind for op in result.traced.ops] == ["linear", "relu", "linear"]
    assert result.part_of == (0, 0, 1)
    assert [op.output_shapes for op in result.traced.ops] == [((3, 16),), ((3, 16),), ((3, 4),)]
    assert result.graph.step_s > 0


def test_eager_keeps_each_call(models):
    result = profiled("mlp", "3x8", is_eager=True)
    assert result.graph.op_kinds == ("linear", "relu", "linear")
    assert result.graph.forward_flops.tolist() == [2 * 3 * 8 * 16, 0, 2 * 3 * 16 * 4]


def test_a_convolution_by_hand(models):
    result = profiled("Convolved", "x=2x3x8x8", dtype="fp32")
    conv, last = 2 * (2 * 8 * 8) * 16 * (3 * 3 * 3), 2 * 2 * 16 * 10
    assert result.graph.forward_flops.sum() == conv + last
    assert result.graph.backward_flops.sum() == conv + 2 * last
    assert result.graph.parameter_bytes.sum() == 4 * (16 * 27 + 16 + 160 + 10)


@pytest.mark.parametrize(("dtype", "num_bytes"), [("bf16", 2), ("fp16", 2), ("fp32", 4)])
def test_bytes_are_those_of_the_type_and_flops_do_not_depend_on_it(models, dtype, num_bytes):
    result = profiled("mlp", "3x8", dtype=dtype)
    assert result.graph.parameter_bytes.sum() == num_bytes * 212
    assert result.graph.forward_flops.sum() == 2 * 3 * (8 * 16 + 16 * 4)


def test_work_is_linear_in_the_batch(models):
    one, four = profiled("mlp", "3x8").graph, profiled("mlp", "12x8").graph
    assert (4 * one.forward_flops == four.forward_flops).all()
    assert (4 * one.activation_bytes == four.activation_bytes).all()
    assert (one.parameter_bytes == four.parameter_bytes).all()


def test_tied_parameters_are_counted_once(models):
    result = profiled("Tied", "ids=2x5:int64")
    assert result.traced.num_parameters == 32 * 8 + 8 * 8
    assert result.graph.parameter_bytes.sum() == 2 * (32 * 8 + 8 * 8) == result.traced.parameter_bytes
    assert result.graph.forward_flops.sum() == 2 * 2 * 5 * (8 * 8 + 8 * 32)
    assert result.graph.backward_flops.sum() == 2 * result.graph.forward_flops.sum()


def test_both_ways_of_tracing_make_the_same_graph(models):
    exported, watched = profiled("mlp", "3x8"), profiled("Unexported", "3x8")
    assert "traced by torch.export" in exported.remarks
    assert any(remark.startswith("torch.export fails") for remark in watched.remarks)
    for field in ("forward_flops", "backward_flops", "parameter_bytes", "activation_bytes", "workspace_bytes", "edges"):
        assert getattr(exported.graph, field).tolist() == getattr(watched.graph, field).tolist()
    assert exported.graph.op_kinds == watched.graph.op_kinds


def test_a_factory_may_bring_its_inputs(models):
    assert profiled("with_inputs").to_data() | {"name": ""} == profiled("mlp", "3x8").to_data() | {"name": ""}


def test_the_same_model_gives_the_same_graph_and_leaves_no_compiled_file(models):
    assert profiled("Tied", "2x5:int64").to_data() == profiled("Tied", "2x5:int64").to_data()
    assert [path.name for path in models.parent.iterdir()] == ["models.py"]


def test_a_saved_graph_is_read_as_it_was(models):
    graph = profiled("mlp", "3x8").graph
    graph.save(models.parent / "mlp.json")
    assert load_graph("mlp.json").to_data() == graph.to_data()


@pytest.mark.parametrize(
    ("spec", "inputs", "message"),
    [
        ("models.py:mpl", ("3x8",), "MODEL: no such function or class in the file (got 'mpl'); did you mean 'mlp'?"),
        ("models.py", (), "MODEL: must read FILE.py:NAME or PACKAGE.MODULE:NAME (got 'models.py')"),
        ("models.py:broken", ("3x8",), "MODEL: the factory fails: ValueError: no (got 'models.py:broken')"),
        ("models.py:number", ("3x8",), "MODEL: makes int, a torch.nn.Module is wanted (got 'models.py:number')"),
        ("models.py:SIZE", ("3x8",), "MODEL: is int, and nothing that makes a module (got 'models.py:SIZE')"),
        ("no_such_package.models:mlp", ("3x8",), "MODEL: cannot be imported: ModuleNotFoundError: No module named "),
        ("models.py:mlp", (), "--input: is needed, as x=8x3x224x224, unless the factory returns a module and its inputs"),
        ("models.py:mlp", ("3x",), "--input: must read [NAME=]SHAPE[:TYPE], as x=8x3x224x224 or ids=8x1024:int64 (got '3x')"),
        ("models.py:mlp", ("3x8:int46",), "--input: no such type (got 'int46'); valid: bf16, bool, fp16, fp32, int32, int64"),
        ("models.py:mlp", ("0x8",), "--input: holds no number, or more than 10,000,000,000,000 (got '0x8')"),
        ("models.py:mlp", ("x=3x8", "3x8"), "--input: inputs without a name come before those with one (got '3x8')"),
        ("models.py:mlp", ("x=3x8", "x=3x8"), "--input: the input appears twice (got 'x')"),
        ("models.py:mlp", ("3x9",), "the forward pass fails: RuntimeError: "),
        ("models.py:mlp", ("y=3x8",), "the forward pass fails: TypeError: "),
        ("models.py:Forked", ("3x8",), "the forward pass fails: its way depends on numbers in tensors, and a model is traced w"),
        ("models.py:Selected", ("3x8",), "the exported program does not run: its way depends on numbers in tensors, and"),
        ("models.py:embedding", ("8x512",), "the forward pass fails: whole numbers are wanted, as --input 8x512:int64 (Run"),
        (
            "models.py:embedding",
            ("input=8x512",),
            "the forward pass fails: whole numbers are wanted, as --input input=8x512:int64",
        ),
    ],
)
def test_what_cannot_be_traced_is_told_in_one_line(models, spec, inputs, message):
    with pytest.raises(TraceError) as error:
        profile(spec, A100, inputs=inputs)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_files_that_are_missing_or_do_not_run_are_named(models):
    with pytest.raises(InputFileError, match=r"^model\.py: no such file .*did you mean 'models\.py'"):
        profile("model.py:mlp", A100, inputs=["3x8"])
    (models.parent / "wrong.py").write_text("def mlp(:\n")
    with pytest.raises(TraceError, match=r"^wrong\.py: does not run: SyntaxError"):
        profile("wrong.py:mlp", A100, inputs=["3x8"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "bf61"}, "--set dtype: no such type (got 'bf61'); valid: bf16, fp16, fp32"),
        ({"batch_size": 4}, "--batch: goes with a config.json; the inputs of a factory say it (--input)"),
        ({"sequence_length": 0}, "--set sequence_length: must be at least 1 (got 0)"),
    ],
)
def test_options_that_cannot_be_are_told(models, options, message):
    with pytest.raises(TraceError) as error:
        profiled("mlp", "3x8", **options)
    assert str(error.value) == message
