"""Kernels by tiles and bytes, passes by their two clocks."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.training_step.kernels import AttentionSettings, Fp8Settings, KernelModel, KernelSettings, kernel_settings
from meshwright.costs.training_step.passes import OVERLAP_SLOWDOWN, SHARDING_SLOWDOWN, PassTime, pass_time
from meshwright.costs.work.operations import FusedAttention, Message, Product, Sweep, row_bytes
from meshwright.devices import DeviceType
from meshwright.errors import ConfigError

DEVICE = DeviceType("plain", 100e12, 80e9, 1e12, 1.0, 1.0, 0.0)
CONSTANTS = KernelSettings(
    device="plain",
    calibrated=False,
    num_multiprocessors=100,
    product_efficiency=1.0,
    attention_product_efficiency=0.5,
    product_overhead_k=0.0,
    memory_efficiency=1.0,
    loss_efficiency=0.5,
    spread_loss_efficiency=1.0,
    fused_attention_efficiency=0.5,
    fused_attention_backward_efficiency=0.25,
    kernel_gap_us=0.0,
    host_us_per_kernel=0.0,
    host_us_per_message=0.0,
    optimizer_bytes_per_parameter=30.0,
    step_overhead_ms=1.0,
    uncertainty=0.05,
)
MODEL = KernelModel(DEVICE, CONSTANTS)
sizes = st.integers(1, 8192)


def test_a_product_of_full_waves_runs_at_the_peak():
    # 10 x 10 tiles of 256 x 128 on 100 multiprocessors: one wave, 2 m n k / 100 TFLOP/s
    product = Product("p", 2560, 1280, 8192)
    assert MODEL.product_s(product) == pytest.approx(product.flops / 100e12)
    # in float32 without TF32, as PyTorch multiplies matrices: an A100's sixteenth of that
    assert MODEL.product_s(product, 4) == pytest.approx(product.flops / 6.25e12)


def test_one_row_of_tiles_more_costs_part_of_a_wave_and_adding_parts_of_sums_worked_by_hand():
    # 110 large tiles want two waves, twice the time. Best are 220 tiles of 128 x 128 in four parts: 880 of an eighth of the
    # work, nine waves at 92 % of the speed, and four partial results of 4 bytes written and read
    one, more = (MODEL.product_s(Product("p", m, 1280, 8192)) for m in (2560, 2816))
    assert more == pytest.approx(9 / 8 / 0.92 * one + 4 * 8 * 2816 * 1280 / 1e12)


def test_a_tile_that_adds_to_float32_stores_four_times_as_long_worked_by_hand():
    # one wave of 100 tiles of 256 x 128: 1024 steps along the sums and 64 for the start and end of a tile, or 256 where it
    # reads and writes 4 bytes a number instead of writing 2
    model = KernelModel(DEVICE, CONSTANTS.model_copy(update={"product_overhead_k": 64.0}))
    step_s = 2 * 256 * 128 / 1e12
    assert model.product_s(Product("p", 2560, 1280, 1024)) == pytest.approx(1088 * step_s)
    assert model.product_s(Product("p", 2560, 1280, 1024, sum_bytes=4)) == pytest.approx(1280 * step_s)
    assert model.product_s(Product("p", 2560, 1280, 1024, sum_bytes=2)) == pytest.approx(1152 * step_s)


@given(m=sizes, n=sizes, k=sizes)
def test_no_product_beats_the_peak_or_the_memory(m, n, k):
    product = Product("p", m, n, k)
    moved = 2 * (m * k + k * n + m * n)
    assert MODEL.product_s(product) >= max(product.flops / 100e12, moved / 1e12) * (1 - 1e-12)


@given(m=sizes, n=sizes, k=sizes)
def test_twice_the_sums_never_take_less(m, n, k):
    assert MODEL.product_s(Product("p", m, n, 2 * k)) >= MODEL.product_s(Product("p", m, n, k)) * (1 - 1e-12)


def test_other_kernels_worked_by_hand():
    # 1 GB at 1 TB/s; the loss of one rank at half of that; 1 TFLOP at half and at a quarter of 100 TFLOP/s
    assert MODEL.sweep_s(Sweep("s", 1e9)) == pytest.approx(1e-3)
    assert MODEL.sweep_s(Sweep("s", 1e9, kind="loss")) == pytest.approx(2e-3)
    assert MODEL.attention_s(FusedAttention("a", 1e12, 0.0)) == pytest.approx(20e-3)
    assert MODEL.attention_s(FusedAttention("a", 1e12, 0.0, is_backward=True)) == pytest.approx(40e-3)
    # 1e9 parameters of 30 bytes, 14 more where gradients have four bytes, and a millisecond
    assert MODEL.optimizer_s(1e9) == pytest.approx(31e-3)
    assert MODEL.optimizer_s(1e9, gradient_bytes=4) == pytest.approx(45e-3)
    # both moments read and written in one byte: 12 bytes less
    assert MODEL.optimizer_s(1e9, moment_bytes=1) == pytest.approx(19e-3)


def changed(**constants):
    return KernelModel(DEVICE, CONSTANTS.model_copy(update=constants))


def test_attention_reaches_more_over_longer_sequences_worked_by_hand():
    # 1 TFLOP at half of 100 TFLOP/s is 20 ms over any length; at the half length twice that, over 3 of them 4/3 of it, with
    # narrow heads 1/0.8 times as long; and 10 us for each kernel
    model = changed(attention=AttentionSettings(half_length=1000.0, narrow_share=0.8, start_us=10.0))
    seconds = [
        model.attention_s(FusedAttention("a", 1e12, 0.0, length=length, head_dim=width))
        for length, width in ((0, 0), (1000, 128), (3000, 256), (1000, 64))
    ]
    assert seconds == pytest.approx([20e-3 + 1e-5, 40e-3 + 1e-5, 80e-3 / 3 + 1e-5, 50e-3 + 1e-5])


def test_a_product_in_fp8_worked_by_hand():
    # One full wave of 1,024 steps and 64 at twice the peak; its left operand read in 16 bits and written in 8 at 1 TB/s; 5 us
    fp8 = Fp8Settings(product_efficiency=1.0, product_overhead_k=64.0, cast_bytes_per_number=3.0, start_us=5.0)
    product = Product("p", 2560, 1280, 1024, is_fp8=True, fp8_casts=1)
    expected = 2560 * 1280 * 2 * 1088 / 200e12 + 3 * 2560 * 1024 / 1e12 + 5e-6
    assert changed(fp8=fp8).product_s(product) == pytest.approx(expected)
    ready = Product("p", 2560, 1280, 1024, is_fp8=True)  # its operands are bytes by then
    assert changed(fp8=fp8).product_s(ready) == pytest.approx(2560 * 1280 * 2 * 1088 / 200e12)
    with pytest.raises(ConfigError, match=r"^kernels: .*no constants of products in fp8, .*asks for.* \(got 'plain'\)"):
        MODEL.product_s(product)


@given(m=sizes, n=sizes, k=sizes, share=st.floats(0, 1))
def test_paying_less_for_the_last_wave_never_costs_more_and_the_whole_of_it_is_the_default(m, n, k, share):
    product = Product("p", m, n, k)
    assert changed(last_wave_share=share).product_s(product) <= MODEL.product_s(product) * (1 + 1e-12)
    assert changed(last_wave_share=1.0).product_s(product) == pytest.approx(MODEL.product_s(product))


@pytest.mark.parametrize(("columns", "at"), [(50304, 16), (50257, 2), (50258, 4), (4100, 8), (8, 16)])
def test_rows_begin_at_the_largest_power_of_two_that_divides_all_of_them(columns, at):
    assert row_bytes(columns, 1600) == at
    assert row_bytes(1600, columns) == at


def test_a_product_of_rows_off_16_bytes_takes_the_share_of_its_own_worked_by_hand():
    slow = changed(unaligned_product_efficiency=0.1, half_aligned_product_efficiency=0.25)
    flops = 2.0 * 2560 * 1280 * 1024
    aligned_s = slow.product_s(Product("p", 2560, 1280, 1024))
    for at, share in ((2, 0.1), (4, math.sqrt(0.1 * 0.25)), (8, 0.25)):
        assert slow.product_s(Product("p", 2560, 1280, 1024, row_bytes=at)) == pytest.approx(flops / (share * 100e12))
        # Constants that tell no such share price it as any other.
        assert MODEL.product_s(Product("p", 2560, 1280, 1024, row_bytes=at)) == aligned_s


def test_every_device_type_finds_constants():
    assert kernel_settings("a100-80gb").calibrated
    assert kernel_settings("h100").num_multiprocessors == 132
    assert kernel_settings("v100").device == "v100"
    assert kernel_settings("mi300x").device == kernel_settings("rtx-pro-6000").device == "any"
    assert kernel_settings("h100").uncertainty > kernel_settings("a100").uncertainty


def timed(items, message_s=1.0, slowdown=1.0):
    return pass_time(tuple(items), MODEL, lambda message: message_s, 2, slowdown)


WORK = Sweep("work", 1e12)  # one second


def message(**keys):
    return Message("m", "all_reduce", "tp", 1.0, **keys)


def test_a_message_without_companions_holds_everything_up():
    time = timed([WORK, message(), WORK])
    assert time.device_s == pytest.approx(3.0)
    assert time.exposed_s == {"tp": pytest.approx(1.0)}


def test_a_message_hides_behind_its_companions_as_far_as_they_last():
    assert timed([message(num_concurrent=2), WORK, WORK], 1.5).device_s == pytest.approx(2.0)
    longer = timed([message(num_concurrent=1), WORK, WORK], 1.5)
    assert (longer.device_s, longer.exposed_s, longer.hidden_s) == (2.5, {"tp": 0.5}, {"tp": 1.0})


def test_running_side_by_side_slows_both_down():
    # one second together, each 10 % longer
    assert timed([message(num_concurrent=1), WORK], 1.0, 1.1).device_s == pytest.approx(1.1)


def test_the_first_piece_of_a_message_in_pieces_is_not_hidden():
    assert timed([message(num_concurrent=1, chunks=4), WORK], 1.0).device_s == pytest.approx(1.25)


def test_messages_of_one_axis_run_one_after_the_other_and_of_two_axes_together():
    other = Message("o", "all_gather", "dp_cp", 1.0, num_concurrent=1)
    assert timed([message(num_concurrent=2), message(num_concurrent=1), WORK], 1.5).device_s == pytest.approx(3.0)
    assert timed([message(num_concurrent=2), other, WORK], 1.5).device_s == pytest.approx(1.5)


def test_host_and_device_neither_add_up_nor_hide_each_other_quite():
    # (8 + 1)^(1/3)
    assert PassTime(2.0, host_s=1.0).seconds == pytest.approx(9 ** (1 / 3))


@given(device=st.floats(1e-6, 10), host=st.floats(1e-6, 10))
def test_a_pass_lies_between_the_longer_clock_and_both_together(device, host):
    seconds = PassTime(device, host_s=host).seconds
    assert max(device, host) * (1 - 1e-9) <= seconds <= (device + host) * (1 + 1e-9)


@pytest.mark.parametrize(
    ("hooked", "slowdown", "expected"),
    [
        (False, OVERLAP_SLOWDOWN, OVERLAP_SLOWDOWN),
        (True, OVERLAP_SLOWDOWN, SHARDING_SLOWDOWN),
        (True, 1.0, 1.0),
        (True, 1.127, SHARDING_SLOWDOWN),
        (True, 2.0, 2.0),
    ],
)
def test_fsdp2_slows_kernels_down_more_unless_a_slowdown_is_asked_for(hooked, slowdown, expected):
    # a gather of 1 ms hides behind a kernel of 10 ms, which then takes so much of that millisecond longer
    gather = Message("parameters", "all_gather", "shard", 1.0, num_concurrent=1, is_hooked=hooked)
    items = (gather, Sweep("s", 10e9, 0))
    assert pass_time(items, MODEL, lambda _: 1e-3, 2, slowdown).device_s == pytest.approx(10e-3 + (expected - 1) * 1e-3)


gathers = st.tuples(st.sampled_from(["shard", "tp"]), st.floats(0, 3), st.integers(0, 3), st.booleans())


@given(
    items=st.lists(gathers, max_size=4),
    slowdowns=st.tuples(st.floats(1, 3), st.sampled_from([1.0, OVERLAP_SLOWDOWN, 1.127, 1.4, 2.5])),
)
def test_a_larger_slowdown_never_gives_a_shorter_pass(items, slowdowns):
    sent = [(Message("m", "all_gather", axis, s, beside, is_hooked=hooked), WORK) for axis, s, beside, hooked in items]
    made = (*itertools.chain(*sent), WORK, WORK)
    less, more = (pass_time(made, MODEL, lambda one: one.payload_bytes, 2, slowdown).seconds for slowdown in sorted(slowdowns))
    assert less <= more * (1 + 1e-12)
