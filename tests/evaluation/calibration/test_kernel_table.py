"""Measured kernels: the file, and every family run on the CPU through the code that times a GPU."""

import importlib.util
import warnings
from itertools import product

import pytest
import torch

from meshwright.cli import run_command_line
from meshwright.costs.training_step import kernels
from meshwright.costs.work import layer as blocks
from meshwright.costs.work.operations import FusedAttention, Product, Sweep
from meshwright.devices import device_type
from meshwright.errors import ConfigError, MeshwrightError
from meshwright.evaluation.calibration import kernel_table
from meshwright.evaluation.calibration.kernel_table import FAMILIES, LayerItem, ModelItem
from meshwright.evaluation.calibration.kernel_timing import CallTimer
from meshwright.evaluation.calibration.layer_runs import network_times
from meshwright.evaluation.calibration.measure import measure, measure_items
from meshwright.evaluation.validation.step_times.published_step import gpt
from meshwright.plans.partition import Layout

from .kernel_formulas import small

CPU = CallTimer(torch.device("cpu"), 1e-3, 2)
LAYER = {"family": "layer", "name": "gpt layer", "hidden": 32, "num_heads": 4, "tp": 2, "micro_batch": 2, "sequence_length": 16}

TINY = tuple(item for family in FAMILIES if family != "model" for item in small(family))
"""Every kind of the suite's items but whole networks."""


@pytest.fixture(scope="module")
def measured():
    before = torch.get_rng_state()
    messages = []
    result = measure_items(TINY, CPU, "h100", gpu="a CPU", seed=3, command="a test", progress=lambda *step: messages.append(step))
    assert torch.equal(torch.get_rng_state(), before)
    assert messages[-1] == ("layer", 4, 4)
    return result


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
    items = kernel_table.suite()
    qkv = next(item for item in items if item.name == "qkv" and (item.m, item.k) == (2048, 1024))
    assert (qkv.n, qkv.priced().flops) == (1536, 2 * 2048 * 1536 * 1024)  # 3 x 1024 on two ranks
    forward, backward = (
        item for item in items if getattr(item, "sequence_length", 0) == 512 and getattr(item, "head_dim", 0) == 80
    )
    # 256 heads x 2 products x 2 x 512 x 512 x 80, halved by the mask; Q, K, V and O of 256 x 512 x 80 numbers of two bytes
    assert (forward.flops, forward.moved_bytes) == (256 * 2 * 512 * 512 * 80, 4 * 256 * 512 * 80 * 2)
    assert (backward.flops, backward.moved_bytes) == (2.5 * forward.flops, 2 * forward.moved_bytes)
    times = {"copy": 4, "dropout": 2 + 2 + 1, "norm gradient": 10, "bias and gelu": 8}
    assert all(item.moved_bytes == item.numbers * times[item.name] for item in items if item.name in times)


def test_products_are_those_that_the_cost_model_prices_in_a_layer():
    of_layers = [
        item for item in kernel_table.suite() if item.family == "product" and item.name not in ("square", "skinny", "odd")
    ]
    known = set()
    for hidden, tp, tokens in product(
        (1024, 1600, 2048, 2560, 4096, 5120, 6144, 8192, 12288), (1, 2, 4, 8), (1024, 2048, 4096, 8192)
    ):
        heads = hidden // (200 if hidden == 1600 else 64)
        work = blocks.layer(
            gpt(1, hidden, heads, 51_200, tokens), Layout(tp=tp, micro_batch=1, global_batch=1, attention="fused"), tokens
        )
        items = [item for item in (*work.forward, *work.backward) if isinstance(item, Product)]
        known |= {(item.name, item.m, item.n, item.k, item.is_weight) for item in items}
    assert {(item.name, item.m, item.n, item.k, item.is_weight) for item in of_layers} < known


def test_attention_and_loss_count_what_the_cost_model_counts():
    suite = kernel_table.suite()
    for result in (item for item in suite if item.family == "fused_attention" and item.is_causal):
        heads, s = result.batch, result.sequence_length
        shape = gpt(1, heads * result.head_dim, heads, 51_200, s)
        layer = blocks.layer(shape, Layout(micro_batch=1, global_batch=1, attention="fused"), s)
        passes = layer.backward if result.is_backward else layer.forward
        (expected,) = (item for item in passes if isinstance(item, FusedAttention))
        assert (result.flops, result.moved_bytes) == (expected.flops, expected.moved_bytes)
    for result in (item for item in suite if item.family == "loss"):
        shape = gpt(1, 1024, 16, result.vocabulary, result.tokens)
        head = blocks.head(shape, Layout(micro_batch=1, global_batch=1), result.tokens, True)
        passes = head.backward if result.is_backward else head.forward
        (expected,) = (item for item in passes if isinstance(item, Sweep) and item.kind == "loss")
        assert result.priced() == expected


