"""A measured training step: a model, a cluster, a layout with what its source leaves open, and what was measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ....costs.process_groups.group_network import HostNetwork
from ....devices import DeviceType
from ....jobs.transformer import TransformerShape


@dataclass(frozen=True)
class PublishedStep:
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
        year: of the source; the present if unknown.
        software: the framework that ran it, where the row says so.
        notes: assumptions, and entries of the row that are not read.
        unsupported: why the row cannot be priced.
        allocated_bytes: tensors of the fullest rank, as PyTorch's allocator gave them out; None if unknown.
        held_bytes: what that allocator held, more than it gave out; None if unknown.
    """

    name: str
    family: str
    shape: TransformerShape | None
    sequence_length: int
    device: DeviceType | None
    wires: HostNetwork | None
    layout: dict[str, Any] = field(default_factory=dict)
    measured_s: float = 0.0
    group: tuple[Any, ...] = ()
    year: int = 2026
    software: str | None = None
    notes: tuple[str, ...] = ()
    unsupported: str | None = None
    allocated_bytes: float | None = None
    held_bytes: float | None = None


def gpt(layers: int, hidden: int, heads: int, vocabulary: int, sequence_length: int, **more: Any) -> TransformerShape:
    """Return a GPT as Megatron-LM builds it: learned positions, biases, dropout, a tied head; ``more`` overrides."""
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
