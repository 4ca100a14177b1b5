"""topology.conf: read back by a parser of our own, it is the tree of the cluster. A real slurmctld reads it elsewhere."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.clusters.cluster import Cluster
from meshwright.errors import ExportError
from meshwright.export import export
from meshwright.export.launchers.slurm_topology import bracketed, topology_conf


def read(text: str) -> dict[str, tuple[str, list[str]]]:
    """Entries below each switch: ``Nodes`` or ``Switches``, and their names."""
    result = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            switch, kind, names = re.fullmatch(r"SwitchName=(\S+) (Nodes|Switches)=(\S+)", line).groups()
            assert switch not in result
            result[switch] = (kind, expanded(names))
    return result


def expanded(names: str) -> list[str]:
    """A host list expression name by name, by the grammar of Slurm's manual: ``prefix[a-b,c]``, padded as its first number."""
    result = []
    for part in re.findall(r"[^,\[]+(?:\[[^\]]*\])?", names):
        prefix, _, ranges = part.rstrip("]").partition("[")
        for numbers in ranges.split(",") if ranges else [None]:
            if numbers is None:
                result.append(prefix)
                continue
            low, _, high = numbers.partition("-")
            result += [f"{prefix}{number:0{len(low)}d}" for number in range(int(low), int(high or low) + 1)]
    return result


def hosts_below(tree: dict[str, tuple[str, list[str]]], switch: str) -> list[str]:
    kind, names = tree[switch]
    return names if kind == "Nodes" else [host for below in names for host in hosts_below(tree, below)]


@pytest.mark.parametrize("preset", ["clos-64-4to1", "clos-256-4to1", "dgx-a100-8x8", "ramp-4x4x2", "ramp-8x8x4", "host-8"])
def test_every_host_hangs_below_the_top_once(preset):
    cluster = load_cluster(f"preset:{preset}")
    tree = read(topology_conf(cluster))
    below = {name for kind, names in tree.values() if kind == "Switches" for name in names}
    (top,) = tree.keys() - below
    assert sorted(hosts_below(tree, top)) == sorted(cluster.host_names)


def test_a_clos_network_worked_by_hand():
    assert topology_conf(load_cluster("preset:clos-64-4to1")) == (
        "SwitchName=group0 Nodes=l0-h[0-1]\n"
        "SwitchName=group1 Nodes=l1-h[0-1]\n"
        "SwitchName=group2 Nodes=l2-h[0-1]\n"
        "SwitchName=group3 Nodes=l3-h[0-1]\n"
        "SwitchName=top Switches=group[0-3]\n"
    )


def test_a_ramp_network_has_racks_below_groups():
    tree = read(topology_conf(load_cluster("preset:ramp-4x4x2")))
    assert tree["group1-rack2"] == ("Nodes", ["g1-r2-s0", "g1-r2-s1"])
    assert tree["group1"] == ("Switches", [f"group1-rack{rack}" for rack in range(4)])
    assert tree["top"] == ("Switches", [f"group{group}" for group in range(4)])


def test_one_group_needs_no_switch_above_it():
    assert list(read(topology_conf(load_cluster("preset:dgx-a100-8x8")))) == ["group0"]


def test_a_torus_is_refused():
    torus = {"name": "t", "device": "a100", "topology": {"kind": "torus", "shape": [2, 2]}}
    torus["topology"] |= {"link_bandwidth_gbytes_per_s": 50, "link_latency_us": 1, "devices_per_host": 1}
    with pytest.raises(ExportError, match=r"topology: a torus is no tree of switches \(got 't'\)"):
        topology_conf(Cluster.from_data(torus))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["gpu-07"], "gpu-07"),
        (["gpu-07", "gpu-08", "gpu-09", "gpu-11"], "gpu-[07-09,11]"),
        (["gpu-07", "gpu-03"], "gpu-[07,03]"),
        (["gpu-9", "gpu-10"], "gpu-9,gpu-10"),  # of unequal length: no padding would give both
        (["a", "a1", "b1", "7"], "a,a1,b1,7"),
        (["n1234567890", "n1234567891"], "n1234567890,n1234567891"),  # too long for a number
        ([], ""),
    ],
)
def test_brackets_worked_by_hand(names, text):
    assert bracketed(names) == text


@given(st.lists(st.from_regex(r"[a-z]{1,2}(-[0-9]{1,2})?[0-9]{0,3}", fullmatch=True), max_size=12, unique=True))
def test_a_bracket_expression_expands_to_its_names_in_order(names):
    assert expanded(bracketed(names)) == names


def test_slurm_writes_it_on_request_headed_like_every_file(layout_example, make_plan):
    assert "topology.conf" not in export(layout_example, "slurm")
    text = export(layout_example, "slurm", {"topology_conf": True})["topology.conf"]
    assert text.startswith("# Job gpt2-small; ranks: 8, hosts: 2.\n# Not guaranteed by Slurm:\n")
    assert read(text) == {
        "group0": ("Nodes", ["gpu-07"]),
        "group1": ("Nodes", ["gpu-03"]),
        "top": ("Switches", ["group0", "group1"]),
    }
    with pytest.raises(ExportError, match=r"cluster: topology\.conf is made from the plan's cluster, and the plan has none"):
        export(make_plan(["a"]), "slurm", {"topology_conf": True})
