"""Constants from measured kernels: what is fitted on, what is left out, and what whole layers say of them."""

import json
import math

import pytest
import yaml

from meshwright import cli, settings
from meshwright.costs.training_step.kernels import KernelModel, KernelSettings, kernel_settings
from meshwright.devices import device_type
from meshwright.errors import ConfigError, InputFileError
from meshwright.evaluation.calibration import kernel_table
from meshwright.evaluation.calibration.fit_measured import FAMILIES, FITTED, calibrate, called, halves, is_aligned
from meshwright.evaluation.calibration.kernel_table import MEASURED, LayerItem, MeasuredKernels, ProductItem, read, to_data, write
from meshwright.evaluation.calibration.least_squares import summary
from meshwright.evaluation.plots.kernels import kernels_figure
from meshwright.evaluation.plots.static import svg
from meshwright.evaluation.validation.kernels import LAYER, NOT_MODELLED, validate

from ...draws import FACTOR

TRUTH = {
    "product_efficiency": 0.7,
    "attention_product_efficiency": 0.35,
    "product_overhead_k": 90.0,
    "memory_efficiency": 0.7,
    "loss_efficiency": 0.6,
    "fused_attention_efficiency": 0.3,
    "fused_attention_backward_efficiency": 0.25,
    "kernel_gap_us": 3.0,
}
HEADER = {
    "device": "h100",
    "gpu": "a formula",
    "date": "2026-11-22",
    "torch": "-",
    "cuda": "-",
    "driver": "-",
    "python": "-",
    "meshwright": "-",
    "command": "a test",
    "cache_bytes": 0,
    "min_repeats": 1,
    "budget_ms": 1.0,
    "seed": 0,
}


def product(m, n, k, transposed="none", us=None):
    return ProductItem(family="product", name="square", m=m, n=n, k=k, transposed=transposed, us=us)


def by_the_model(*, quick=False, **constants):
    """A file whose kernels take what the model says with these constants."""
    kernels = KernelModel(device_type("h100"), kernel_settings("h100").model_copy(update=constants))
    items = [item for item in kernel_table.grid(quick=quick) if item.family in FAMILIES]
    timed = [item.model_copy(update={"us": 1e6 * kernels.kernel_s(item.priced())}) for item in items]
    return MeasuredKernels(**HEADER, items=timed)


def kept(path, measured):
    """The path of a file that holds it as JSON, which is read sooner than YAML."""
    path.write_text(json.dumps(to_data(measured)))
    return path


@pytest.fixture(scope="module")
def h100():
    return validate("h100")


def test_constants_that_made_the_figures_are_found_again(tmp_path):
    result = calibrate(kept(tmp_path / "truth.json", by_the_model(**TRUTH)))
    assert {name: getattr(result.constants, name) for name in FITTED} == pytest.approx(TRUTH, rel=0.01)
    assert result.constants.calibrated
    errors = [summary(rows)["max_relative_error"] for rows in (*result.fitted.values(), *result.left_out.values())]
    assert max(errors) < 0.01


def test_no_row_is_fitted_on_and_left_out_and_each_kind_stands_in_both():
    used, left_out = halves(by_the_model())
    assert list(used) == list(left_out) == list(FAMILIES)
    for family in FAMILIES:
        ours, others = ([called(item) for item in some[family]] for some in (used, left_out))
        assert not set(ours) & set(others)
        kinds = {(item.name, getattr(item, "is_causal", None)) for item in used[family]}
        # A kind of which there is one row alone stands in one half.
        of_many = {kind for kind in kinds if sum((i.name, getattr(i, "is_causal", None)) == kind for i in used[family]) > 1}
        assert of_many <= {(item.name, getattr(item, "is_causal", None)) for item in left_out[family]}