def test_quick_is_a_part_of_all_items_with_both_passes_of_each_layer():
    whole, quick = kernel_table.grid(), kernel_table.grid(quick=True)
    assert len(set(whole)) == len(whole)
    assert {item.family for item in quick} == {item.family for item in whole} == set(FAMILIES)
    assert set(quick) < set(whole)
    assert len(quick) < 100
    for family in kernel_table.PAIRED:
        sides = [item.is_backward for item in quick if item.family == family]
        assert sides == [False, True] * (len(sides) // 2)


def test_a_network_is_timed_on_its_loss():
    made = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 1000)
    )
    assert min(network_times(made, 2, CPU, image_size=16)) > 0


def test_networks_are_left_out_with_the_reason_where_torchvision_is_missing(measured):
    if importlib.util.find_spec("torchvision") is not None:
        pytest.skip("torchvision is installed here")
    networks = (item for item in kernel_table.suite() if isinstance(item, ModelItem))
    result = measure_items((TINY[0], *networks), CPU, "h100", gpu="a CPU", seed=0, command="a test")
    assert [(one.family, one.name) for one in result.left_out] == [("model", "all")]
    assert "ModuleNotFoundError: No module named 'torchvision'" in result.left_out[0].reason


def test_what_the_device_refuses_is_left_out_by_name():
    refused = LayerItem(**LAYER, attention="fused", has_dropout=True, is_backward=False)  # the CPU's kernel has no dropout
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of each kernel that it cannot take
        result = measure_items((TINY[0], refused), CPU, "h100", gpu="a CPU", seed=0, command="a test")
    assert len(result.items) == 1
    (one,) = result.left_out
    assert one.name.startswith("gpt layer, hidden 32, num heads 4, tp 2")
    assert one.reason.startswith("RuntimeError: ")


def test_a_gpu_of_no_known_type_is_told_the_types(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA T400 4GB")
    with pytest.raises(ConfigError, match=r"--device.*T400.*valid: a100, .*v100"):
        measure(command="a test")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("family: stream", "family: steam", r"items\.\d+\.family: not a valid kind \(got 'steam'\); did you mean 'stream'"),
        ("m: 130,", "rows: 130,", r"items\.0\.rows: unknown key"),
        ("us: ", "us: -", r"items\.0\.us: .*more than 0"),
        (", us: ", ", k: 200, us: ", "the key appears twice"),
        ("device: h100", "gadget: h100", "unknown key"),
        ("date: '", "date: 'on ", "date: "),
    ],
)
def test_a_bad_file_is_refused_with_its_line_and_field(measured, tmp_path, old, new, message):
    path = tmp_path / "kernels.yaml"
    text = kernel_table.kernels_text(measured)
    line = text[: text.index(old)].count("\n") + 1
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message) as caught:
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


@pytest.mark.parametrize(("cuda", "why"), [("13.0", "sees no GPU"), (None, "is a build without CUDA, see docs/quickstart.md")])
def test_without_a_gpu_the_command_says_so_and_writes_nothing(tmp_path, capsys, monkeypatch, cuda, why):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    out = tmp_path / "kernels.yaml"
    assert run_command_line(["dev", "calibrate", "measure", "--set", "quick=true", "--out", str(out)]) == 2
    reported = capsys.readouterr().err
    assert reported.count("\n") == 1
    assert f"{why}, so there is nothing to measure" in reported
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--set", "device=h10"), "valid: "),
        (("--out", "/nowhere/kernels.yaml"), "--out"),
        (("--set", "seed=-1"), "seed: must be"),
    ],
)
def test_bad_options_are_refused_before_anything_is_measured(options, message, capsys):
    assert run_command_line(["dev", "calibrate", "measure", *options]) == 2
    assert message in capsys.readouterr().err


def test_nothing_measured_is_an_error():
    with pytest.raises(MeshwrightError, match="nothing could be measured"):
        measure_items((), CPU, "h100", gpu="a CPU", seed=0, command="a test")
