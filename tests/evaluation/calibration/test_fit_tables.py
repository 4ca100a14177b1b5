"""Constants of products and attention from tables: known ones are found again, and shipped ones are those of the tables."""

import pytest

from meshwright.costs.training_step.kernels import KernelModel, kernel_settings
from meshwright.costs.work.operations import FusedAttention, Product
from meshwright.devices import device_type
from meshwright.errors import ConfigError, InputFileError
from meshwright.evaluation.calibration.fit_tables import FITTED, calibrate
from meshwright.evaluation.calibration.kernel_csv import ATTENTION, FP8_PRODUCT, PRODUCT, is_kernel_csv, read
from meshwright.evaluation.calibration.least_squares import value_of

GEMM, ATTENTION_HEADER = "dtype,m,n,k,latency_ms", "batch,sequence_length,heads,kv_heads,head_dim,latency_ms"
MODEL = KernelModel(device_type("b200"), kernel_settings("b200"))


def written(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def products(tmp_path):
    sizes = [(m, n, k) for m in (256, 1024, 8192) for n in (512, 6144, 16384) for k in (512, 2048, 5120, 12288, 65536)]
    rows = [
        f"{kind},{m},{n},{k},{1e3 * MODEL.product_s(Product('p', m, n, k, is_fp8=casts > 0, fp8_casts=casts))!r}"
        for kind, casts in (("bfloat16", 0), ("fp8", 1))
        for m, n, k in sizes
    ]
    return written(tmp_path / "gemm.csv", GEMM, *rows)


@pytest.fixture
def attention(tmp_path):
    rows = []
    for heads in (4, 32):
        for length in (512, 1024, 2048, 4096, 8192):
            for width in (64, 128, 96, 192):
                moved = 2.0 * length * width * 4 * 2 * heads
                item = FusedAttention("a", 2.0 * 2 * heads * width * length**2, moved, length=length, head_dim=width)
                rows.append(f"2,{length},{heads},{heads},{width},{1e3 * MODEL.attention_s(item)!r}")
    return written(tmp_path / "attention.csv", ATTENTION_HEADER, *rows)


def test_constants_that_made_the_times_are_found_again(products, attention):
    result = calibrate([products, attention], "b200", start="h100", num_multiprocessors=148)
    for family in (PRODUCT, FP8_PRODUCT, ATTENTION):
        for name in FITTED[family]:
            assert value_of(result.constants, name) == pytest.approx(value_of(MODEL.constants, name), rel=0.02, abs=0.01), name
    assert {side: data["items"] for family, side, data in result.rows() if family == PRODUCT} == {"fitted on": 23, "left out": 22}
    assert all(data["mean_relative_error"] < 2e-3 for _, _, data in result.rows())


def test_rows_that_are_left_out_change_no_constant(products, tmp_path):
    lines = (tmp_path / "gemm.csv").read_text().splitlines()
    header, rows = lines[0], lines[1:]
    spoilt = [row.rpartition(",")[0] + ",1.0" if number % 2 else row for number, row in enumerate(rows)]
    other = written(tmp_path / "spoilt.csv", header, *spoilt)
    assert calibrate([other], "b200").constants == calibrate([products], "b200").constants


def test_tables_are_told_by_their_columns_and_bad_rows_by_their_line(tmp_path):
    path = tmp_path / "table.csv"
    assert is_kernel_csv(written(path, GEMM, "fp8,1,2,3,0.1"))
    assert read(path)[0].kernel.k == 3
    assert not is_kernel_csv(written(path, "a,b", "1,2"))
    for row, message in (
        ("bf16,1,2,3,0.1", r"table.csv:2: dtype: unknown data type \(got 'bf16'\)"),
        ("fp8,1,0,3,0.1", r"table.csv:2: n: must be a positive whole number \(got '0'\)"),
        ("fp8,1,2,3,-1", r"table.csv:2: latency_ms: must be a positive number \(got '-1'\)"),
        ("fp8,1,2,3", "table.csv:2: wants 5 values"),
    ):
        with pytest.raises(InputFileError, match=message):
            read(written(path, GEMM, row))
    with pytest.raises(ConfigError, match="product: half of the rows are fitted on, and 16 at least are wanted"):
        calibrate([written(path, GEMM, *["bfloat16,1,2,3,0.1"] * 4)], "b200")


@pytest.mark.reference
@pytest.mark.parametrize("name", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("h100-tuned", "h200-tuned")), "b200"])
def test_the_shipped_constants_are_those_of_the_tables_and_hold_on_what_was_left_out(reference, name):
    shipped = kernel_settings(name.removesuffix("-tuned"), name)
    tables = [reference / "kernels" / f"{shipped.device}_sxm_{kind}.csv" for kind in ("gemm", "attention_forward")]
    result = calibrate(tables, shipped.device, start="h100", num_multiprocessors=shipped.num_multiprocessors)
    for constant in result.names:
        assert value_of(result.constants, constant) == pytest.approx(value_of(shipped, constant), rel=5e-3), constant
    errors = {family: data["mean_relative_error"] for family, side, data in result.rows() if side == "left out"}
    assert errors["product, 10 us and longer"] < 0.08
    assert errors[FP8_PRODUCT] < 0.08
    assert errors[ATTENTION] < 0.12
