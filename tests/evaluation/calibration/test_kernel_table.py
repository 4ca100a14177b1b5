"""Measured kernels: the file, and every family run on the CPU through the code that times a GPU."""

import importlib.util
import warnings
from collections import Counter

import pytest
import torch

from meshwright.cli import run_command_line
from meshwright.costs.training_step import kernels
from meshwright.costs.work import layer as blocks
from meshwright.costs.work.operations import FusedAttention, Product, Sweep
from meshwright.devices import device_type
from meshwright.errors import ConfigError, MeasurementError, MeshwrightError
from meshwright.evaluation.calibration import kernel_suite, kernel_table
from meshwright.evaluation.calibration.kernel_checks import check, hold
from meshwright.evaluation.calibration.kernel_table import FAMILIES, LayerItem, OptimizerItem, PaceItem, ProductItem
from meshwright.evaluation.calibration.kernel_timing import Stopwatch
from meshwright.evaluation.calibration.layer_runs import network_times
from meshwright.evaluation.calibration.measure import device_named, measure_items
from meshwright.evaluation.validation.step_times.published_step import gpt
from meshwright.plans.partition import Layout

CPU = Stopwatch(torch.device("cpu"), 1e-3, 2)
LAYER = {"family": "layer", "name": "gpt layer", "hidden": 32, "num_heads": 4, "tp": 2, "micro_batch": 2, "sequence_length": 16}

TINY = (
    *kernel_suite.layer_products(64, 2, 32),
    *(
        ProductItem(family="attention_product", name="scores", m=16, n=16, k=8, batch=3, transposed=side)
        for side in ("none", "first", "second")
    ),
    *(kernel_suite.fused_attention_item(2, 32, 16, is_causal=c, is_backward=b) for c in (True, False) for b in (True, False)),
    *(kernel_suite.stream_item(name, 1024, 64) for name in kernel_suite.STREAMS),
    *(kernel_suite.loss_item(by, 8, 50, is_backward=b) for by in ("megatron", "torch") for b in (False, True)),
    *(OptimizerItem(family="optimizer", name="adamw", parameters=256, num_tensors=2, is_clipped=c) for c in (False, True)),
    *(PaceItem(family="gap", name=name) for name in ("in a graph", "in a stream")),
    *(PaceItem(family="host", name=name) for name in kernel_suite.PACES),
    *(
        LayerItem(**LAYER, attention=attention, has_dropout=attention == "unfused", is_backward=b)
        for attention in ("fused", "unfused")
        for b in (False, True)
    ),
)


@pytest.fixture(scope="module")
def measured():
    before = torch.get_rng_state()
    told = []
    found = measure_items(TINY, CPU, "h100", gpu="a CPU", seed=3, command="a test", progress=lambda *step: told.append(step))
    assert torch.equal(torch.get_rng_state(), before)
    assert told[-1] == ("layer", 4, 4)
    return found


def test_every_family_runs_and_keeps_shape_and_order(measured):
    assert measured.left_out == ()
    assert [item.model_copy(update={"us": None}) for item in measured.items if not isinstance(item, LayerItem)] == list(TINY[:-4])
    assert all(item.us > 0 for item in measured.items)
    assert all(item.host_us > 0 for item in measured.of("layer"))
    assert {item.family for item in measured.items} == set(FAMILIES) - {"model"}


def test_what_is_written_is_read_back_one_line_for_each_item(measured, tmp_path):
    path = tmp_path / "kernels.yaml"
    kernel_table.write(path, measured)
    assert kernel_table.read(path) == measured
    rows = [line for line in path.read_text().splitlines() if line.startswith("  - ")]
    assert len(rows) == len(TINY)
    assert all(row.startswith("  - {family: ") and " us: " in row for row in rows)


def test_every_row_of_a_kernel_can_be_priced(measured):
    model = kernels.kernel_model(device_type("h100"))
    for item in measured.items:
        priced = item.priced()
        assert (priced is None) == (item.family in ("optimizer", "gap", "host", "layer", "model"))
        if priced is not None:
            assert model.kernel_s(priced) > 0