@pytest.mark.parametrize(
    ("sizes", "transposed", "so"),
    [
        ((64, 64, 64), "none", True),
        ((63, 64, 64), "none", True),  # rows of 64 in all three matrices
        ((64, 63, 64), "none", False),  # the result's rows have 63
        ((64, 64, 63), "none", False),  # the first operand's rows have 63
        ((63, 64, 64), "first", False),  # the first operand lies the other way round: its rows have m = 63
        ((64, 64, 60), "second", False),  # the second operand's rows have k = 60, 120 bytes
    ],
)
def test_rows_that_begin_at_16_bytes_by_hand(sizes, transposed, so):
    assert is_aligned(product(*sizes, transposed)) is so


def test_the_shipped_constants_of_measured_devices_are_those_that_their_figures_give():
    for name in MEASURED.names()[:: 1 if FACTOR > 1 else 2]:
        data, shipped = calibrate(name).constants.model_dump(), kernel_settings(name).model_dump()
        for key in ("uncertainty", *FITTED):
            assert data[key] == pytest.approx(shipped[key], rel=2e-3), key
        assert {key: data[key] for key in set(data) - set(FITTED)} == {key: shipped[key] for key in set(data) - set(FITTED)}


@pytest.mark.parametrize(("name", "processor"), [("h800", "h100"), ("gb200", "b200"), ("gb300", "b200"), ("b300", "b200")])
def test_devices_of_the_same_processor_take_its_shares_less_surely(name, processor):
    ours, measured = kernel_settings(name).model_dump(), kernel_settings(processor).model_dump()
    assert {key for key in ours if ours[key] != measured[key]} == {"device", "calibrated", "uncertainty"}
    assert not ours["calibrated"]
    assert ours["uncertainty"] > measured["uncertainty"]


def test_whole_layers_are_met_that_nothing_was_fitted_on(tmp_path, h100):
    reported = h100.summary()
    fused = [reported[f"{LAYER}fused attention, {side}"]["mean_relative_error"] for side in ("forward", "backward")]
    assert max(fused) < 0.06
    # Of the unfused ones the softmax of PyTorch is slower than the kernels that the constant stands for.
    assert reported[f"{LAYER}unfused attention, forward"]["mean_signed_error"] < -0.1
    assert not any(reported[family]["is_modelled"] for family in NOT_MODELLED)
    assert reported["product"]["mean_relative_error"] < 0.11
    shares = kernel_settings("a100").model_dump() | {"device": "h100", "num_multiprocessors": 132}
    (tmp_path / "of-a100.yaml").write_text(yaml.safe_dump(shares))
    others = validate(kept(tmp_path / "h100.json", h100.measured), constants=str(tmp_path / "of-a100.yaml"))
    assert math.fsum(fused) < math.fsum(
        others.summary()[f"{LAYER}fused attention, {side}"]["mean_relative_error"] for side in ("forward", "backward")
    )


def test_a_layer_that_waits_for_the_host_says_nothing_of_the_device(tmp_path):
    shape = {"family": "layer", "name": "gpt layer", "hidden": 1024, "num_heads": 16, "tp": 1, "micro_batch": 1}
    shape |= {"sequence_length": 1024, "attention": "fused", "has_dropout": False, "is_backward": False}
    times = [(100.0, 81.0), (100.0, 79.0), (100.0, 200.0)]
    layers = [LayerItem(**shape, us=us, host_us=host_us) for us, host_us in times]
    write(tmp_path / "layers.yaml", MeasuredKernels(**HEADER, items=layers))
    result = validate(tmp_path / "layers.yaml")
    family = f"{LAYER}fused attention, forward"
    assert [row.measured for row in result.families[family]] == [100.0]
    assert result.summary()[family]["of_the_host"] == 2


def test_where_every_layer_waits_for_the_host_nothing_is_judged(tmp_path, capsys):
    write(tmp_path / "few.yaml", by_the_model(quick=True))
    assert cli.run_command_line(["dev", "validate", "kernels", str(tmp_path / "few.yaml")]) == 0
    assert cli.run_command_line(["dev", "validate", "kernels", str(tmp_path / "few.yaml"), "--set", "max_mean_error=0.5"]) == 2
    assert "few.yaml: holds no pass through a layer that shows the device" in capsys.readouterr().err


