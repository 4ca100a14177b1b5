"""``validate kernels`` on tables in CSV: the rows that are left out of fits, held against the constants."""

import json

import pytest

from meshwright.costs.training_step.kernels import KernelModel, kernel_settings
from meshwright.costs.work.operations import Product
from meshwright.devices import device_type

ROWS = """dtype,m,n,k,latency_ms
bfloat16,4096,4096,4096,0.2
bfloat16,4096,4096,8192,0.4
fp8,8192,4096,4096,0.2
fp8,64,4096,512,0.1
"""


@pytest.fixture
def table(work):
    (work / "products.csv").write_text(ROWS)
    return "products.csv"


def test_every_second_row_of_a_table_is_held_against_the_constants(meshwright, work, table):
    result = meshwright("dev", "validate", "kernels", table, "--set", "device=h100", "--json", "found.json")
    assert result.status == 0
    kernels = KernelModel(device_type("h100"), kernel_settings("h100", None))
    results = json.loads((work / "found.json").read_text())["summary"]
    for family, size, casts, us in (("product", (4096, 4096, 8192), 0, 400), ("product in fp8", (64, 4096, 512), 1, 100)):
        predicted_us = 1e6 * kernels.kernel_s(Product("product", *size, is_fp8=bool(casts), fp8_casts=casts))
        assert results[family]["items"] == 1
        assert results[family]["mean_signed_error"] == pytest.approx(predicted_us / us - 1)
    assert meshwright("dev", "validate", "kernels", table, "--set", "device=h100", "--set", "max_mean_error=0.001").status == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--set device: the key is missing: a table does not say what it was measured on"),
        (("--set", "device=h1000"), "unknown device type (got 'h1000')"),
        (("--set", "device=h100", "--set", "plot=p.svg"), "--set plot: goes with measured kernels and layers, not with a table"),
    ],
)
def test_what_a_table_cannot_do_is_refused(refused, table, options, message):
    assert message in refused("dev", "validate", "kernels", table, *options)


def test_a_table_of_one_row_and_a_device_without_a_table_are_refused(refused, work):
    (work / "one.csv").write_text("\n".join(ROWS.splitlines()[:2]) + "\n")
    assert "holds one row" in refused("dev", "validate", "kernels", "one.csv", "--set", "device=h100")
    assert "--set device: goes with tables" in refused("dev", "validate", "kernels", "h100", "--set", "device=h100")