def test_operations_and_bytes_worked_by_hand():
    product = next(kernel_suite.layer_products(64, 2, 32))
    assert (product.m, product.n, product.k) == (32, 96, 64)  # tokens, 3 x 64 / 2, hidden
    assert product.priced().flops == 2 * 32 * 96 * 64
    forward = kernel_suite.fused_attention_item(2, 32, 16, is_causal=True, is_backward=False)
    # 2 heads x 2 products x 2 x 32 x 32 x 16, halved by the mask; Q, K, V and O of 2 x 32 x 16 numbers of two bytes
    assert (forward.flops, forward.moved_bytes) == (65_536, 8192)
    backward = kernel_suite.fused_attention_item(2, 32, 16, is_causal=True, is_backward=True)
    assert (backward.flops, backward.moved_bytes) == (163_840, 16_384)
    assert kernel_suite.stream_item("dropout", 1024, 64).moved_bytes == 1024 * (2 + 2 + 1)
    assert kernel_suite.stream_item("norm gradient", 1024, 64).moved_bytes == 1024 * 2 * 5
    assert kernel_suite.loss_item("torch", 8, 50, is_backward=False).moved_bytes == 8 * 50 * 38


@pytest.mark.parametrize(("hidden", "heads", "tp"), [(1024, 16, 1), (4096, 32, 4), (1600, 25, 1)])
def test_products_are_those_that_the_cost_model_prices_in_a_layer(hidden, heads, tp):
    shape = gpt(1, hidden, heads, 51_200, 2048)
    work = blocks.layer(shape, Layout(tp=tp, micro_batch=1, global_batch=1, attention="fused"), 2048)
    items = [item for item in (*work.forward, *work.backward) if isinstance(item, Product)]
    wanted = Counter((item.name, item.m, item.n, item.k, item.is_weight) for item in items)
    found = [item.priced() for item in kernel_suite.layer_products(hidden, tp, 2048)]
    assert Counter((item.name, item.m, item.n, item.k, item.is_weight) for item in found) == wanted


def test_attention_and_loss_count_what_the_cost_model_counts():
    shape = gpt(1, 1024, 16, 51_200, 2048)
    layout = Layout(micro_batch=2, global_batch=2, attention="fused")
    layer, head = blocks.layer(shape, layout, 2048), blocks.head(shape, layout, 2048, True)
    for passes, is_backward in ((layer.forward, False), (layer.backward, True)):
        (wanted,) = (item for item in passes if isinstance(item, FusedAttention))
        found = kernel_suite.fused_attention_item(32, 2048, 64, is_causal=True, is_backward=is_backward)
        assert (found.flops, found.moved_bytes) == (wanted.flops, wanted.moved_bytes)
    for passes, is_backward in ((head.forward, False), (head.backward, True)):
        (wanted,) = (item for item in passes if isinstance(item, Sweep) and item.kind == "loss")
        assert kernel_suite.loss_item("megatron", 4096, 51_200, is_backward=is_backward).priced() == wanted


def test_the_grid_is_the_same_each_time_and_quick_is_a_part_of_it():
    whole, quick = kernel_suite.grid(), kernel_suite.grid(quick=True)
    assert whole == kernel_suite.grid()
    assert 250 <= sum(item.family == "product" for item in whole) <= 350
    assert len(set(whole)) == len(whole)
    assert {item.family for item in quick} == {item.family for item in whole} == set(FAMILIES)
    assert set(quick) < set(whole)
    assert len(quick) < 100
    for family in kernel_suite.PAIRED:
        sides = [item.is_backward for item in quick if item.family == family]
        assert sides == [False, True] * (len(sides) // 2)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_computes_what_it_says(family):
    torch.manual_seed(0)
    check(family, torch.device("cpu"))


def test_a_wrong_result_is_refused():
    right = torch.ones(8)
    hold("product", right * 1.001, right)
    for wrong in (right * 1.2, right * torch.nan):
        with pytest.raises(MeasurementError, match=r"product: the result is wrong by .*nothing is written"):
            hold("product", wrong, right)


def test_a_network_is_timed_on_its_loss():
    made = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 1000)
    )
    assert min(network_times(made, 2, CPU, image_size=16)) > 0


