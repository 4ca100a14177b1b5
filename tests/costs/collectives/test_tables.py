"""Measured systems: what ships with the package, files, and groups between those that were measured."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters.cluster import load_cluster
from meshwright.costs import collectives, nccl
from meshwright.costs.collectives.libraries import tables
from meshwright.costs.collectives.libraries.library import wires
from meshwright.costs.collectives.libraries.system import UNCERTAINTY, TableKey, protocol_of, tuner
from meshwright.costs.collectives.prices import Price
from meshwright.costs.network import RankNetwork
from meshwright.costs.phases import alone_s, fullest_s
from meshwright.costs.settings import CostSettings
from meshwright.errors import ConfigError, InputFileError

MIB = 2**20


def written(tmp_path, *curves, **others):
    path = tmp_path / "system.json"
    path.write_text(json.dumps({"name": "x", "device": "a100", "curves": list(curves), **others}))
    return str(path)


def curve(num_ranks, latency_us, bus_gbytes_per_s, operation="all_reduce", **others):
    return {
        "operation": operation,
        "num_ranks": num_ranks,
        "latency_us": latency_us,
        "bus_gbytes_per_s": bus_gbytes_per_s,
        **others,
    }


@pytest.mark.reference
def test_the_six_published_curves_are_reproduced(reference):
    # formulas.md, section 1: latency and bus bandwidth of the all-reduce of 2, 4 and 8 A100 and V100, 1 MiB to 1 GiB
    rows = json.loads((reference / "published" / "step_times.json").read_text())["nccl_calibration"]["rows"]
    host = load_cluster("preset:host-8")
    assert len(rows) == 6
    for row in rows:
        costs = CostSettings(collectives="measured", collectives_table=row["hardware"][:4].lower())
        n = row["gpus"]
        errors = []
        for size in (MIB * k for k in range(1, 1025)):
            published_s = row["alpha_total_us"] / 1e6 + 2 * (n - 1) / n * size / (row["busbw_GBps"] * 1e9)
            result = collectives.price(
                "all_reduce", RankNetwork(host, np.arange(n)), np.arange(n), size, collectives.algorithm_of(costs)
            )
            assert result.provenance == "interpolated"
            errors.append(abs(result.seconds / published_s - 1))
        assert sum(errors) / len(errors) <= 0.03
        assert max(errors) <= 0.03


def test_a_shipped_line_worked_by_hand():
    # 8 A100: 78.6 us + 1.75 x 227.3 MB / 227.3 GB/s
    host = load_cluster("preset:host-8")
    result = collectives.price("all_reduce", RankNetwork(host, np.arange(8)), np.arange(8), 227.3e6, "measured")
    assert result.seconds == pytest.approx(78.6e-6 + 1.75e-3)
    assert (result.provenance, result.uncertainty) == ("interpolated", UNCERTAINTY["interpolated"])


def test_what_no_table_tells_is_what_the_tuner_expects(dgx):
    # broadcast is not measured, nor are groups of several hosts
    network = RankNetwork(dgx, np.arange(16))
    for operation, ranks in (("broadcast", np.arange(8)), ("all_reduce", np.arange(16))):
        result, expected = (collectives.price(operation, network, ranks, 1e8, name) for name in ("measured", "nccl"))
        assert result == expected
        assert result.provenance == "estimated"


@pytest.mark.parametrize(
    ("device", "four", "six"),
    [
        # latencies by n; of two doublings from 20 to 5 GB/s one halves it to 10, and log2(3) of them leave 20 / 3
        ("NVIDIA L40S", 40e-6 + 1.5 / 10, 60e-6 + 5 / 3 / (20 / 3)),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 40e-6 + 1.5 / 10, 60e-6 + 5 / 3 / (20 / 3)),
        # latencies by n: a third and two thirds of the way; seconds of a byte by 1 / n, a third and a ninth of those of two
        ("NVIDIA A100-SXM4-80GB", 40e-6 + 1.5 * (1 / 3 / 20 + 2 / 3 / 5), 60e-6 + 5 / 3 * (1 / 9 / 20 + 8 / 9 / 5)),
    ],
)
def test_each_doubling_of_a_group_of_pcie_cards_costs_a_factor_and_of_one_on_a_switch_a_share(tmp_path, device, four, six):
    system = tables.load(written(tmp_path, curve(2, 20, 20), curve(8, 80, 5), device=device))
    messages = [system.way("all_reduce", ranks).seconds(1e9) for ranks in (4, 6)]
    assert messages == pytest.approx([four, six])
    doubt = system.way("all_reduce", 4).price(1e9).uncertainty
    assert doubt == UNCERTAINTY["between groups" if "A100" in device else "between groups on PCIe"]


def test_every_shipped_system_can_be_read():
    assert {"a100", "b200", "h100", "h200", "v100"} <= set(tables.SYSTEMS.names())
    assert all(tables.load(name).curves for name in tables.SYSTEMS.names())


def test_a_group_between_two_has_the_latency_of_its_steps_and_the_bandwidth_of_its_share(tmp_path):
    # 2 ranks: 10 us, 100 GB/s; 8 ranks: 22 us, 250 GB/s. 4 ranks: 10 + 12 x 2/6 = 14 us; seconds of a bus byte a third of the
    # way from 1/250 to 1/100: 1/250 + (1/100 - 1/250) / 3 = 6 / 1000
    system = tables.load(written(tmp_path, curve(2, 10, 100), curve(8, 22, 250)))
    result = system.way("all_reduce", 4).price(1e9)
    assert result.seconds == pytest.approx(14e-6 + 1.5 * 1e9 * 6e-3 / 1e9)
    assert (result.provenance, result.uncertainty) == ("interpolated", UNCERTAINTY["between groups"])
    expected = tuner("all_reduce", 4, 1, "a100", system.inside_bytes_per_s)(1e9)
    assert (result.algorithm, result.protocol) == (expected.algorithm, expected.protocol)


def measured_at(sizes, times_us, **others):
    return {"operation": "all_reduce", "num_ranks": 8, "payload_bytes": sizes, "time_us": times_us, **others}


def test_measured_sizes_are_told_as_they_are_and_what_lies_between_by_their_line(tmp_path):
    # 100 us at 1 MB and 130 us at 4 MB: 110 us at 2 MB, and 10 us for each MB beyond
    way = tables.load(written(tmp_path, measured_at([1e6, 4e6], [100, 130]))).way("all_reduce", 8)
    results = [way.price(size) for size in (1e6, 2e6, 9e6)]
    assert [one.seconds for one in results] == pytest.approx([100e-6, 110e-6, 180e-6])
    assert [one.provenance for one in results] == ["measured", "interpolated", "estimated"]
    assert [one.uncertainty for one in results] == [UNCERTAINTY[one.provenance] for one in results]


def test_a_measured_curve_knows_what_the_tuner_says_of_its_group(tmp_path):
    system = tables.load(written(tmp_path, measured_at([1e6], [100])))
    (curve,) = system.curves.values()
    best = tuner("all_reduce", 8, 1, "a100", system.inside_bytes_per_s)
    sizes = [10.0**power for power in range(2, 10)]
    assert [curve.protocol(size) for size in sizes] == [best(size).protocol for size in sizes]
    assert len({curve.protocol(size) for size in sizes}) > 1
    # between pairs the tuner has no say
    pairs = tables.load(written(tmp_path, measured_at([1e6], [100], operation="all_to_all"), name="pairs"))
    assert [one.protocol for one in pairs.curves.values()] == [None]
    # a single size goes on as the tuner's expectation grows
    assert curve.at(1e9).seconds == pytest.approx(100e-6 * best(1e9).time_s(1e9) / best(1e6).time_s(1e6))


def test_a_group_beyond_all_is_an_estimate(tmp_path):
    system = tables.load(written(tmp_path, curve(2, 10, 100), curve(4, 14, 100)))
    result = system.way("all_reduce", 8).price(1e9)
    assert result.seconds == pytest.approx(22e-6 + 1.75 * 1e9 / 100e9)
    assert result.provenance == "estimated"
    alone = tables.load(written(tmp_path / "..", curve(4, 20, 100), name="y")).way("all_reduce", 8).price(1e9)
    assert alone.seconds == pytest.approx(40e-6 + 1.75 * 1e9 / 100e9)
    assert alone.provenance == "estimated"


def test_a_preferred_data_type_is_taken_and_another_where_it_is_absent(tmp_path):
    system = tables.load(written(tmp_path, curve(2, 10, 100, data_type="half"), curve(2, 10, 50, data_type="int8")))
    at = {name: system.way("all_reduce", 2, data_type=name).price(1e9).seconds for name in ("half", "int8", "float", "")}
    assert at["int8"] > at["half"] == at["float"] == at[""]


@pytest.mark.every(3)
@pytest.mark.parametrize("name", ["nccl", "measured"])
@pytest.mark.parametrize("operation", collectives.OPERATIONS)
@given(payload=st.floats(1, 1e11), hosts=st.integers(1, 8), per_host=st.integers(1, 8))
def test_flows_alone_take_what_the_price_says(dgx, name, operation, payload, hosts, per_host):
    devices = np.array([8 * h + i for h in range(hosts) for i in range(per_host)])
    network, ranks = RankNetwork(dgx, devices), np.arange(len(devices))
    model = collectives.algorithm_named(name)
    price_s = model.time_s(network, ranks, payload, operation)
    phases = model.phases(network, ranks, payload, operation)
    flows_s = alone_s(network, phases)
    assert flows_s <= max(price_s, sum(fullest_s(network, phase) for phase in phases)) * (1 + 1e-9)
    if hosts == 1 and operation != "all_to_all":  # elsewhere flows share links, or one chain stands for all cards
        assert flows_s == pytest.approx(price_s, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"latency_us": -1}, r"curves\.0\.latency_us: .*-1"),
        ({"bus_gbytes_per_s": 0}, r"curves\.0\.bus_gbytes_per_s: .*0"),
        ({"num_ranks": 1}, r"curves\.0\.num_ranks: .*1"),
        ({"operation": "allreduce"}, r"curves\.0\.operation: .*did you mean 'all_reduce'\?"),
        (
            {"latency_us": None, "bus_gbytes_per_s": None, "payload_bytes": [1, 2], "time_us": [1]},
            "2 payload_bytes for 1 time_us",
        ),
        ({"payload_bytes": [1], "time_us": [1]}, r"has either payload_bytes and time_us, or latency_us and bus_gbytes_per_s"),
    ],
)
def test_an_impossible_table_is_refused_with_its_place(tmp_path, change, message):
    with pytest.raises(ConfigError, match=message):
        tables.load(written(tmp_path, curve(2, 10, 100) | change))


def test_a_table_that_stands_twice_is_refused(tmp_path):
    path = written(tmp_path, curve(2, 10, 100), curve(2, 11, 100))
    with pytest.raises(ConfigError, match=rf"{path}: curves\.1: is given twice \(got 'all_reduce 2 1'\)"):
        tables.load(path)


def test_an_unknown_system_is_answered_with_the_nearest():
    with pytest.raises(InputFileError, match=r"collectives_table: .*'a10'.*valid: "):
        tables.load("a10")


def test_a_file_that_changes_is_read_again_and_tells_another_digest(tmp_path):
    def found(bus_gbytes_per_s):
        path = written(tmp_path, curve(2, 10, bus_gbytes_per_s))
        digest = CostSettings(collectives="measured", collectives_table=path).digest
        return tables.load(path).way("all_reduce", 2).price(1e9).seconds, digest

    slow, fast = found(50), found(200.5)
    assert slow[0] > fast[0]
    assert slow[1] != fast[1]
    assert found(50) == slow


def test_what_the_library_runs_is_told_beside_its_time(dgx):
    network, ranks = RankNetwork(dgx, np.arange(8)), np.arange(8)
    for operation, size in (("all_reduce", 1e3), ("all_reduce", 1e9), ("all_to_all", 1e9)):
        result = collectives.price(operation, network, ranks, size, "nccl")
        line = nccl.best(nccl.lines(operation, wires(network, ranks, operation)), size)
        assert result == Price(line.time_s(size), "estimated", UNCERTAINTY["estimated"], line.algorithm, line.protocol)


def test_between_pairs_a_curve_knows_no_protocol():
    assert protocol_of(TableKey("send_recv", 2), "a100", 300e9) is protocol_of(TableKey("all_to_all", 8), "a100", 300e9) is None
    assert protocol_of(TableKey("all_reduce", 8), "a100", 300e9)(1e9) in nccl.PROTOCOLS
