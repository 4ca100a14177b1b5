"""What a framework does with a layout unless its options say otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

FrameworkName = Literal["megatron", "fsdp2", "deepspeed"]
"""What a layout may be priced as; `table` knows which layouts they run."""

LauncherName = Literal["megatron", "torchtitan", "deepspeed", "fsdp2"]
"""What a plan may be made for, see `table.FRAMEWORKS`."""


class Traits(NamedTuple):
    """What a framework's layers are made of, as far as prices depend on it.

    Attributes:
        uses_transformer_engine: products of cuBLASLt, those of experts one by one, and attention of cuDNN, not PyTorch's own.
        is_plain_pytorch: tables unpadded, unlike Megatron-LM's, biases added inside products, and a loss of PyTorch's operators.
        hides_in_known_runs: whether the runs that its whole steps are known by hid what they sent.
        masks_windows: whether attention of a window computes all pairs and masks some, as models of transformers do.

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
"""Schedules whose micro-batches enter from both ends, or go there and back again (DeepSeek-AI, "DeepSeek-V3 technical report",
2024, section 3.2.1): a forward pass of the one direction runs beside a backward pass of the other."""

HIDING = (EAGER, *BIDIRECTIONAL)
"""Schedules that are there to hide transfers between stages."""


def framework_defaults(framework: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """What a framework does unless its options say otherwise, as keys of a layout.

    - Megatron-LM hides the transfers of an interleaved schedule, the sum of input gradients over ``tp`` behind weight gradients,
      and adds weight gradients to the sum inside their product; it hides neither gradients nor tensor parallelism
      (``--overlap-grad-reduce`` and ``--tp-comm-overlap`` are off), unless ZeRO-2 or 3, by its own FSDP, asks for it.
    - PyTorch's FSDP2 shards every parameter, frees the whole ones after each forward pass, but keeps them in a pipeline
      (as torchtitan does), fetches the next layer's while one computes and reduces gradients behind the backward pass, in
      float32 as torchtitan asks it to. Nothing else is hidden, and what is not compiled runs operator by operator.
    - DeepSpeed shards nothing unless told to, and hides gradients with ZeRO-3 alone (``overlap_comm``).

    DualPipe and DualPipeV hide transfers, and gradients not, whoever runs them.

    Args:
        framework: one of `FrameworkName`; of any other there are none.
        given: the keys that are given.

    Source:
        NVIDIA/Megatron-LM, megatron/training/arguments.py and megatron/core/distributed/custom_fsdp (which asserts
        ``overlap_param_gather`` and ``overlap_grad_reduce``); pytorch/pytorch, torch/distributed/fsdp/_fully_shard and
        torch/distributed/pipelining/schedules.py; pytorch/torchtitan, torchtitan/parallelisms/parallelize_llama.py and
        config_manager.py (``mixed_precision_reduce``); microsoft/DeepSpeed, deepspeed/runtime/zero/config.py.
    """
    is_cut = isinstance(given.get("pp", 1), int) and given.get("pp", 1) > 1
    chunks = given.get("virtual_stages", 1)
    hides_transfers = isinstance(chunks, int) and chunks > 1
    none = {"overlap_dp": False, "overlap_tp": False, "overlap_pp": False}
    found: dict[str, dict[str, Any]] = {
        "megatron": none
        | {"overlap_dp": given.get("zero", 0) in (2, 3), "overlap_pp": hides_transfers}
        | {"async_gradients": True, "fused_accumulation": True},
        "fsdp2": none
        | {"overlap_dp": True, "zero": 2 if is_cut else 3, "async_gradients": False, "fused_accumulation": False}
        | {"compile": False},
        "deepspeed": none | {"overlap_dp": given.get("zero", 0) == 3},
    }
    told = found.get(framework, {}) if isinstance(framework, str) else {}
    return told | ({"overlap_dp": False, "overlap_pp": True} if told and given.get("schedule") in BIDIRECTIONAL else {})


def hidden_unasked(virtual_stages: int, schedule: str = "") -> dict[str, bool]:
    """The communication that a layout hides where a layout's text leaves it open, and where layouts are searched.

    PyTorch's DDP and FSDP hide the synchronisation of gradients without being asked, and Megatron-LM the transfers of an
    interleaved schedule; eager 1F1B and DualPipe are there to hide them; nothing hides tensor parallelism unasked. The gradients
    of DualPipe go behind its last passes. A `Layout` that is made key by key, or read from a plan, hides what it says.

    Args:
        virtual_stages: chunks of a stage.
        schedule: as `Layout.schedule`.
    """
    is_cut = isinstance(virtual_stages, int) and virtual_stages > 1
    return {"overlap_dp": schedule not in BIDIRECTIONAL, "overlap_pp": is_cut or schedule in HIDING}