def test_networks_are_left_out_with_the_reason_where_torchvision_is_missing(measured):
    if importlib.util.find_spec("torchvision") is not None:
        pytest.skip("torchvision is installed here")
    found = measure_items((TINY[0], *kernel_suite.models()), CPU, "h100", gpu="a CPU", seed=0, command="a test")
    assert [(one.family, one.name) for one in found.left_out] == [("model", "all")]
    assert "ModuleNotFoundError: No module named 'torchvision'" in found.left_out[0].reason


def test_what_the_device_refuses_is_left_out_by_name():
    refused = LayerItem(**LAYER, attention="fused", has_dropout=True, is_backward=False)  # the CPU's kernel has no dropout
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of each kernel that it cannot take
        found = measure_items((TINY[0], refused), CPU, "h100", gpu="a CPU", seed=0, command="a test")
    assert len(found.items) == 1
    (one,) = found.left_out
    assert one.name.startswith("gpt layer, hidden 32, num_heads 4, tp 2")
    assert one.reason.startswith("RuntimeError: ")


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
    ],
)
def test_the_device_type_is_a_word_of_the_name_of_the_gpu(gpu, name):
    assert device_named(gpu) == name


def test_a_gpu_of_no_known_type_is_told_the_types():
    with pytest.raises(ConfigError, match=r"--device.*T400.*valid: a100, .*v100"):
        device_named("NVIDIA T400 4GB")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("family: stream", "family: steam", r"items\.\d+\.family: not a valid kind \(got 'steam'\); did you mean 'stream'"),
        ("m: 32,", "rows: 32,", r"items\.0\.rows: unknown key"),
        ("us: ", "us: -", r"items\.0\.us: .*more than 0"),
        (", us: ", ", k: 64, us: ", "the key stands twice"),
        ("device: h100", "gadget: h100", "unknown key"),
        ("date: '", "date: 'on ", "date: "),
    ],
)
def test_a_bad_file_is_refused_with_its_line_and_field(measured, tmp_path, old, new, told):
    path = tmp_path / "kernels.yaml"
    text = kernel_table.kernels_text(measured)
    line = text[: text.index(old)].count("\n") + 1
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=told) as caught:
        kernel_table.read(path)
    assert caught.value.line == line


def test_an_item_without_its_time_is_neither_read_nor_written(measured, tmp_path):
    path = tmp_path / "kernels.yaml"
    unmeasured = measured.model_copy(update={"items": TINY[:1]})
    with pytest.raises(ConfigError, match=r"items\.0\.us: the key is missing"):
        kernel_table.write(path, unmeasured)
    assert list(tmp_path.iterdir()) == []
    path.write_text(kernel_table.kernels_text(unmeasured))
    with pytest.raises(ConfigError, match=r"items\.0\.us: the key is missing") as caught:
        kernel_table.read(path)
    assert caught.value.line == path.read_text().splitlines().index("items:") + 2


@pytest.mark.parametrize(("cuda", "why"), [("13.0", "sees no GPU"), (None, "is a build without CUDA, see docs/install.md")])
def test_without_a_gpu_the_command_says_so_and_writes_nothing(tmp_path, capsys, monkeypatch, cuda, why):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    out = tmp_path / "kernels.yaml"
    assert run_command_line(["calibrate", "measure", "--quick", "--out", str(out)]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert f"{why}, so there is nothing to measure" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [(("--device", "h10"), "valid: "), (("--out", "/nowhere/kernels.yaml"), "--out"), (("--seed", "-1"), "--seed")],
)
def test_bad_options_are_refused_before_anything_is_measured(options, told, capsys):
    assert run_command_line(["calibrate", "measure", *options]) == 2
    assert told in capsys.readouterr().err


def test_nothing_measured_is_an_error():
    with pytest.raises(MeshwrightError, match="nothing could be measured"):
        measure_items((), CPU, "h100", gpu="a CPU", seed=0, command="a test")
