"""Published step times as rows: a model, a cluster, a layout with what its source leaves open, and what was measured.

Two forms are read. JSON: ``{"rows": [{"id", "family", "model", "cluster", "layout", "measured", "source", ...}]}``, where
``null`` in ``layout`` means that the source does not print the field. CSV: the single-host table of vTrain, told by its
header. A row that cannot be priced keeps the reason.
"""

from __future__ import annotations

import csv
import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import files
from ..costs.layouts.wires import Wires
from ..devices import DeviceType, device_names, device_type
from ..errors import InputFileError, MeshwrightError
from ..jobs.transformer import TransformerShape

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
"""The table names no vocabulary: GPT-2's 50,257 tokens padded as Megatron-LM pads them for eight ranks."""

CALIBRATION_HIDDEN = 1024
CALIBRATION_FAMILY = " (calibration)"
"""Rows of that hidden size are part of the calibration set; what is said of their family is no validation."""

COUNTS = ("tp", "pp", "dp", "cp", "ep", "virtual_stages", "micro_batch", "global_batch")

LINK_BYTES_PER_S = {"v100": 150e9, "a100": 300e9, "a800": 200e9, "h100": 450e9, "h800": 200e9, "h200": 450e9}
"""NVLink of a device, one direction (NVIDIA's data sheets)."""

PCIE_BYTES_PER_S = 12e9
"""PCIe 3.0 x16 as NCCL counts it (NVIDIA/nccl, src/graph/topo.h)."""

FUSED_ATTENTION_SINCE = 2023
ASYNC_GRADIENTS_SINCE = 2022
FUSED_ACCUMULATION_SINCE = 2022
"""From which year on a source's software is taken to have what a row cannot say. FlashAttention came to Megatron-LM in
January 2023; sums of input gradients beside weight gradients, and weight gradients that add to the sum by themselves, with
version 3.0 in early 2022."""


@dataclass(frozen=True)
class Row:
    """One measured step.

    Attributes:
        name: of the row.
        family: for the summary.
        shape: the model; None where the row is unsupported.
        sequence_length: tokens of a sequence.
        device: the accelerator.
        wires: hosts and cards.
        layout: keys of `Layout`; None where the source leaves one open.
        measured_s: seconds of a step.
        group: rows that could have been chosen instead of each other have the same.
        unsupported: why the row cannot be priced.
    """

    name: str
    family: str
    shape: TransformerShape | None
    sequence_length: int
    device: DeviceType | None
    wires: Wires | None
    layout: dict[str, Any] = field(default_factory=dict)
    measured_s: float = 0.0
    group: tuple[Any, ...] = ()
    unsupported: str | None = None


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a file of either form.

    Raises:
        InputFileError: missing, neither form, or a row that lacks what every row has.
    """
    path = Path(path)
    if path.suffix.lower() == ".csv":
        return _vtrain(path)
    data = files.read_json(path)
    rows = data.get("rows") if isinstance(data, dict) else None
    if not isinstance(rows, list) or not rows:
        raise InputFileError("holds no list of rows", file=path, field="rows")
    return [_published(row, number, path) for number, row in enumerate(rows)]


def gpt(layers: int, hidden: int, heads: int, vocabulary: int, sequence_length: int, **more: Any) -> TransformerShape:
    """A GPT as Megatron-LM builds it: learned positions, biases, dropout, a tied head; ``more`` overrides."""
    keys: dict[str, Any] = {
        "name": f"gpt-{layers}x{hidden}",
        "num_layers": layers,
        "hidden": hidden,
        "num_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": hidden // heads,
        "feed_forward": 4 * hidden,
        "vocabulary": vocabulary,
        "max_positions": sequence_length,
        "learned_positions": True,
        "is_gated": False,
        "qkv_bias": True,
        "output_bias": True,
        "mlp_bias": True,
        "norm_vectors": 2,
        "is_head_tied": True,
        "has_dropout": True,
    }
    return TransformerShape(**(keys | more))


def _published(row: Any, number: int, path: Path) -> Row:
    where = f"rows.{number}"
    if not isinstance(row, dict):
        raise InputFileError("must be a mapping of keys", file=path, field=where, value=type(row).__name__)
    for key in ("id", "family", "model", "cluster", "layout", "measured"):
        if key not in row:
            raise InputFileError("the key is missing", file=path, field=f"{where}.{key}")
        if key in ("model", "cluster", "layout", "measured") and not isinstance(row[key], dict):
            raise InputFileError("must be a mapping of keys", file=path, field=f"{where}.{key}")
    name, family = str(row["id"]), str(row["family"])
    try:
        return _supported(row, name, family)
    except (_UnsupportedError, MeshwrightError) as problem:
        return Row(name, family, None, 0, None, None, unsupported=str(problem))


class _UnsupportedError(Exception):
    """Why a row cannot be priced."""


def _supported(row: dict[str, Any], name: str, family: str) -> Row:
    measured_s = _number(row["measured"], "step_time_s", "measured")
    model, cluster, given = row["model"], row["cluster"], dict(row["layout"])
    layers, hidden, heads, vocabulary, length = (
        _whole(model, key, "model") for key in ("layers", "hidden", "heads", "vocab", "sequence")
    )
    if hidden % heads:
        raise _UnsupportedError(f"{heads} heads do not divide the hidden width {hidden}")
    year = _year(str(row.get("source") or "") + " " + str(row.get("family") or ""))
    shape = gpt(layers, hidden, heads, vocabulary, length, name=name, **_more(model))
    device, wires = _device(cluster), _wires(cluster)
    layout = {key: value for key, value in given.items() if key not in ("overlap_dp",) or value is not None}
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
    return Row(name, family, shape, length, device, wires, layout, measured_s, group)


def _more(model: dict[str, Any]) -> dict[str, Any]:
    """What a model says beyond the keys that all have."""
    names = {
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
    more: dict[str, Any] = {
        names[key]: _whole(model, key, "model") for key, value in model.items() if key in names and value is not None
    }
    for key, name in (("gated", "is_gated"), ("parallel_block", "is_parallel")):
        if model.get(key) is not None:
            more[name] = bool(model[key])
    return more


def _device(cluster: dict[str, Any]) -> DeviceType:
    """The device type that a name such as ``a100-80gb`` means, with its memory in GiB."""
    spelled = str(cluster.get("device") or "").lower()
    base = _base(spelled)
    if base not in device_names():
        raise _UnsupportedError(f"no such device type: {spelled or 'none named'} (known: {', '.join(device_names())})")
    found = device_type(base)
    size = re.search(r"(\d+)\s*gi?b", spelled)
    memory = (int(size.group(1)) if size else found.memory_bytes / 1e9) * GIB
    data = found.__dict__ | {"memory_bytes": memory}
    return DeviceType(**data)


def _base(spelled: str) -> str:
    """The part of a device's name that says which one it is: ``a100`` of ``nvidia a100-sxm4-80gb``."""
    known = [word for word in re.findall(r"[a-z]+\d+[a-z]*", spelled) if word in device_names() or word in LINK_BYTES_PER_S]
    return known[0] if known else ""


