"""Laws of device types: units converted once, the roofline, names that are data."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from meshwright import settings
from meshwright.devices import DeviceSettings, DeviceType, device_names, device_type
from meshwright.errors import ConfigError

amounts = st.floats(0, 1e18)
positive = st.floats(1e-3, 1e6)
shares = st.floats(0.01, 1)
device_settings = st.builds(
    DeviceSettings,
    name=st.just("toy"),
    peak_tflops_per_s=positive,
    memory_gib=positive,
    memory_bandwidth_gbytes_per_s=positive,
    compute_efficiency=shares,
    memory_efficiency=shares,
    kernel_launch_us=st.floats(0, 1e3),
)


def one(device, flops, moved_bytes):
    return float(device.op_s(np.array([flops]), np.array([moved_bytes]))[0])


TOY = DeviceType("toy", 100e12, 32e9, 1e12, compute_efficiency=0.5, memory_efficiency=0.8, kernel_launch_s=5e-6)


def test_the_roofline_worked_by_hand():
    # 1 TFLOP at 50 TFLOP/s = 20 ms, 1 GB at 0.8 TB/s = 1.25 ms; the slower one, and 5 us of launch.
    assert one(TOY, 1e12, 1e9) == pytest.approx(20.005e-3, rel=1e-12)
    # 1 GFLOP = 20 us against the same 1.25 ms.
    assert one(TOY, 1e9, 1e9) == pytest.approx(1.255e-3, rel=1e-12)


def test_an_op_that_does_nothing_takes_no_time():
    assert one(TOY, 0, 0) == 0


@given(flops=amounts, more=amounts, moved=amounts)
def test_more_work_never_takes_less_time(flops, more, moved):
    assert one(TOY, flops + more, moved) >= one(TOY, flops, moved)
    assert one(TOY, moved, flops + more) >= one(TOY, moved, flops)


@given(flops=st.floats(1, 1e18), moved=st.floats(1, 1e18))
def test_no_op_beats_either_roof_or_the_launch(flops, moved):
    seconds = one(TOY, flops, moved)
    assert seconds >= flops / TOY.peak_flops_per_s
    assert seconds >= moved / TOY.memory_bandwidth_bytes_per_s
    assert seconds >= TOY.kernel_launch_s


@given(spec=device_settings)
def test_a_device_type_reads_back_equal_from_its_data(spec):
    device = device_type(spec)
    assert device_type(DeviceSettings(**device.to_data())) == device


@pytest.mark.parametrize("name", device_names())
def test_a_built_in_device_is_named_as_its_file(name):
    device = device_type(name)
    assert device.name == name
    # Accelerators of these years: 10 GB to 1 TB, 10 TFLOP/s to 10 PFLOP/s, 0.1 to 100 TB/s. Wrong units fall outside.
    assert 10e9 <= device.memory_bytes <= 1e12
    assert 1e13 <= device.peak_flops_per_s <= 1e16
    assert 1e11 <= device.memory_bandwidth_bytes_per_s <= 1e14


def test_an_unknown_device_is_told_with_the_nearest_one():
    with pytest.raises(ConfigError) as caught:
        device_type("a10")
    valid = "a100, a100-40gb, a800, b200, b300, gb200, gb300, h100, h200, h800, l40s, mi300x, rtx-pro-6000, v100"
    assert str(caught.value) == f"unknown device type (got 'a10'); valid: {valid}"


GOOD = {
    "name": "toy",
    "peak_tflops_per_s": 1.0,
    "memory_gib": 1.0,
    "memory_bandwidth_gbytes_per_s": 1.0,
    "compute_efficiency": 0.5,
    "memory_efficiency": 0.5,
    "kernel_launch_us": 0.0,
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "A100"),
        ("name", ""),
        ("name", "../a100"),
        ("peak_tflops_per_s", 0),
        ("memory_gib", -1),
        ("memory_bandwidth_gbytes_per_s", float("nan")),
        ("compute_efficiency", 1.5),
        ("memory_efficiency", 0),
        ("kernel_launch_us", -1),
    ],
)
def test_an_impossible_figure_is_refused_by_name(field, value):
    with pytest.raises(ConfigError) as caught:
        settings.build_settings(DeviceSettings, {**GOOD, field: value})
    assert caught.value.field == field


def test_a_variant_of_a_device_takes_from_it_what_its_mapping_leaves_out():
    held = device_type(DeviceSettings(name="h100-500w", power_watts=500, memory_bandwidth_gbytes_per_s=2000))
    assert held == replace(device_type("h100"), name="h100-500w", power_watts=500.0, memory_bandwidth_bytes_per_s=2e12)
    assert device_type(DeviceSettings(name="rtx-pro-6000-server", memory_gbytes=48)).memory_bytes == 48e9
    for name in ("my-h100", "h10-500w"):
        with pytest.raises(ValidationError, match="peak_tflops_per_s is missing; a name that begins with a device type"):
            DeviceSettings(name=name, power_watts=500)
    with pytest.raises(ValidationError, match="power_wats"):
        DeviceSettings(name="h100-500w", power_wats=500)
    with pytest.raises(ValidationError, match="memory_gib"):  # whose name says another memory than an A100's
        DeviceSettings(name="a100-48gb", power_watts=300)
    assert device_type(DeviceSettings(name="a100-48gb", memory_gib=47)).memory_bytes == 47 * 2**30
    held = device_type(DeviceSettings(name="a100-40gb", power_watts=300))
    assert held == replace(device_type("a100-40gb"), power_watts=300.0)


# What drivers report, in GiB; see the source in each file of configs/devices.
REPORTED = {"v100": 31.75, "a100-40gb": 39.4, "a100": 79.35, "h100": 79.1, "h200": 143_771 / 1024, "b200": 183_359 / 1024}


@pytest.mark.parametrize("name", REPORTED)
def test_memory_is_what_the_driver_reports(name):
    assert device_type(name).memory_bytes == pytest.approx(REPORTED[name] * 2**30, rel=5e-4)


def test_float32_has_a_peak_of_its_own_worked_by_hand():
    # An A100: 156 TFLOP/s in TF32, which cuDNN's convolutions take, and 19.5 without. A V100 has no TF32.
    for name, peaks in (("a100", [156e12, 19.5e12]), ("v100", [15.7e12, 15.7e12])):
        assert [device_type(name).peak_of(4, is_convolution=one) for one in (True, False)] == peaks
    # Of a type that is not known an A100's shares: 1/2 and 1/16 of 100 TFLOP/s.
    assert [TOY.peak_of(4, is_convolution=one) for one in (True, False)] == pytest.approx([50e12, 6.25e12])
    assert TOY.peak_of(2) == 100e12
    # 1 TFLOP in float32 at half of 6.25 TFLOP/s.
    assert float(TOY.op_s(np.array([1e12]), np.array([0.0]), TOY.peak_of(4))[0]) == pytest.approx(0.320005)
