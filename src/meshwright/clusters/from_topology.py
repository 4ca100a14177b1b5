"""A cluster's YAML, to be completed, from what its machines say of their wiring.

Read are the table of ``nvidia-smi topo -m``, the topology that NCCL writes (``NCCL_TOPO_DUMP_FILE``) and Slurm's
``topology.conf``. The first two are of one host: its GPUs, their links and the cards next to them. The third names the hosts that
share a switch. A key that is in none of them becomes a comment, so that reading the file names what is missing.

Sources:
    nvidia-smi(1), legend of ``topo -m``; NVIDIA/nccl, src/graph/topo.h and xml.cc; topology.conf(5) of Slurm.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from xml.etree import ElementTree

from ..devices import DeviceType
from ..errors import ClusterError

LINK_GBYTES_PER_S = 25.0
"""Of one NVLink in one direction, from the second generation to the fourth; the fifth has twice that."""

_NEAR = ("PIX", "PXB")
"""Paths from a GPU to a card that pass switches of PCIe alone."""

_ARCHITECTURES = {70: "v100", 80: "a100", 90: "h100", 100: "b200"}
"""Device types by NVIDIA's compute capability, times ten."""


@dataclass
class FoundTopology:
    """What files say of a cluster.

    Attributes:
        keys: of ``topology:``, each with its value and a comment; None where only the comment is known.
        device: type of the GPUs, where a file tells.
    """

    keys: dict[str, tuple[float | int | None, str]] = field(default_factory=dict)
    device: str | None = None


def read_topology(texts: Sequence[tuple[str, str]], hosts_in: Callable[[str], list[str]]) -> FoundTopology:
    """What files say of a cluster.

    Args:
        texts: names of files and their contents; of one key the last file counts.
        hosts_in: the names in a list of hosts as Slurm writes it.

    Raises:
        ClusterError: a file of none of the three forms, or one that tells no GPU and no host.
    """
    found = FoundTopology()
    for name, text in texts:
        try:
            if text.lstrip().startswith("<"):
                _read_nccl(text, found)
            elif re.search(r"^\s*(SwitchName|BlockName)\s*=", text, re.M | re.I):
                _read_slurm(text, found, hosts_in)
            elif re.search(r"^\s*GPU0\b", text, re.M):
                _read_smi(text, found)
            else:
                raise ClusterError("is none of: nvidia-smi topo -m, a topology of NCCL (XML), Slurm's topology.conf")
        except ClusterError as error:
            raise error.at(file=name) from None
    return found


def cluster_yaml(found: FoundTopology, device: DeviceType | None) -> str:
    """The YAML of a cluster; what is not known is a comment.

    Args:
        found: what was read.
        device: type of the GPUs, where it was said; its links' bandwidth counts before that of NVLinks counted.
    """
    keys = dict(found.keys)
    links = "intra_host_bandwidth_gbytes_per_s"
    if device is not None and device.link_bytes_per_s and keys.get(links, (None,))[0] is not None:
        keys[links] = device.link_bytes_per_s / 1e9, f"links of {device.name} in one direction"
    name = found.device if device is None else device.name
    lines = ["# Completed by hand: every key that is a comment is still wanted.", "name: my-cluster"]
    lines += [f"device: {name}" if name else "# device:  # `meshwright list devices`", "topology:", "  kind: clos"]
    for key, told in _WANTED.items():
        value, comment = keys.get(key, (None, told))
        lines.append(f"  # {key}:  # {comment}" if value is None else f"  {key}: {value}  # {comment}")
    return "\n".join(lines) + "\n"


_WANTED = {
    "num_hosts": "hosts of the cluster",
    "devices_per_host": "GPUs of a host",
    "intra_host_bandwidth_gbytes_per_s": "of a GPU to the others of its host, in one direction",
    "intra_host_latency_us": "from GPU to GPU; 0.6 over NVLink",
    "nics_per_host": "network cards that GPUs use",
    "nic_bandwidth_gbytes_per_s": "of a card; 50 is 400 Gbit/s",
    "nic_latency_us": "from GPU to leaf switch; 1.35 over InfiniBand",
    "hosts_per_leaf": "hosts that meet in one set of leaf switches",
    "wiring": "host: all cards of a host in one leaf; rail: card j in leaf j",
    "num_spines": "spine switches",
    "oversubscription": "bandwidth of a leaf down over bandwidth up",
    "spine_latency_us": "from leaf to spine; 0.15",
}
"""The keys of a Clos network in the order in which they are written, and what each is."""


