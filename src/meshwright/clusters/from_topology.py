"""A cluster's YAML, to be completed, from what its machines say of their wiring.

Read are the table of ``nvidia-smi topo -m``, the topology that NCCL writes (``NCCL_TOPO_DUMP_FILE``) and Slurm's
``topology.conf``. The first two are of one host: its GPUs, their links and the cards next to them. The third names the hosts that
share a switch. A key that is in none of them becomes a comment, so that reading the file names what is missing.

Sources:
    nvidia-smi(1), legend of ``topo -m``; NVIDIA/nccl, src/graph/topo.h and xml.cc; topology.conf(5) of Slurm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from xml.etree import ElementTree

from .. import files, packaged
from ..devices import DeviceType
from ..errors import ClusterError

LINK_GBYTES_PER_S = 25.0
"""Of one NVLink in one direction, from the second generation to the fourth; the fifth has twice that."""

LINKS = "intra_host_bandwidth_gbytes_per_s"

_NEAR = ("PIX", "PXB")
"""Paths from a GPU to a card that pass switches of PCIe alone."""

_ARCHITECTURES = {70: "v100", 80: "a100", 90: "h100", 100: "b200"}
"""Device types by NVIDIA's compute capability, times ten."""


Found = dict[str, tuple[float | str | None, str]]
"""Keys of a cluster's YAML, each with its value, None where that is not known, and a comment."""


def read_topology(texts: Sequence[tuple[str, str]], hosts_in: Callable[[str], list[str]]) -> Found:
    """Read the keys of a cluster from descriptions of its hosts and switches.

    Args:
        texts: names of files and their contents; for each key the last file counts.
        hosts_in: the names in a list of hosts as Slurm writes it.

    Raises:
        ClusterError: a file of none of the three forms, or one without a GPU or a host.
    """
    result: Found = {}
    for name, text in texts:
        try:
            if text.lstrip().startswith("<"):
                _read_nccl(text, result)
            elif re.search(r"^\s*(SwitchName|BlockName)\s*=", text, re.M | re.I):
                _read_slurm(text, result, hosts_in)
            elif re.search(r"^\s*GPU0\b", text, re.M):
                _read_smi(text, result)
            else:
                raise ClusterError("is none of: nvidia-smi topo -m, a topology of NCCL (XML), Slurm's topology.conf")
        except ClusterError as error:
            raise error.at(file=name) from None
    return result


def cluster_yaml(result: Found, device: DeviceType | None) -> str:
    """Return the YAML of a cluster; what is not known is a comment.

    Args:
        result: what was read.
        device: type of the GPUs, where it was said; its links' bandwidth counts before that of NVLinks counted.
    """
    if device is not None:
        result = result | {"device": (device.name, "as said")}
        if device.link_bytes_per_s and result.get(LINKS, (None,))[0] is not None:
            result[LINKS] = device.link_bytes_per_s / 1e9, f"links of {device.name} in one direction"
    text = files.read_text(packaged.shipped_path("cluster_template.yaml"), is_input=False)

    def completed(line: re.Match[str]) -> str:
        value, comment = result.get(line["key"], (None, line["comment"]))
        known = f"# {line['key']}:" if value is None else f"{line['key']}: {value}"
        return f"{line['indent']}{known}  # {comment}"

    return re.sub(r"^(?P<indent> *)(?P<key>\w+):  # (?P<comment>.*)$", completed, text, flags=re.M)


def missing_keys(text: str) -> list[str]:
    """Return the keys that `cluster_yaml` has left as comments."""
    return re.findall(r"^ *# (\w+):  #", text, flags=re.M)


