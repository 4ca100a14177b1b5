"""A cluster's YAML from what machines say of their wiring, each form by a file as the program writes it."""

import pytest

from meshwright.cli import run_command_line
from meshwright.clusters import load_cluster
from meshwright.clusters.from_topology import cluster_yaml, read_topology
from meshwright.devices import device_type
from meshwright.errors import ClusterError, ConfigError
from meshwright.live.sources.host_lists import hosts_in

SMI = """
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV18\tNV18\tNV18\tPIX\tNODE\tSYS\t0-47\t0\t\tN/A
GPU1\tNV18\t X \tNV18\tNV18\tNODE\tPXB\tSYS\t0-47\t0\t\tN/A
GPU2\tNV18\tNV18\t X \tNV18\tSYS\tSYS\tSYS\t48-95\t1\t\tN/A
GPU3\tNV18\tNV18\tNV18\t X \tSYS\tSYS\tSYS\t48-95\t1\t\tN/A
NIC0\tPIX\tNODE\tSYS\tSYS\t X \tNODE\tSYS
NIC1\tNODE\tPXB\tSYS\tSYS\tNODE\t X \tSYS
NIC2\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t X

Legend:

  X    = Self

NIC Legend:

  NIC0: mlx5_0
"""

NCCL = """<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel">
    <pci busid="0000:1b:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="80" rank="0" gdr="1"><nvlink target="0000:c8:00.0" count="12" tclass="0x068000"/></gpu>
    </pci>
    <pci busid="0000:1c:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="80" rank="1" gdr="1">
        <nvlink target="0000:c8:00.0" count="6" tclass="0x068000"/><nvlink target="0000:c9:00.0" count="6" tclass="0x068000"/>
      </gpu>
    </pci>
    <nic><net name="mlx5_0" dev="0" speed="200000" port="1" latency="0.0" guid="0x1" maxconn="131072" gdr="1"/></nic>
  </cpu>
</system>"""

TREE = """# comment
SwitchName=leaf1 Nodes=n[01-16]
SwitchName=leaf2 Nodes=n[17-30],m1
SwitchName=spine Switches=leaf[1-2]
"""


def found(*texts):
    held = read_topology([(f"{number}.txt", one) for number, one in enumerate(texts)], hosts_in)
    return {key: value for key, (value, _) in held.items()}


def test_a_table_of_nvidia_smi_tells_links_and_the_cards_next_to_gpus():
    known = {"devices_per_host": 4, "nics_per_host": 2, "intra_host_bandwidth_gbytes_per_s": 450.0, "intra_host_latency_us": 0.6}
    assert found(SMI) == known
    older = SMI.replace("NIC0\t", "mlx5_0\t").replace("NIC1\t", "mlx5_1\t").replace("NIC2\t", "mlx5_2\t")
    assert found(older) == known
    assert found(SMI.replace("NV18", "PHB"))["intra_host_bandwidth_gbytes_per_s"] is None
    assert found(SMI.replace("NV18", "NV1", 1))["intra_host_bandwidth_gbytes_per_s"] is None


def test_a_topology_of_nccl_tells_the_speed_of_cards_and_the_device_type():
    # 12 links of 25 GB/s; 200 Gbit/s are 25 GB/s.
    assert found(NCCL) == {
        "devices_per_host": 2,
        "nics_per_host": 1,
        "intra_host_bandwidth_gbytes_per_s": 300.0,
        "intra_host_latency_us": 0.6,
        "nic_bandwidth_gbytes_per_s": 25.0,
        "device": "a100",
    }


def test_slurm_tells_hosts_and_switches():
    names = str([f"n{number:02}" for number in range(1, 31)] + ["m1"])
    assert found(TREE) == {"num_hosts": 31, "hosts_per_leaf": 16, "num_spines": 1, "host_names": names}
    blocks = found("BlockName=b1 Nodes=n[0-17]\nBlockName=b2 Nodes=n[18-36]\nBlockSizes=18\n")
    assert blocks == {"num_hosts": 37, "hosts_per_leaf": 19}  # which host is below which one cannot be said


def test_a_file_that_is_completed_is_a_cluster_and_one_that_is_not_is_refused_by_its_key(tmp_path):
    text = cluster_yaml(read_topology([("a", SMI), ("b", TREE)], hosts_in), device_type("b200"))
    assert "intra_host_bandwidth_gbytes_per_s: 900.0  # links of b200" in text
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"topology\.nic_bandwidth_gbytes_per_s: the key is missing"):
        load_cluster(str(path))
    values = {
        "nic_bandwidth_gbytes_per_s": 50,
        "nic_latency_us": 1.35,
        "wiring": "rail",
        "oversubscription": 1,
        "spine_latency_us": 0,
    }
    for key, value in values.items():
        text = text.replace(f"# {key}:", f"{key}: {value}")
    path.write_text(text)
    cluster = load_cluster(str(path))
    assert (cluster.num_devices, cluster.device_types[0].name, cluster.host_names[16]) == (124, "b200", "n17")


def test_keys_that_are_to_be_completed_are_named_on_the_screen(tmp_path, capsys):
    (tmp_path / "topology.conf").write_text(TREE)
    words = ["--device", "h100", "--out", str(tmp_path / "cluster.yaml")]
    assert run_command_line(["cluster", "from-topo", str(tmp_path / "topology.conf"), *words]) == 0
    assert "keys to fill in: devices_per_host, intra_host_bandwidth_gbytes_per_s, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hello", r"0\.txt: is none of: nvidia-smi topo -m, a topology of NCCL"),
        (SMI.replace("GPU3\tNV18", "GPU7\tNV18"), r"0\.txt: GPU0: is no whole table of nvidia-smi topo -m"),
        ("<system>", r"0\.txt: not valid XML: "),
        ("<system/>", r"0\.txt: system: names no GPU"),
        ("<!DOCTYPE system [<!ENTITY a 'b'>]><system/>", r"0\.txt: defines entities"),
        (NCCL.replace('"12"', '"x"'), r"0\.txt: system: a count or speed is no number"),
        ("SwitchName=s Switches=t[1-2]", r"0\.txt: Nodes: has no Nodes"),
    ],
)
def test_what_is_no_topology_is_refused_in_one_line(text, message):
    with pytest.raises(ClusterError, match=message):
        found(text)
