"""Published step times as rows: a model, a cluster, a layout with the keys that its source leaves open, and the measurement.

Two forms are read. JSON or YAML: ``{"rows": [{"id", "family", "model", "cluster", "layout", "measured", "source", ...}]}``,
where ``null`` in ``layout`` means that the source does not print the field. CSV: the single-host table of vTrain, recognised by
its header. A row that cannot be priced has the reason, and the others are read. Notes of a row list assumptions about missing
keys, and entries that are not read.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from .... import files, quantities, yaml12
from ....costs.process_groups.group_network import HostNetwork
from ....devices import DeviceType, device_names, device_type, is_variant
from ....errors import InputFileError, MeshwrightError
from ....jobs.transformer import ModelConstants
from ....packaged import Shipped
from ....planners.layouts.space import divisors
from .published_runs import LLAMA, as_published, year_of
from .published_step import PublishedStep, gpt

GIB = 2.0**30

VTRAIN_COLUMNS = (
    "# GPUs",
    "global batch",
    "micro batch",
    "hidden size",
    "attention heads",
    "# layers",
    "sequence length",
    "tensor parallelism",
    "data parallelism",
    "pipeline parallelism",
    "iteration time (ms)",
)
VTRAIN_VOCABULARY = 51_200
"""The table names no vocabulary: GPT-2's 50,257 tokens padded as Megatron-LM pads them for eight ranks. The source's
configurations of these rows recompute activations (config/validation/single, ``use_checkpoint``)."""

VTRAIN_LAYOUT = {"schedule": "1f1b", "virtual_stages": 1, "recompute": "full", "attention": "unfused", "precision": "fp16"}
VTRAIN_LAYOUT |= dict.fromkeys(("fp32_gradients", "async_gradients", "fused_accumulation"), False)
VTRAIN_SOURCE = "Bang et al., vTrain, arXiv 2312.12391"
VTRAIN_CLUSTER: dict[str, Any] = {"device": "a100", "devices_per_host": 8, "nics_per_host": 1, "nic_gbit_per_s": 800}
"""Hosts of eight A100; all cards of one together send 800 Gbit/s, half of a DGX A100's. Source: VIA-Research/vTrain at f8dda84,
config/validation/multi: ``node_size`` 8, ``inter_node_bandwidth`` 800, "total bandwidth of inter-node communication in Gbps" by
src/config.py."""

VTRAIN_HOSTS_FAMILY = "vtrain-multi-host"

CALIBRATION_HIDDEN = 1024
CALIBRATION_FAMILY = " (calibration)"
"""Rows of one host of that hidden size are part of the calibration set; what is said of their family is no validation."""

COUNTS = ("tp", "pp", "dp", "cp", "ep", "virtual_stages", "micro_batch", "global_batch")

PCIE_BYTES_PER_S = {"v100": 15.75e9, "a100": 31.5e9, "a800": 31.5e9}
"""PCIe 3.0 and 4.0 x16, one direction (PCI-SIG), of cards for PCIe of devices that otherwise have NVLink; 5.0 of others."""

NVLINK_DOMAINS = {"gb200": (4, 72), "gb300": (4, 72)}
"""Devices of a host, and of all hosts that one NVLink fabric joins (NVIDIA, "GB200 NVL72" and "GB300 NVL72" data sheets)."""

CARDS = {"v100": (0.5, 100.0), "a100": (1.0, 200.0), "a800": (1.0, 200.0), "l40s": (1.0, 200.0)}
"""Network cards for each device and their Gbit/s where a source prints none. One of 400 for each device as in a DGX H100, H200
or B200, of 200 as in a DGX A100. Four of 100 for eight devices as in a DGX-1 (NVIDIA's user guides); for an L40S an assumption.
"""

SOLD_AS = 0.1
"""By how much at most the memory that a device is sold with differs from what its driver reports."""

FUSED_ATTENTION_SINCE = 2023
ASYNC_GRADIENTS_SINCE = 2022
FUSED_ACCUMULATION_SINCE = 2022
UNEVEN_ROUNDS_SINCE = 2024
ASYNC_TP_SINCE = 2025
"""Year from which a source's software is assumed to have a feature that rows do not mention. FlashAttention came to Megatron-LM
in January 2023. Sums of input gradients during weight gradients, and weight gradients that add to the sum by themselves, came
with version 3.0 in early 2022. Interleaved schedules whose stages do not divide the micro-batches came with Megatron Core 0.9
and PyTorch 2.5 in 2024. PyTorch's async tensor parallelism came with 2.6 in January 2025."""

PEAKS = {
    "peak_tflops_per_s": ("peak_flops_per_s", 1e12),
    "memory_bandwidth_gbytes_per_s": ("memory_bandwidth_bytes_per_s", 1e9),
    "power_watts": ("power_watts", 1.0),
}
"""Figures of a device that a row may give in place of the data sheet's, as of cards held to less power."""

READ = {
    "": {"id", "family", "model", "cluster", "layout", "measured", "source", "software", "not_printed", "note"},
    "model": {"layers", "hidden", "heads", "vocab", "sequence", "parameters_billion", "name", "activation"},
    "cluster": {"device", "devices_per_host", "num_devices", "host_link", "nics_per_host", "nic_gbit_per_s", "name", *PEAKS},
}
"""Keys of a row that are read, or say nothing that a price depends on; `MODEL_KEYS` and `MODEL_FLAGS` too."""

MODEL_KEYS = {
    "kv_heads": "num_key_value_heads",
    "num_key_value_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "feed_forward": "feed_forward",
    "ffn": "feed_forward",
    "ffn_hidden": "feed_forward",
    "experts": "num_experts",
    "num_experts": "num_experts",
    "top_k": "experts_per_token",
    "experts_per_token": "experts_per_token",
    "window": "window",
}
MODEL_FLAGS = {
    "gated": "is_gated",
    "parallel_block": "is_parallel",
    "tied_head": "is_head_tied",
    "dropout": "has_dropout",
}
"""Optional keys of a model, and their names in a shape."""


MEASURED_STEPS = Shipped("measured_steps", "the name of a device whose steps come measured")
"""Steps that `benchmarks.gpu.steps` timed."""


def read_rows(path: str | Path) -> list[PublishedStep]:
    """Return the rows of a file of either form, or of a device whose steps come measured.

    Args:
        path: of the file, or the name of the device.

    Raises:
        InputFileError: missing, or neither form.
    """
    path = MEASURED_STEPS.path(str(path))
    if path.suffix.lower() == ".csv":
        return _vtrain(path)
    data = yaml12.parse(files.read_text(path), file=path)[0] if path.suffix in (".yaml", ".yml") else files.read_json(path)
    rows = data.get("rows") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not rows:
        raise InputFileError("holds no list of rows", file=path, field="rows")
    return [_published(row, number) for number, row in enumerate(rows)]


def _published(row: Any, number: int) -> PublishedStep:
    named = row if isinstance(row, dict) else {}
    name, family = str(named.get("id") or f"row {number}"), str(named.get("family") or "without a family")
    try:
        if not named:
            raise _UnsupportedError(f"must be a mapping of keys, got {row!r}")
        for key in ("id", "family", "model", "cluster", "layout", "measured"):
            if key not in named:
                raise _UnsupportedError(f"{key}: the key is missing")
            if key in ("model", "cluster", "layout", "measured") and not isinstance(named[key], dict):
                raise _UnsupportedError(f"{key}: must be a mapping of keys, got {named[key]!r}")
        return _supported(named, name, family)
    except (_UnsupportedError, MeshwrightError) as problem:
        return _refused(name, family, str(problem))


def _refused(name: str, family: str, problem: str) -> PublishedStep:
    return PublishedStep(name, family, None, 0, None, None, unsupported=problem)


class _UnsupportedError(Exception):
    """Why a row cannot be priced."""


def _supported(row: dict[str, Any], name: str, family: str) -> PublishedStep:
    unread = _unread(row)
    row, of_source = as_published(row, name, family)
    measured_s = _number(row["measured"], "step_time_s", "measured")
    peaks = [
        _number(row["measured"], key, "measured") * GIB if key in row["measured"] else None
        for key in ("allocated_gib", "peak_memory_gib")
    ]
    model, cluster, layout_keys = row["model"], row["cluster"], dict(row["layout"])
    layers, hidden, heads, vocabulary, length = (
        _whole(model, key, "model") for key in ("layers", "hidden", "heads", "vocab", "sequence")
    )
    if hidden % heads:
        raise _UnsupportedError(f"{heads} heads do not divide the hidden width {hidden}")
    year = year_of(str(row.get("source") or "") + " " + str(row.get("family") or ""))
    shape = gpt(layers, hidden, heads, vocabulary, length, **_more(model))
    device = _device(cluster)
    wires, notes = _wires(cluster)
    layout = {key: value for key, value in layout_keys.items() if key not in ("overlap_dp",) or value is not None}
    for key in COUNTS:
        if layout.get(key) is not None:
            layout[key] = _whole(layout, key, "layout")
    if isinstance(layout.get("schedule"), str):
        layout["schedule"] = layout["schedule"].lower()
    if layout.get("schedule") == "1f1b" and (layout.get("virtual_stages") or 1) > 1:
        layout["schedule"] = "interleaved"  # Megatron-LM's own name for it is interleaved 1F1B
    if layout.get("schedule") == "none" and layout.get("pp") not in (1, None):
        layout["schedule"] = None
    defaults = {
        "attention": "fused" if year >= FUSED_ATTENTION_SINCE else "unfused",
        "async_gradients": year >= ASYNC_GRADIENTS_SINCE,
        "fused_accumulation": year >= FUSED_ACCUMULATION_SINCE,
    }
    layout = defaults | layout
    num_devices = _whole(cluster, "num_devices", "cluster")
    layout["num_devices"] = num_devices
    work = (layers, hidden, heads, vocabulary, length, layout.get("global_batch"))
    group = (family, name.split("-")[0], num_devices, *work)
    remarks, software = (*notes, *unread, *of_source), str(row.get("software") or "") or None
    return PublishedStep(
        name, family, shape, length, device, wires, layout, measured_s, group, year, software, remarks, None, *peaks
    )


def _unread(row: dict[str, Any]) -> list[str]:
    """Return a note on each key that nothing is made of; unknown keys of a layout are refused instead."""
    known = READ | {"model": READ["model"] | set(MODEL_KEYS) | set(MODEL_FLAGS)}
    parts = (("", row), ("model", row["model"]), ("cluster", row["cluster"]))
    results = [f"{where}.{key}".lstrip(".") for where, part in parts for key in part if key not in known[where]]
    return [f"{key} is not read" for key in results]


def _more(model: dict[str, Any]) -> dict[str, Any]:
    """Return the optional keys of a model."""
    more: dict[str, Any] = dict(LLAMA) if model.get("gated") is True else {}
    more |= {
        MODEL_KEYS[key]: _whole(model, key, "model") for key, value in model.items() if key in MODEL_KEYS and value is not None
    }
    for key, name in MODEL_FLAGS.items():
        value = model.get(key)
        if value is not None and not isinstance(value, bool):
            raise _UnsupportedError(f"model.{key} must be true or false, got {value!r}")
        if value is not None:
            more[name] = value
    if (activation := model.get("activation")) is not None:
        more["constants"] = ModelConstants(activation=str(activation))
    return more


def _device(cluster: dict[str, Any]) -> DeviceType:
    """Return the device type that a name such as ``a100-80gb`` means; its memory as the driver reports it, where known."""
    spelled = str(cluster.get("device") or "").lower()
    base = _base(spelled)
    if base not in device_names():
        raise _UnsupportedError(f"no such device type: {spelled or 'none named'} (known: {', '.join(device_names())})")
    result = device_type(base)
    size = re.search("([0-9]+)\\s*gi?b", spelled)
    try:
        gib = quantities.whole(size.group(1), "memory_gib") if size else result.memory_bytes / GIB
    except ValueError as error:
        raise _UnsupportedError(f"the memory of {spelled} {error}") from None
    variant = f"{'a100' if base == 'a800' else base}-{gib:.0f}gb"
    if variant in device_names():
        other = device_type(variant)
        result = replace(result, memory_bytes=other.memory_bytes, memory_bandwidth_bytes_per_s=other.memory_bandwidth_bytes_per_s)
    data = result.__dict__ | ({} if abs(gib * GIB / result.memory_bytes - 1) < SOLD_AS else {"memory_bytes": gib * GIB})
    options = {
        name: _number(cluster, key, "cluster") * unit for key, (name, unit) in PEAKS.items() if cluster.get(key) is not None
    }
    return DeviceType(**(data | options))


def _base(spelled: str) -> str:
    """Return the part of a device's name that says which one it is: ``a100`` of ``nvidia a100-sxm4-80gb``."""
    known = [word for word in re.findall(r"[a-z]+\d+[a-z]*", spelled) if word in device_names()]
    known += [name for name in device_names() if "-" in name and is_variant(name, spelled)]
    return known[0] if known else ""


def _wires(cluster: dict[str, Any]) -> tuple[HostNetwork, list[str]]:
    """Return the hosts and cards, with a note on each thing that the source does not print and a price depends on."""
    notes: list[str] = []
    device = _base(str(cluster.get("device") or "").lower())
    said = str(cluster.get("host_link") or "").lower()
    links, link = device_type(device).host_links
    if "pci" in said and links != "pcie":
        links, link = "pcie", PCIE_BYTES_PER_S.get(device, 63e9)
    per_host, domain = NVLINK_DOMAINS.get(device, (8, 1))
    share, rate = CARDS.get(device, (1.0, 400.0))
    if cluster.get("devices_per_host") is not None:
        per_host = _whole(cluster, "devices_per_host", "cluster")
    elif _whole(cluster, "num_devices", "cluster") > per_host:
        notes.append(f"cluster.devices_per_host is not printed: {per_host}" + f", NVLink joins {domain}" * (domain > 1))
    is_spread = _whole(cluster, "num_devices", "cluster") > per_host
    cards = max(1, round(share * per_host))
    if cluster.get("nics_per_host") is not None:
        cards = _whole(cluster, "nics_per_host", "cluster")
    elif is_spread:
        each = "one for each device" if share == 1 else "one for two devices"
        notes.append(f"cluster.nics_per_host is not printed: {cards}, {each} as in a DGX")
    if cluster.get("nic_gbit_per_s") is not None:
        rate = _number(cluster, "nic_gbit_per_s", "cluster")
    elif is_spread:
        notes.append(f"cluster.nic_gbit_per_s is not printed: {rate:g}, as in a DGX with {device} devices")
    if "switch" in said and links == "cube mesh":
        links = "nvswitch"
    # Racks are taken evenly: 128 devices are 64 of each of two.
    even = (one for one in divisors(_whole(cluster, "num_devices", "cluster")) if one <= domain and one % per_host == 0)
    joined = max(even, default=per_host)
    return HostNetwork(joined, link, joined // per_host * cards * rate * 1e9 / 8, links), notes


def _number(data: dict[str, Any], key: str, where: str) -> float:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise _UnsupportedError(
            f"{where}.{key} is not printed" if value is None else f"{where}.{key} must be a positive number, got {value!r}"
        )
    if (problem := quantities.problem(key, value)) is not None:
        raise _UnsupportedError(f"{where}.{key} {problem}, got {value:g}")
    return float(value)


def _whole(data: dict[str, Any], key: str, where: str) -> int:
    value = _number(data, key, where)
    if value != int(value):
        raise _UnsupportedError(f"{where}.{key} must be a whole number, got {value!r}")
    return int(value)


def _vtrain(path: Path) -> list[PublishedStep]:
    table = files.read_csv(path)
    header = [cell.strip() for cell in next(table, (1, []))[1]]
    if missing := [name for name in VTRAIN_COLUMNS if name not in header]:
        raise InputFileError("the header is not that of vTrain's", file=path, line=1, field=missing[0], choices=header)
    places = [header.index(name) for name in VTRAIN_COLUMNS]
    notes = tuple(f"column {name!r} is not read" for name in header if name not in VTRAIN_COLUMNS)
    rows = []
    for line, cells in table:
        if not any(cells):
            continue
        try:
            if len(cells) != len(header):
                raise ValueError
            *counts, time_ms = (cells[place] for place in places)
            devices, batch, micro, hidden, heads, layers, length, tp, dp, pp = sizes = [*map(quantities.whole, counts)]
            measured_s = quantities.number(time_ms, "ms") / 1e3
        except ValueError:
            rows.append(_refused(f"line {line}", "vtrain", f"{len(header)} numbers are wanted, got {','.join(cells)!r}"))
            continue
        family = f"vtrain-h{hidden}" + (CALIBRATION_FAMILY if hidden == CALIBRATION_HIDDEN else "")
        if devices > VTRAIN_CLUSTER["devices_per_host"]:
            family = VTRAIN_HOSTS_FAMILY
        grid = {"tp": tp, "dp": dp, "pp": pp, "micro_batch": micro, "global_batch": batch}
        row = {
            "model": {"layers": layers, "hidden": hidden, "heads": heads, "vocab": VTRAIN_VOCABULARY, "sequence": length},
            "cluster": VTRAIN_CLUSTER | {"num_devices": devices},
            "layout": grid | VTRAIN_LAYOUT,
            "measured": {"step_time_s": measured_s},
            "source": VTRAIN_SOURCE,
        }
        name = f"h{hidden}-l{layers}-tp{tp}-dp{dp}-pp{pp}-mb{micro}-gb{batch}"
        try:
            if min(sizes) < 1 or not measured_s > 0:
                raise _UnsupportedError(f"positive numbers are wanted, got {','.join(cells)!r}")
            rows.append(replace(_supported(row, name, family), notes=notes))
        except (_UnsupportedError, MeshwrightError) as problem:
            rows.append(_refused(f"line {line}", family, str(problem)))
    if not rows:
        raise InputFileError("holds no rows", file=path)
    return rows
