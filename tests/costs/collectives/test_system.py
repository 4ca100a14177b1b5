"""Curves and lines of a system, by hand: at the ends of the measured range, and the one that a group takes."""

import pytest

from meshwright.costs.collectives.libraries.curves import Curve
from meshwright.costs.collectives.libraries.system import UNCERTAINTY, FittedLine, System, TableKey, protocol_of, tuner
from meshwright.costs.collectives.prices import Price

LINE = FittedLine(latency_s=10e-6, bus_bytes_per_s=100e9, from_bytes=1e6, to_bytes=1e9, factor=1.5)


@pytest.mark.parametrize(
    ("size", "provenance"), [(1e6 - 1, "estimated"), (1e6, "interpolated"), (1e9, "interpolated"), (1e9 + 1, "estimated")]
)
def test_a_line_is_an_estimate_beyond_the_sizes_of_its_fit(size, provenance):
    assert LINE.at(size) == (pytest.approx(10e-6 + 1.5 * size / 100e9), provenance)
    assert LINE.floor_s == 10e-6


def line(latency_us):
    return LINE._replace(latency_s=latency_us * 1e-6)


def system(device="a100", **curves):
    """Lines of an all-reduce by their latency in microseconds; a key is a data type, ``any`` for none, and a group size."""
    made = {}
    for name, latency_us in curves.items():
        data_type, ranks = name.split("_")
        made[TableKey("all_reduce", int(ranks), 1, "" if data_type == "any" else data_type)] = line(latency_us)
    return System("x", device, 300e9, made)


@pytest.mark.parametrize(
    ("curves", "data_type", "latency_us"),
    [
        # what is wanted, then what holds for all types, then half, then whatever comes first by name
        ({"half_4": 1, "any_4": 2, "float_4": 3}, "float", 3),
        ({"half_4": 1, "any_4": 2, "float_4": 3}, "", 2),
        ({"half_4": 1, "any_4": 2, "float_4": 3}, "int8", 2),
        ({"float_4": 3, "half_4": 1}, "int8", 1),
        ({"float_4": 3, "double_4": 4}, "int8", 4),
    ],
)
def test_a_group_is_told_by_the_nearest_data_type(curves, data_type, latency_us):
    result = system(**curves)
    assert result.way("all_reduce", 4, data_type=data_type).curves == (line(latency_us),)
    assert result.data_types == sorted({"" if name.startswith("any") else name.split("_")[0] for name in curves})
    assert result.way("all_reduce", 4, num_hosts=2) is result.way("all_gather", 4) is None


@pytest.mark.parametrize(
    ("num_ranks", "near"), [(2, (2,)), (3, (2, 4)), (4, (4,)), (6, (4, 8)), (8, (8,)), (9, (4, 8)), (16, (4, 8))]
)
def test_a_group_is_told_by_itself_or_by_the_two_that_are_nearest(num_ranks, near):
    latencies = {2: 20, 4: 30, 8: 70}
    way = system(any_2=20, any_4=30, any_8=70).way("all_reduce", num_ranks)
    assert (way.operation, way.num_ranks, way.near) == ("all_reduce", num_ranks, near)
    assert way.curves == tuple(line(latencies[one]) for one in near)
    assert not way.is_tree
    assert system(any_4=30, any_8=70).way("all_reduce", 2).near == (4, 8)
    assert system(any_4=30).way("all_reduce", 2).near == system(any_4=30).way("all_reduce", 8).near == (4,)


@pytest.mark.parametrize(
    ("num_ranks", "size", "latency_us", "factor", "provenance", "uncertainty"),
    [
        # Lines of 4 and 8 ranks that fit a factor of 1.5: a byte on the bus of 4 ranks takes 1 / 100 GB/s, of 8 ranks 1.5 / 1.75
        # of it, in between linear in 1 / n; the latency is linear in n.
        (4, 1e8, 30, 1.5, "interpolated", "interpolated"),
        (4, 1e3, 30, 1.5, "estimated", "estimated"),
        (6, 1e8, 50, 5 / 3 * (1 + (1 / 6 - 1 / 4) / (1 / 8 - 1 / 4) * (1.5 / 1.75 - 1)), "interpolated", "between groups"),
        (6, 1e3, 50, 5 / 3 * (1 + (1 / 6 - 1 / 4) / (1 / 8 - 1 / 4) * (1.5 / 1.75 - 1)), "estimated", "estimated"),
        (16, 1e8, 150, 15 / 8 * (1 + (1 / 16 - 1 / 4) / (1 / 8 - 1 / 4) * (1.5 / 1.75 - 1)), "estimated", "estimated"),
        # never a latency below that of the smallest group that is known
        (2, 1e8, 30, 1 * (1 + (1 / 2 - 1 / 4) / (1 / 8 - 1 / 4) * (1.5 / 1.75 - 1)), "estimated", "estimated"),
    ],
)
def test_times_between_groups_worked_by_hand(num_ranks, size, latency_us, factor, provenance, uncertainty):
    way = system(any_4=30, any_8=70).way("all_reduce", num_ranks)
    best = tuner("all_reduce", num_ranks, 1, "a100", 300e9)(size)
    seconds = pytest.approx(latency_us * 1e-6 + factor * size / 100e9)
    assert way.price(size) == Price(seconds, provenance, UNCERTAINTY[uncertainty], best.algorithm, best.protocol)
    assert way.seconds(size) == seconds


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather", "reduce_scatter", "broadcast"])
def test_a_curve_changes_protocol_where_the_tuner_of_its_operation_does(operation):
    key = TableKey(operation, 8)
    known, best = protocol_of(key, "a100", 300e9), tuner(operation, 8, 1, "a100", 300e9)
    sizes = [2.0**power for power in range(6, 34)]
    assert [known(size) for size in sizes] == [best(size).protocol for size in sizes]
    assert len({known(size) for size in sizes}) > 1


def test_a_jump_is_continued_by_the_next_line_on_either_side_worked_by_hand():
    # LL up to 2 MB, 1 us a MB; Simple from 4 MB on, at first 2 us a MB and behind 8 MB again 1 us.
    points = [(1e6, 11e-6), (2e6, 12e-6), (4e6, 28e-6), (8e6, 36e-6), (16e6, 44e-6)]
    curve = Curve(points, lambda size: "LL" if size < 3e6 else "Simple")
    assert curve.at(2.5e6) == (pytest.approx(12.5e-6), "interpolated")
    assert curve.at(3.5e6) == (pytest.approx(27e-6), "interpolated")
    assert curve.at(6e6) == (pytest.approx(32e-6), "interpolated")