def _read_smi(text: str, found: FoundTopology) -> None:
    """The table of ``nvidia-smi topo -m``; rows and columns are GPUs and cards, cells the path between two."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in text.splitlines()]
    rows = [cells for line in lines if (cells := line.split()) and re.fullmatch(r"GPU[0-9]+|NIC[0-9]+|mlx\w+", cells[0])]
    header = next((line.split() for line in lines if line.split()[:1] == ["GPU0"] and "X" not in line.split()[1:2]), [])
    names = [name for name in header if re.fullmatch(r"GPU[0-9]+|NIC[0-9]+|mlx\w+", name)]
    paths = {cells[0]: dict(zip(names, cells[1:], strict=False)) for cells in rows if cells != header and len(cells) > len(names)}
    gpus = [name for name in names if name.startswith("GPU")]
    if not gpus or any(gpu not in paths for gpu in gpus):
        raise ClusterError("is no whole table of nvidia-smi topo -m: a GPU of its header has no row", field="GPU0")
    cards = [name for name in names if name not in gpus]
    near = [card for card in cards if any(paths[gpu][card] in _NEAR for gpu in gpus)]
    pairs = Counter(paths[one][other] for one in gpus for other in gpus if one != other)
    _tell_host(found, len(gpus), len(near or cards))
    links = {int(path[2:]) if re.fullmatch("NV[0-9]+", path) else 0 for path in pairs}
    if len(links) == 1 and (count := links.pop()):
        _tell_links(found, count)
    elif pairs:
        told = f"GPUs reach each other by {', '.join(sorted(pairs))}: say what the slowest of these carries"
        found.keys["intra_host_bandwidth_gbytes_per_s"] = None, told


def _read_nccl(text: str, found: FoundTopology) -> None:
    """NCCL's ``<system>``: GPUs with their NVLinks, and network cards with their speed in Mbit/s."""
    if "<!" in text.replace("<!--", ""):
        raise ClusterError("defines entities, which no topology of NCCL does")
    try:
        system = ElementTree.fromstring(text)  # noqa: S314 - without entities
    except ElementTree.ParseError as error:
        raise ClusterError(f"not valid XML: {error}") from None
    gpus, cards = list(system.iter("gpu")), list(system.iter("net"))
    if not gpus:
        raise ClusterError("tells no GPU", field="system")
    try:
        links = {sum(int(link.get("count", "1")) for link in gpu.iter("nvlink")) for gpu in gpus}
        speeds = {float(card.get("speed", "0")) for card in cards}
        kinds = {int(gpu.get("sm", "0")) for gpu in gpus}
    except ValueError as error:
        raise ClusterError(f"a count or speed is no number: {error}", field="system") from None
    _tell_host(found, len(gpus), len(cards))
    if len(links) == 1 and (count := links.pop()):
        _tell_links(found, count, 2.0 if min(kinds) >= 100 else 1.0)
    if speeds and min(speeds) > 0:
        found.keys["nic_bandwidth_gbytes_per_s"] = min(speeds) / 8e3, f"{min(speeds) / 1e3:g} Gbit/s"
    if len(kinds) == 1:
        found.device = _ARCHITECTURES.get(kinds.pop())


def _read_slurm(text: str, found: FoundTopology, hosts_in: Callable[[str], list[str]]) -> None:
    """Slurm's switches or blocks: those with nodes are leaves, those above them spines."""
    leaves: list[list[str]] = []
    num_above = 0
    for line in text.replace("\\\n", " ").splitlines():
        words = {key.lower(): value for key, _, value in (word.partition("=") for word in line.partition("#")[0].split())}
        if "nodes" in words:
            leaves.append(hosts_in(words["nodes"]))
        elif "switches" in words:
            num_above += 1
    hosts = {host for leaf in leaves for host in leaf}
    if not hosts:
        raise ClusterError("tells no Nodes of a switch or block", field="Nodes")
    found.keys["num_hosts"] = len(hosts), f"below {len(leaves)} switches or blocks"
    found.keys["hosts_per_leaf"] = max(map(len, leaves)), "of the largest one"
    if num_above:
        found.keys["num_spines"] = num_above, "switches above others"


def _tell_host(found: FoundTopology, num_gpus: int, num_cards: int) -> None:
    found.keys["devices_per_host"] = num_gpus, "GPUs"
    if num_cards:
        found.keys["nics_per_host"] = num_cards, f"{num_cards / num_gpus:g} for each GPU"


def _tell_links(found: FoundTopology, count: int, factor: float = 1.0) -> None:
    each = factor * LINK_GBYTES_PER_S
    told = f"{count} NVLinks of {each:g} GB/s in one direction" + ("; those of Blackwell carry 50" if factor == 1 else "")
    found.keys["intra_host_bandwidth_gbytes_per_s"] = count * each, told
    found.keys["intra_host_latency_us"] = 0.6, "one hop of NVLink"