def test_a_file_may_be_json_which_is_the_same_data(tmp_path):
    measured = by_the_model(quick=True)
    write(tmp_path / "quick.yaml", measured)
    assert read(tmp_path / "quick.yaml") == read(kept(tmp_path / "quick.json", measured)) == measured


def test_the_picture_shows_each_product_and_too_large_errors_of_layers_end_with_1(tmp_path, capsys, h100):
    drawn = svg(kernels_figure(h100))
    assert h100.measured.gpu in drawn
    products = [trace for trace in kernels_figure(h100)["data"] if trace["yaxis"] == "y" and trace["mode"] == "markers"]
    assert sum(len(trace["x"]) for trace in products) == len(h100.measured.of("product"))
    options = ["--set", f"plot={tmp_path / 'k.svg'}", "--set", "max_mean_error=0.06"]
    figures = kept(tmp_path / "h100.json", h100.measured)
    assert cli.run_command_line(["dev", "validate", "kernels", str(figures), *options]) == 1
    assert "layer, unfused attention, forward: mean error" in capsys.readouterr().out
    assert (tmp_path / "k.svg").read_text() == drawn
    assert cli.run_command_line(["dev", "validate", "kernels", "h100", "--set", f"plot={tmp_path / 'k.png'}"]) == 2
    assert "--set plot: the name must end in .svg" in capsys.readouterr().err


def test_a_file_without_products_can_be_drawn(tmp_path, h100):
    layers = kept(tmp_path / "l.json", h100.measured.model_copy(update={"items": h100.measured.of("layer")}))
    options = ["--set", f"plot={tmp_path / 'l.svg'}", "--set", "max_mean_error=0.25"]
    assert cli.run_command_line(["dev", "validate", "kernels", str(layers), *options]) == 0
    assert "whole layers" in (tmp_path / "l.svg").read_text()


def test_a_device_without_constants_gets_a_file_of_its_own_and_is_told_which_end_at_their_bounds(tmp_path, capsys):
    # An L40S has a third of an H100's peaks: no share of them is so fast.
    path = kept(tmp_path / "l40s.json", by_the_model().model_copy(update={"device": "l40s", "num_multiprocessors": 142}))
    out, page = tmp_path / "mine.yaml", tmp_path / "told.json"
    assert cli.run_command_line(["dev", "calibrate", "kernels", str(path), "--out", str(out), "--json", str(page)]) == 0
    assert "note: memory_efficiency ends where it can go no further; are the peaks of l40s" in capsys.readouterr().out
    written = settings.load(KernelSettings, out)
    assert json.loads(page.read_text())["constants"] == written.model_dump()
    assert (written.device, written.num_multiprocessors, written.calibrated) == ("l40s", 142, True)


def test_what_cannot_be_fitted_is_told(tmp_path, capsys):
    with pytest.raises(InputFileError, match=r"neither a file nor a device .*valid: "):
        calibrate("h10")
    few = by_the_model()
    few = kept(tmp_path / "few.json", few.model_copy(update={"items": few.of("product")}))
    with pytest.raises(ConfigError, match=r"few.json: items: .* 4 at least are wanted, not 0; .*attention_product"):
        calibrate(few)
    write(tmp_path / "quick.yaml", by_the_model(quick=True))
    with pytest.raises(ConfigError, match=r"measure without --set quick=true \(got 'attention_product'\)"):
        calibrate(tmp_path / "quick.yaml")
    (tmp_path / "other.yaml").write_text((tmp_path / "quick.yaml").read_text().replace("device: h100", "device: h10"))
    with pytest.raises(ConfigError, match=r"other.yaml:2: device: unknown type \(got 'h10'\); valid: "):
        calibrate(tmp_path / "other.yaml")
    assert cli.run_command_line(["dev", "calibrate", "kernels", "table.csv", "--out", str(tmp_path / "x.yaml")]) == 2
    assert "--out: wants one file of measured kernels" in capsys.readouterr().err
    assert not (tmp_path / "x.yaml").exists()
    assert cli.run_command_line(["dev", "calibrate", "kernels", "h100", str(few)]) == 2
    assert "files of measured kernels are fitted one at a time" in capsys.readouterr().err
