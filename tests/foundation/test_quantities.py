"""Laws of numbers: what is real is accepted with room to spare, what nothing can be is refused by the end of its name."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import quantities, settings
from meshwright.costs.training_step.kernels import KernelSettings
from meshwright.devices import DeviceSettings, device_type
from meshwright.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("peak_tflops_per_s", 125_000.0),  # Cerebras WSE-3
        ("memory_bandwidth_gbytes_per_s", 21e6),  # the same
        ("peak_tflops_per_s", 1e-3),  # a core of a processor
        ("memory_gib", 0.016),  # a TPU v1 core's buffer
        ("nic_bandwidth_gbytes_per_s", 1.2e-4),  # 1 Mbit/s
        ("nic_latency_us", 600_000.0),  # by satellite
        ("step_s", 90 * 86_400.0),
        ("low_s", 5e12),  # 3.8e25 FLOPs on one A100 of 8 TFLOP/s
        ("forward_flops", 1e26),
        ("parameter_bytes", 4e13),  # 10 trillion parameters of float32
        ("num_devices", 1_000_000),
        ("global_batch", 60_000_000),
        ("product_efficiency", 0.005),
        ("loss_efficiency", 1.613),
    ],
)
def test_what_there_is_is_accepted(name, value):
    assert quantities.problem(name, value) is None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("step_s", 9e15, "must be 0 to 1e+10: nothing is larger"),
        ("bandwidth_gbytes_per_s", 1e-300, "must be 1e-06 to 1e+09: nothing is smaller"),
        ("us", 1e30, "must be 0 to 1e+11: nothing is larger"),
        ("anything", 10**400, "must be 0 to 9.22337e+18: nothing is larger"),
        ("anything", math.nan, "must be finite and not negative"),
        ("memory_bytes", math.inf, "must be finite and not negative"),
    ],
)
def test_what_nothing_can_be_is_told(name, value, message):
    assert quantities.problem(name, value) == message


def test_the_longest_end_of_a_name_decides():
    assert quantities.range_of("latency_us") == quantities.range_of("intra_host_latency_us")
    assert quantities.range_of("latency_us") != quantities.range_of("quantum_us")
    assert quantities.range_of("steps") == quantities.range_of("anything")  # no unit, though it ends in s


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_a_whole_number_of_64_bits_reads_as_it_is_written(value):
    assert quantities.whole(f" {value}\t") == value


def test_any_other_text_is_no_whole_number():
    for text in ("", "-", "1.5", "1_0", "0x1f", "²", "٣", "1 2", "9" * 400, "9" * 5000, str(2**63), "nan"):
        with pytest.raises(ValueError, match=r"whole number|digits|nothing is larger"):
            quantities.whole(text)


@pytest.mark.parametrize(
    ("model", "data", "message"),
    [
        (DeviceSettings, {"peak_tflops_per_s": 1e30}, "peak_tflops_per_s: must be 1e-06 to 1e+09: nothing is larger"),
        (DeviceSettings, {"compute_efficiency": 1e-300}, "compute_efficiency: must be 0.0001 to 100: nothing is smaller"),
        (KernelSettings, {"kernel_gap_us": 9e21}, "kernel_gap_us: must be 0 to 1e+06: nothing is larger"),
        (KernelSettings, {"product_overhead_k": 1e30}, "product_overhead_k: must be 0 to 1e+06: nothing is larger"),
        (KernelSettings, {"num_multiprocessors": 10**18}, "num_multiprocessors: must be 1 to 1e+08: nothing is larger"),
        (KernelSettings, {"step_overhead_ms": 10**400}, "step_overhead_ms: must be a number"),
        (KernelSettings, {"uncertainty": math.nan}, "uncertainty: must be a finite number"),
    ],
)
def test_settings_hold_each_number_to_its_range(model, data, message):
    whole = {
        DeviceSettings: device_type("a100").to_data(),
        KernelSettings: {
            **dict.fromkeys(KernelSettings.model_fields.keys() - {"steps_of", "fp8", "attention"}, 0.5),
            "device": "a100",
            "calibrated": True,
            "num_multiprocessors": 108,
        },
    }[model]
    assert settings.build_settings(model, whole)
    with pytest.raises(ConfigError) as caught:
        settings.build_settings(model, whole | data)
    assert str(caught.value).startswith(message)


def test_one_thing_is_written_as_one():
    assert [quantities.counted(number, "layout") for number in (0, 1, 2)] == ["0 layouts", "1 layout", "2 layouts"]
