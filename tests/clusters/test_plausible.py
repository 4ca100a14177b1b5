"""Figures beyond what machines are like draw a warning with what was probably meant; the shipped ones draw none."""

import warnings
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters import Cluster, load_cluster
from meshwright.clusters.cluster import preset_names
from meshwright.clusters.plausible import doubtful, figures
from meshwright.clusters.settings import ClusterSettings, TopologySettings
from meshwright.clusters.topologies.clos import ClosSettings
from meshwright.clusters.topologies.matrix import MatrixSettings
from meshwright.devices import DeviceSettings, device_names, device_type
from meshwright.errors import ConfigError, MeshwrightWarning, PlausibilityWarning

DGX = load_cluster("preset:dgx-a100-8x8").settings
KINDS = get_args(get_args(TopologySettings)[0])
"""Settings of every topology."""


def dgx(**figures):
    return DGX.model_copy(update={"topology": DGX.topology.model_copy(update=figures)})


@pytest.fixture
def written(tmp_path):
    """Writes the cluster of a card's bandwidth and gives its path."""

    def write(nic_bandwidth_gbytes_per_s):
        path = tmp_path / "mine.yaml"
        path.write_text(f"""name: mine
device: h100
topology:
  kind: clos
  num_hosts: 2
  devices_per_host: 8
  intra_host_bandwidth_gbytes_per_s: 450.0
  intra_host_latency_us: 0.6
  nics_per_host: 8
  nic_bandwidth_gbytes_per_s: {nic_bandwidth_gbytes_per_s}
  nic_latency_us: 0
  hosts_per_leaf: 2
  num_spines: 1
  oversubscription: 1.0
  spine_latency_us: 0.2
""")
        return path

    return write


def test_gigabits_for_gigabytes_are_told_with_the_line_and_what_was_meant(written):
    path = written(400)
    with pytest.warns(PlausibilityWarning) as caught:
        assert load_cluster(str(path)).num_devices == 16
    (remark,) = [str(one.message) for one in caught]
    assert remark.startswith(
        f"{path}:10: topology.nic_bandwidth_gbytes_per_s: 400 GB/s is 4 times the most there is (100: cards of 1"
    )
    assert remark.endswith("did you mean 50 (400 Gb/s)?")
    assert issubclass(PlausibilityWarning, MeshwrightWarning)
    with warnings.catch_warnings(action="error"):
        load_cluster(str(written(50)))


def test_a_line_rate_of_gigabits_within_the_range_is_told_unless_the_devices_come_with_such_cards(written):
    with pytest.warns(PlausibilityWarning) as caught:
        load_cluster(str(path := written(100)))
    (remark,) = [str(one.message) for one in caught]
    place = f"{path}:10: topology.nic_bandwidth_gbytes_per_s"
    assert remark == f"{place}: 100 GB/s of one card are 800 Gb/s; did you mean 12.5 (100 Gb/s)?"
    with warnings.catch_warnings(action="error"):
        for value in (12.5, 25, 50, 99.9):
            load_cluster(str(written(value)))
        path = written(100)
        path.write_text(path.read_text().replace("device: h100", "device: b200"))
        load_cluster(str(path))


def test_what_ships_draws_no_warning():
    with warnings.catch_warnings(action="error"):
        clusters = [load_cluster(f"preset:{name}") for name in preset_names()]
    for name in device_names():
        device = DeviceSettings(**device_type(name).to_data())
        result = doubtful(clusters[0].settings.model_copy(update={"device": device}))
        assert not [one for one in result if one.location[0] == "device"]


def test_every_figure_of_hardware_has_a_range_and_every_range_a_figure():
    keys = {}
    for model in (*KINDS, DeviceSettings):
        kind = "device" if model is DeviceSettings else model.model_fields["kind"].annotation.__args__[0]
        floats = [key for key, field in model.model_fields.items() if "float" in str(field.annotation) and not field.exclude]
        keys |= {f"{kind}.{key}": key for key in floats}
    known = figures().keys
    assert all(full in known or key in known for full, key in keys.items())
    assert set(known) <= set(keys) | set(keys.values())
    assert all(0 < one.low < one.high and one.source for one in known.values())


