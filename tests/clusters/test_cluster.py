"""Loading clusters: presets, users' YAML, heterogeneous hosts, and what is refused."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import yaml

from meshwright.clusters import Cluster, load_cluster, preset_names
from meshwright.errors import ClusterError, ConfigError, InputFileError

ALIKE = ["clos-1024-4to1", "clos-256-4to1", "clos-64-4to1", "dgx-a100-8x8", "host-8", "rail-512", "torus-256", "uneven-64"]
ALIKE += ["clos-512-4to1", "torus-128", "ramp-4x4x2", "ramp-4x4x4", "ramp-8x8x4", "toy"]
NEWER = {
    "dgx-b200-8x8": (64, 8, "b200", 179.06, [900e9, 50e9]),
    "dgx-h100-32x8": (256, 32, "h100", 79.1, [450e9, 50e9]),
    "dgx-h100-8x8": (64, 8, "h100", 79.1, [450e9, 50e9]),
    "dgx-h200-8x8": (64, 8, "h200", 140.4, [450e9, 50e9]),
    "nvl72": (72, 18, "gb200", 185.03, [900e9, 900e9]),
}
PRESETS = sorted([*ALIKE, "clos-64-25g", "lingjun-64", "mixed-256", "two-sites-64", *NEWER])


def written(tmp_path, change, preset="clos-64-4to1"):
    """A copy of a preset with one change, as a file."""
    data = load_cluster(f"preset:{preset}").to_data()
    change(data)
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump(data, sort_keys=False))
    return str(path)


def test_these_presets_come_with_the_package():
    assert preset_names() == PRESETS


@pytest.mark.parametrize("name", NEWER)
def test_newer_machines_follow_their_data_sheets(name):
    cluster = load_cluster(f"preset:{name}")
    (device,) = cluster.device_types
    # Inside a host, and from the first device to the last of the cluster.
    reached = cluster.bandwidth_bytes_per_s([0, 0], [1, cluster.num_devices - 1]).tolist()
    assert (cluster.num_devices, cluster.num_hosts, device.name, device.memory_bytes / 2**30, reached) == NEWER[name]


def test_half_of_the_mixed_cluster_is_of_each_type():
    cluster = load_cluster("preset:mixed-256")
    assert [kind.name for kind in cluster.device_types] == ["h100", "a100"]
    assert np.bincount(cluster.device_type).tolist() == [128, 128]


def test_each_preset_loads_under_its_own_name_and_is_another():
    clusters = [load_cluster(f"preset:{name}") for name in PRESETS]
    assert [cluster.name for cluster in clusters] == PRESETS
    assert len({cluster.digest for cluster in clusters}) == len(PRESETS)


def test_every_key_of_a_preset_stands_below_a_comment():
    from importlib.resources import files

    for name in PRESETS:
        lines = (files("meshwright.configs.clusters") / f"{name}.yaml").read_text().splitlines()
        keys = [line for line in lines if not line.strip().startswith("- [")]  # rows of a table have no keys
        for above, line in pairwise(keys):
            assert "#" in (line.strip()[0], above.strip()[0]), f"{name}: {line}"


def test_the_presets_follow_their_sources():
    dgx = load_cluster("preset:dgx-a100-8x8")
    # 600 GB/s NVSwitch in both directions; 200 Gb/s InfiniBand for each GPU; 1:1 above
    assert dgx.bandwidth_bytes_per_s([0, 0, 0], [1, 8, 9]).tolist() == [300e9, 25e9, 25e9]
    clos = load_cluster("preset:clos-256-4to1")
    down = 4 * 4 * 12.5e9
    up = [
        bandwidth
        for name, bandwidth in zip(clos.links.names, clos.links.bandwidth_bytes_per_s, strict=True)
        if name.startswith("leaf0>spine")
    ]
    assert down / sum(up) == pytest.approx(4.0)


def test_hosts_may_differ(tmp_path):
    tiny = {
        "name": "tiny",
        "peak_tflops_per_s": 1.0,
        "memory_gib": 2.0,
        "memory_bandwidth_gbytes_per_s": 10.0,
        "compute_efficiency": 0.5,
        "memory_efficiency": 0.5,
        "kernel_launch_us": 5.0,
    }
    cluster = load_cluster(written(tmp_path, lambda data: data.update(device_overrides={"l0-h1": "v100", "l3-h0": tiny})))
    assert [kind.name for kind in cluster.device_types] == ["a100", "v100", "tiny"]
    assert np.repeat([0, 1, 0, 0, 0, 0, 2, 0], 8).tolist() == cluster.device_type.tolist()
    assert cluster.memory_bytes[48] == 2 * 2**30
    assert Cluster.from_data(cluster.to_data()).digest == cluster.digest


def test_hosts_may_be_named(tmp_path):
    names = [f"node{i:02d}" for i in range(8)]
    cluster = load_cluster(written(tmp_path, lambda data: data.update(host_names=names, device_overrides={"node07": "h100"})))
    assert cluster.device_name(63) == "node07/7"
    assert cluster.local_rank[63] == 7
    assert cluster.device_types[cluster.device_type[63]].name == "h100"
    assert cluster.links.names[0] == "node00/0>node00"


def test_arrays_cannot_be_written():
    cluster = load_cluster("preset:host-8")
    with pytest.raises(ValueError, match="read-only"):
        cluster.device_type[0] = 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["topology"].update(num_hosts=0), r"cluster.yaml:\d+: topology.num_hosts: must be at least 1.*got 0"),
        (
            lambda d: d["topology"].update(nic_bandwidth_gbytes_per_s=0),
            r"topology.nic_bandwidth_gbytes_per_s: .*more than 0.*got 0",
        ),
        (lambda d: d["topology"].update(nic_bandwidth_gbytes_per_s=-3), r"got -3"),
        (lambda d: d["topology"].update(nic_bandwidth_gbytes_per_s=float("nan")), r"finite"),
        (lambda d: d["topology"].update(spine_latency_us=-1), r"topology.spine_latency_us.*got -1"),
        (lambda d: d["topology"].update(num_host=8), r"topology.num_host: unknown key.*did you mean 'num_hosts'"),
        (lambda d: d["topology"].update(kind="close"), r"topology.kind: .*did you mean 'clos'"),
        (lambda d: d["topology"].update(nics_per_host=3), r"nics_per_host \(3\) must divide devices_per_host \(8\)"),
        (lambda d: d["topology"].pop("num_spines"), r"topology.num_spines: the key is missing"),
        (lambda d: d.update(devise="a100"), r"cluster.yaml:\d+: devise: unknown key.*did you mean 'device'"),
        (lambda d: d.update(device="b100"), r"cluster.yaml: device: unknown device type \(got 'b100'\); valid: a100, "),
        (
            lambda d: d.update(device={"name": "x", "peak_tflops": 1}),
            r"device.peak_tflops: unknown key.*did you mean 'peak_tflops_per_s'",
        ),
    ],
)
def test_bad_values_are_refused_by_name_in_one_line(tmp_path, change, message):
    with pytest.raises(ConfigError, match=message) as caught:
        load_cluster(written(tmp_path, change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(device_overrides={"l0-h7": "v100"}), r"device_overrides: no such host \(got 'l0-h7'\); valid: "),
        (lambda d: d.update(host_names=["a"]), r"host_names: has 1 names for 8 hosts"),
        (lambda d: d.update(host_names=["a"] * 8), r"host_names: the host name appears twice \(got 'a'\)"),
        (lambda d: d["topology"].update(num_hosts=10_000), r"more than 65536 devices \(got 80000\)"),
    ],
)
def test_impossible_clusters_are_refused(tmp_path, change, message):
    with pytest.raises(ClusterError, match=message) as caught:
        load_cluster(written(tmp_path, change))
    assert "cluster.yaml" in str(caught.value)


@pytest.mark.parametrize("names", [["Node"], ["ip-10-0-0-1.ec2.internal"], ["a" * 63 + ".b"], ["10.0.0.1"]])
def test_host_names_of_real_clusters_are_taken(tmp_path, names):
    cluster = load_cluster(written(tmp_path, lambda d: d.update(host_names=names), preset="host-8"))
    assert list(cluster.host_names) == names
    assert Cluster.from_data(cluster.to_data()).host_names == cluster.host_names


def test_host_names_that_differ_in_capitals_alone_are_refused(tmp_path):
    with pytest.raises(ClusterError, match=r"the host name appears twice \(got 'a'\)"):
        load_cluster(written(tmp_path, lambda d: d.update(host_names=["a", "A", *"bcdefg"])))


def test_host_names_that_scripts_could_misread_are_refused(tmp_path):
    names = [
        "",
        "a b",
        "a;b",
        "$(x)",
        "-a",
        "a-",
        "ä",
        "a" * 64,
        "a\n",
        "a..b",
        ".a",
        "a.",
        "a.b-",
        "a." * 126 + "ab",
        "a/b",
        "a>b",
    ]
    for name in names:
        with pytest.raises(ClusterError, match=r"host_names.0: a host name is"):
            load_cluster(written(tmp_path, lambda d, name=name: d.update(host_names=[name]), preset="host-8"))


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("preset:ramp-4x4", ConfigError, r"unknown preset \(got 'ramp-4x4'\); did you mean 'ramp-4x4x4'"),
        ("preset:nothing", ConfigError, r"unknown preset.*valid: clos-1024-4to1, clos-256-4to1"),
        ("ramp-4x4x2", InputFileError, r"neither a file nor a preset \(got 'ramp-4x4x2'\); did you mean 'preset:ramp-4x4x2'"),
        ("absent.yaml", InputFileError, r"absent.yaml: no such file"),
    ],
)
def test_unknown_clusters_name_the_nearest(spec, error, message):
    with pytest.raises(error, match=message):
        load_cluster(spec)


@pytest.mark.parametrize(
    ("bandwidth", "error", "message"),
    [
        ("0,1\n1\n", ConfigError, r"bandwidth.csv: bandwidth_gbytes_per_s has 2 rows, but row 1 has 1 numbers"),
        ("0,1\n0,0\n", ConfigError, r"bandwidth.csv: bandwidth_gbytes_per_s, row 1, column 0: must be more than 0, is 0"),
        ("0,1,1\n1,0,1\n1,1,0\n", ConfigError, r"bandwidth_gbytes_per_s has 3 rows, latency_us 2"),
        ("0,1\nx,0\n", InputFileError, r"bandwidth.csv:2: column 0: must be a number \(got 'x'\)"),
        ("0,inf\n1,0\n", InputFileError, r"bandwidth.csv:1: column 1: must be finite"),
        ("\n", InputFileError, "holds no numbers"),
    ],
)
def test_bad_matrices_name_their_file_row_and_column(tmp_path, bandwidth, error, message):
    (tmp_path / "bandwidth.csv").write_text(bandwidth)
    topology = "{kind: matrix, bandwidth_gbytes_per_s_csv: bandwidth.csv, latency_us: [[0, 1], [1, 0]]}"
    (tmp_path / "c.yaml").write_text(f"name: m\ndevice: a100\ntopology: {topology}\n")
    with pytest.raises(error, match=message):
        load_cluster(str(tmp_path / "c.yaml"))


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("host,a,b,c\n", InputFileError, r"topo.csv:1: the first line must be ip,DSW,PSW,ASW"),
        ("ip,DSW,PSW,ASW\nh,G,P\n", InputFileError, r"topo.csv:2: a row has 4 fields"),
        ("ip,DSW,PSW,ASW\nh,G,,S\n", InputFileError, r"topo.csv:2: a row has 4 fields, none empty"),
        ("ip,DSW,PSW,ASW\n", InputFileError, r"topo.csv: names no host"),
        ("ip,DSW,PSW,ASW\nh,G1,P,S\ni,G2,P,S\n", ConfigError, r"no link joins the cores G1 and G2"),
        ("ip,DSW,PSW,ASW\nh,G,P,S\nh,G,P,S\n", ClusterError, r"the host name appears twice \(got 'h'\)"),
        ("ip,DSW,PSW,ASW\n10.0.0.1;,G,P,S\n", ClusterError, r"a host name is .*got '10.0.0.1;'"),
    ],
)
def test_bad_traces_name_file_and_line(tmp_path, text, error, message):
    (tmp_path / "topo.csv").write_text(text)
    keys = load_cluster("preset:clos-64-4to1").to_data()["topology"]
    topology = {key: keys[key] for key in keys if "host" in key or "nic" in key}
    del topology["num_hosts"], topology["hosts_per_leaf"]
    topology |= {"kind": "trace", "csv": "topo.csv"}
    topology |= {f"{tier}_uplink_{what}": 1 for tier in ("leaf", "pod") for what in ("gbytes_per_s", "latency_us")}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"name": "t", "device": "a100", "topology": topology}))
    with pytest.raises(error, match=message):
        load_cluster(str(tmp_path / "c.yaml"))


def test_absent_devices_are_refused():
    cluster = load_cluster("preset:host-8")
    for ask in (cluster.bandwidth_bytes_per_s, cluster.latency_s, cluster.path):
        for pair in ((0, 8), (-1, 0)):
            with pytest.raises(ClusterError, match=r"no such device, there are 0..7"):
                ask(*pair)


def test_a_cluster_put_together_by_hand_is_checked():
    cluster = load_cluster("preset:host-8")
    with pytest.raises(ClusterError, match="has no device"):
        replace(cluster, device_host=np.zeros(0), device_type=np.zeros(0))
    with pytest.raises(ClusterError, match="has no host"):
        replace(cluster, host_names=())
    with pytest.raises(ClusterError, match="device_type: has 3 entries for 8 devices"):
        replace(cluster, device_type=np.zeros(3))
    with pytest.raises(ClusterError, match="one host after another"):
        replace(cluster, device_host=np.arange(8) % 2, host_names=("a", "b"))
    with pytest.raises(ClusterError, match=r"outside 0\.\.0"):
        replace(cluster, device_type=np.ones(8))


@pytest.mark.parametrize("data", [None, 3, [], "preset:host-8", {}, {"name": "x", "device": "a100", "topology": {}}])
def test_data_that_describes_no_cluster_is_refused(data):
    with pytest.raises(ConfigError):
        Cluster.from_data(data)


def test_importing_clusters_loads_nothing_heavy():
    code = "import sys, meshwright.clusters.symmetry; print(' '.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"networkx", "scipy", "torch", "matplotlib", "numba", "pandas"} & set(loaded)