def _read_smi(text: str, result: Found) -> None:
    """Read the table of ``nvidia-smi topo -m``; rows and columns are GPUs and cards, cells the path between two."""
    rows = [cells for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines() if (cells := line.split())]
    header = next((cells for cells in rows if cells[0] == "GPU0" and cells[1:2] != ["X"]), [])
    names = [name for name in header if re.fullmatch(r"(GPU|NIC)[0-9]+|mlx\w+", name)]
    paths = {cells[0]: dict(zip(names, cells[1:], strict=False)) for cells in rows if cells != header and len(cells) > len(names)}
    gpus = [name for name in names if name.startswith("GPU")]
    if not gpus or any(gpu not in paths for gpu in gpus):
        raise ClusterError("is no whole table of nvidia-smi topo -m: a GPU of its header has no row", field="GPU0")
    cards = [name for name in names if name not in gpus]
    near = [card for card in cards if any(paths[gpu][card] in _NEAR for gpu in gpus)]
    pairs = {paths[one][other] for one in gpus for other in gpus if one != other}
    if pairs:
        result[LINKS] = None, f"GPUs reach each other by {', '.join(sorted(pairs))}: say what the slowest of these carries"
    links = {int(path[2:]) if re.fullmatch("NV[0-9]+", path) else 0 for path in pairs}
    _read_host(result, len(gpus), len(near or cards), links)


def _read_nccl(text: str, result: Found) -> None:
    """Read NCCL's ``<system>``: GPUs with their NVLinks, and network cards with their speed in Mbit/s."""
    if "<!" in text.replace("<!--", ""):
        raise ClusterError("defines entities, which no topology of NCCL does")
    try:
        system = ElementTree.fromstring(text)  # noqa: S314 - without entities
    except ElementTree.ParseError as error:
        raise ClusterError(f"not valid XML: {error}") from None
    gpus, cards = list(system.iter("gpu")), list(system.iter("net"))
    if not gpus:
        raise ClusterError("names no GPU", field="system")
    try:
        links = {sum(int(link.get("count", "1")) for link in gpu.iter("nvlink")) for gpu in gpus}
        speeds = {float(card.get("speed", "0")) for card in cards}
        kinds = {int(gpu.get("sm", "0")) for gpu in gpus}
    except ValueError as error:
        raise ClusterError(f"a count or speed is no number: {error}", field="system") from None
    _read_host(result, len(gpus), len(cards), links, (2 if min(kinds) >= 100 else 1) * LINK_GBYTES_PER_S)
    if speeds and min(speeds) > 0:
        result["nic_bandwidth_gbytes_per_s"] = min(speeds) / 8e3, f"{min(speeds) / 1e3:g} Gbit/s"
    if len(kinds) == 1:
        result["device"] = _ARCHITECTURES.get(min(kinds)), "by its compute capability"


def _read_slurm(text: str, result: Found, hosts_in: Callable[[str], list[str]]) -> None:
    """Read Slurm's switches or blocks: those with nodes are leaves, those above them spines."""
    leaves, num_above = list[list[str]](), 0
    for line in text.replace("\\\n", " ").splitlines():
        words = {key.lower(): value for key, _, value in (word.partition("=") for word in line.partition("#")[0].split())}
        if "nodes" in words:
            leaves.append(hosts_in(words["nodes"]))
        elif "switches" in words:
            num_above += 1
    hosts = list(dict.fromkeys(host for leaf in leaves for host in leaf))
    if not hosts:
        raise ClusterError("has no Nodes of a switch or block", field="Nodes")
    result["num_hosts"] = len(hosts), f"below {len(leaves)} switches or blocks"
    result["hosts_per_leaf"] = max(map(len, leaves)), "of the largest one"
    if len(hosts) == sum(map(len, leaves)) and all(len(leaf) == len(leaves[0]) >= len(leaves[-1]) for leaf in leaves[:-1]):
        result["host_names"] = str(hosts), "leaf by leaf"
    if num_above:
        result["num_spines"] = num_above, "switches above others"


def _read_host(result: Found, num_gpus: int, num_cards: int, links: set[int], each: float = LINK_GBYTES_PER_S) -> None:
    """Read the keys of a host, by the numbers of NVLinks that its GPUs have, of ``each`` GB/s."""
    result["devices_per_host"] = num_gpus, "GPUs"
    if num_cards:
        result["nics_per_host"] = num_cards, f"{num_cards / num_gpus:g} for each GPU"
    if len(links) == 1 and (count := min(links)):
        result[LINKS] = count * each, f"{count} NVLinks of {each:g} GB/s in one direction; Blackwell's carry 50"
        result["intra_host_latency_us"] = 0.6, "one hop of NVLink"