@given(st.sampled_from([k for k in figures().keys if k in ClosSettings.model_fields]), st.floats(1e-6, 1e6))
def test_a_figure_is_doubted_exactly_where_it_is_beyond_its_range(key, value):
    plausible = figures().keys[key]
    inside = figures().links_inside_hosts
    most = 300 if key in inside else plausible.high  # NVLink of an A100, one direction
    result = doubtful(dgx(**{key: value}))
    is_line_rate = any(value == rate.gbits_per_s for rate in figures().line_rates.get(key, ()))
    assert bool(result) is (is_line_rate or not plausible.low <= value <= most)
    for one in result:
        assert (one.location, one.value) == (("topology", key), value)
        meant = one.problem.partition("did you mean ")[2].partition(" ")[0]
        assert not meant or plausible.low * 0.999 <= float(meant) <= plausible.high * 1.001


def test_links_of_a_device_that_count_both_directions_are_told(written):
    path = written(50)
    path.write_text(path.read_text().replace("450.0", "900"))
    with pytest.warns(PlausibilityWarning) as caught:
        load_cluster(str(path))
    (remark,) = [str(one.message) for one in caught]
    assert remark.startswith(
        f"{path}:7: topology.intra_host_bandwidth_gbytes_per_s: 900 GB/s is 2 times what a device of type h100"
    )
    assert remark.endswith("did you mean 450 (data sheets count both directions)?")
    path.write_text(path.read_text().replace("device: h100", "device: b200"))
    with warnings.catch_warnings(action="error"):
        load_cluster(str(path))


@given(st.sampled_from(device_names()), st.floats(1, 1000), st.booleans())
def test_links_inside_hosts_are_held_against_the_widest_of_the_device_types_that_are_known(device, value, is_mixed):
    limits = {name: device_type(name).host_links[1] / 1e9 for name in device_names()}
    toy = DeviceSettings(**device_type("a100").to_data() | {"name": "toy", "links": None, "link_gbytes_per_s": None})
    beside = {"l0-h0": toy if is_mixed else "v100"}
    described = dgx(intra_host_bandwidth_gbytes_per_s=value).model_copy(update={"device": device, "device_overrides": beside})
    most = figures().keys["intra_host_bandwidth_gbytes_per_s"].high if is_mixed else max(limits[device], limits["v100"])
    assert bool(doubtful(described)) is (value > most)


def test_memory_in_gigabytes_keeps_its_meaning_with_a_remark(written):
    path = written(50)
    mine = "device: {name: h100-mine, memory_gbytes: 80}"
    path.write_text(path.read_text().replace("device: h100", mine))
    with pytest.warns(PlausibilityWarning) as caught:
        cluster = load_cluster(str(path))
    (remark,) = [str(one.message) for one in caught]
    assert remark.endswith("device.memory_gbytes: is read as 74.51 GiB; memory_gib takes what the driver reports")
    assert cluster.memory_bytes.max() == 80e9
    assert "memory_gbytes" not in cluster.to_data()["device"]
    assert Cluster.from_data(cluster.to_data()).memory_bytes.max() == 80e9
    with pytest.raises(ConfigError, match="memory_gib and memory_gbytes say the same"):
        Cluster.from_data(cluster.to_data() | {"device": {"name": "h100-mine", "memory_gbytes": 80, "memory_gib": 79}})


def test_zero_is_an_ideal_network_and_a_matrix_is_told_by_its_worst_figure():
    assert doubtful(dgx(nic_latency_us=0.0, spine_latency_us=0.0)) == []
    rows = ((0.0, 5000.0, 1.0), (9000.0, 0.0, 1.0), (1e-5, 1.0, 0.0))
    flat = ((0.0, 1.0, 1.0),) * 3
    topology = MatrixSettings(kind="matrix", bandwidth_gbytes_per_s=rows, latency_us=flat)
    (result,) = doubtful(ClusterSettings(name="measured", device="a100", topology=topology))
    assert (result.location, result.value) == (("topology", "bandwidth_gbytes_per_s"), 1e-5)


def test_devices_of_single_hosts_are_looked_at_too():
    wrong = DeviceSettings(**device_type("h100").to_data() | {"name": "mine", "memory_gib": 80_000.0})
    described = DGX.model_copy(update={"device": wrong, "device_overrides": {"l0-h3": wrong}})
    assert [one.location for one in doubtful(described)] == [
        ("device", "memory_gib"),
        ("device_overrides", "l0-h3", "memory_gib"),
    ]
    assert doubtful(described)[0].problem.endswith("did you mean 78.125 (80000 MiB)?")