def _wires(cluster: dict[str, Any]) -> Wires:
    link = LINK_BYTES_PER_S.get(_base(str(cluster.get("device") or "").lower()), 300e9)
    if "pci" in str(cluster.get("host_link") or "").lower():
        link = PCIE_BYTES_PER_S
    per_host, cards, rate = 8, 1, 100.0  # where the source does not say
    if cluster.get("devices_per_host") is not None:
        per_host = _whole(cluster, "devices_per_host", "cluster")
    if cluster.get("nics_per_host") is not None:
        cards = _whole(cluster, "nics_per_host", "cluster")
    if cluster.get("nic_gbit_per_s") is not None:
        rate = _number(cluster, "nic_gbit_per_s", "cluster")
    switched = "switch" in str(cluster.get("host_link") or "").lower() or link != LINK_BYTES_PER_S["v100"]
    return Wires(per_host, link, cards * rate * 1e9 / 8, "nvswitch" if switched else "cube mesh")


def _year(text: str) -> int:
    """The year of a source, by its arXiv number or a four-digit year; the present where it has neither."""
    arxiv = re.search(r"\b(\d\d)(\d\d)\.\d{4,5}\b", text)
    if arxiv:
        return 2000 + int(arxiv.group(1))
    years = [int(found) for found in re.findall(r"\b(20[12]\d)\b", text)]
    return min(years) if years else 2026


def _number(data: dict[str, Any], key: str, where: str) -> float:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise _UnsupportedError(
            f"{where}.{key} is not printed" if value is None else f"{where}.{key} must be a positive number, got {value!r}"
        )
    return float(value)


def _whole(data: dict[str, Any], key: str, where: str) -> int:
    value = _number(data, key, where)
    if value != int(value):
        raise _UnsupportedError(f"{where}.{key} must be a whole number, got {value!r}")
    return int(value)


def _vtrain(path: Path) -> list[Row]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = list(csv.reader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise InputFileError(f"cannot be read: {error}", file=path) from None
    if not table or tuple(cell.strip() for cell in table[0]) != VTRAIN_COLUMNS:
        raise InputFileError("the header is not that of vTrain's single-host table", file=path, line=1, choices=VTRAIN_COLUMNS)
    rows = []
    device = device_type("a100")
    for line, cells in enumerate(table[1:], start=2):
        if not any(cells):
            continue
        try:
            devices, batch, micro, hidden, heads, layers, length, tp, dp, pp = (int(cell) for cell in cells[:10])
            measured_s = float(cells[10]) / 1e3
        except (ValueError, IndexError):
            raise InputFileError("eleven numbers are wanted", file=path, line=line, value=",".join(cells)) from None
        if min(devices, batch, micro, hidden, heads, layers, length, tp, dp, pp) < 1 or not 0 < measured_s < math.inf:
            raise InputFileError("eleven positive numbers are wanted", file=path, line=line, value=",".join(cells))
        layout = {
            "tp": tp,
            "dp": dp,
            "pp": pp,
            "micro_batch": micro,
            "global_batch": batch,
            "schedule": "1f1b",
            "virtual_stages": 1,
            "recompute": "full",
            "attention": "unfused",
            "precision": "fp16",
            "fp32_gradients": False,
            "async_gradients": False,
            "fused_accumulation": False,
            "num_devices": devices,
        }
        shape = gpt(layers, hidden, heads, VTRAIN_VOCABULARY, length)
        name = f"h{hidden}-l{layers}-tp{tp}-dp{dp}-pp{pp}-mb{micro}-gb{batch}"
        group = (devices, batch, hidden, layers, heads, length)
        family = f"vtrain-h{hidden}" + (CALIBRATION_FAMILY if hidden == CALIBRATION_HIDDEN else "")
        rows.append(Row(name, family, shape, length, device, Wires(8, 300e9, 200e9), layout, measured_s, group))
    if not rows:
        raise InputFileError("holds no rows", file=path)
    return rows
