"""Defaults of frameworks: the keys of a layout where the framework's options do not set them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

FrameworkName = Literal["megatron", "fsdp2", "deepspeed"]
"""Frameworks as which a layout may be priced; `table` knows which layouts they run."""

LauncherName = Literal["megatron", "torchtitan", "deepspeed", "fsdp2"]
"""Launchers for which a plan may be made, see `table.FRAMEWORKS`."""


class Traits(NamedTuple):
    """Properties of a framework's layers on which prices depend.

    Attributes:
        uses_transformer_engine: whether products are cuBLASLt's, experts' products run one by one, and attention is cuDNN's.
        is_plain_pytorch: whether tables are unpadded, unlike Megatron-LM's, biases added inside products, and the loss made of
            PyTorch's operators.
        hides_in_known_runs: whether communication was hidden in the runs that measured its whole steps.
        masks_windows: whether windowed attention computes all pairs and masks some, as models of transformers do.

    Source:
        NVIDIA/Megatron-LM, megatron/core/extensions/transformer_engine.py; NVIDIA/TransformerEngine,
        transformer_engine/pytorch/attention/dot_product_attention/utils.py (``get_attention_backend``).
    """

    uses_transformer_engine: bool = False
    is_plain_pytorch: bool = False
    hides_in_known_runs: bool = False
    masks_windows: bool = False


TRAITS: Mapping[str | None, Traits] = {
    None: Traits(),
    "megatron": Traits(uses_transformer_engine=True),
    "fsdp2": Traits(is_plain_pytorch=True, hides_in_known_runs=True, masks_windows=True),
    "deepspeed": Traits(masks_windows=True),
}
"""Those of each framework, and of a layout that names none."""

EAGER = "eager-1f1b"
"""1F1B with a longer warm-up, in which no stage waits for a transfer while the pipeline is full (Zhuang et al., 2022)."""

BIDIRECTIONAL = ("dualpipe", "dualpipev")
"""Schedules that overlap a forward pass of one direction with a backward pass of the other.

Micro-batches enter from both ends, or go forward and back again.

Source: DeepSeek-AI, "DeepSeek-V3 technical report", 2024, section 3.2.1.
"""

HIDING = (EAGER, *BIDIRECTIONAL)
"""Schedules that are there to hide transfers between stages."""


def framework_defaults(framework: Any, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of a framework as keys of a layout.

    - Megatron-LM hides the transfers of an interleaved schedule and, behind weight gradients, the sum of input gradients over
      ``tp``. It adds weight gradients to the sum inside their product. It hides neither gradients nor tensor parallelism
      (``--overlap-grad-reduce`` and ``--tp-comm-overlap`` are off), but for ZeRO-2 or 3, whose FSDP requires the former.
    - PyTorch's FSDP2 shards every parameter and frees the whole ones after each forward pass; in a pipeline it keeps them, as
      torchtitan does. It fetches the next layer's parameters during computation. It reduces gradients behind the backward pass,
      in float32 under torchtitan. Nothing else is hidden. Without compilation it runs operator by operator.
    - DeepSpeed shards nothing by default, and hides gradients with ZeRO-3 alone (``overlap_comm``).

    Under any framework DualPipe and DualPipeV hide transfers, but not gradients.

    Args:
        framework: one of `FrameworkName`; any other has no defaults.
        keys: the keys that are given.

    Source:
        NVIDIA/Megatron-LM, megatron/training/arguments.py and megatron/core/distributed/custom_fsdp (which asserts
        ``overlap_param_gather`` and ``overlap_grad_reduce``).

        pytorch/pytorch, torch/distributed/fsdp/_fully_shard and torch/distributed/pipelining/schedules.py.

        pytorch/torchtitan, torchtitan/parallelisms/parallelize_llama.py and config_manager.py (``mixed_precision_reduce``).

        microsoft/DeepSpeed, deepspeed/runtime/zero/config.py.
    """
    is_cut = isinstance(keys.get("pp", 1), int) and keys.get("pp", 1) > 1
    chunks = keys.get("virtual_stages", 1)
    hides_transfers = isinstance(chunks, int) and chunks > 1
    none = {"overlap_dp": False, "overlap_tp": False, "overlap_pp": False}
    results: dict[str, dict[str, Any]] = {
        "megatron": none
        | {"overlap_dp": keys.get("zero", 0) in (2, 3), "overlap_pp": hides_transfers}
        | {"async_gradients": True, "fused_accumulation": True},
        "fsdp2": none
        | {"overlap_dp": True, "zero": 2 if is_cut else 3, "async_gradients": False, "fused_accumulation": False}
        | {"compile": False},
        "deepspeed": none | {"overlap_dp": keys.get("zero", 0) == 3},
    }
    values = results.get(framework, {}) if isinstance(framework, str) else {}
    return values | ({"overlap_dp": False, "overlap_pp": True} if values and keys.get("schedule") in BIDIRECTIONAL else {})


def hidden_unrequested(virtual_stages: int, schedule: str = "") -> dict[str, bool]:
    """Return the communication that a layout hides where its text leaves that open, and where layouts are searched.

    By default PyTorch's DDP and FSDP hide the synchronisation of gradients, and Megatron-LM the transfers of an interleaved
    schedule. Eager 1F1B and DualPipe exist to hide transfers. By default nothing hides tensor parallelism. The gradients of
    DualPipe follow its last passes. A `Layout` that is made key by key, or read from a plan, has explicit keys.

    Args:
        virtual_stages: chunks of a stage.
        schedule: as `Layout.schedule`.
    """
    is_cut = isinstance(virtual_stages, int) and virtual_stages > 1
    return {"overlap_dp": schedule not in BIDIRECTIONAL, "overlap_pp": is_cut or schedule in HIDING}
