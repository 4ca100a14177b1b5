"""The layouts that PyTorch's FSDP2 runs by itself, and how it runs them; all else is the script's.

Source:
    The documentation of ``torch.distributed.fsdp.fully_shard`` and ``MixedPrecisionPolicy`` in PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .limits import Framework, Limit
from .numbering import in_any_order
from .shared_limits import always, no_other_zero_1, one_grid, priced_as


def as_cut(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return FSDP2's parameters and sums, and products of PyTorch's own; whether they are compiled is the script's."""
    return {"framework": "fsdp2", "async_gradients": False, "fused_accumulation": False}


FSDP2 = Framework(
    name="fsdp2",
    title="FSDP2",
    default="fsdp",
    numbering=in_any_order,
    needs_layers=True,
    zero_stages=(2, 3),
    as_cut=as_cut,
    limits=(
        *one_grid("FSDP2"),
        priced_as("FSDP2", "fsdp2"),
        *(
            Limit(axis, "fully_shard cuts by data alone; torchtitan joins it with other axes", (1,))
            for axis in ("tp", "cp", "pp", "ep")
        ),
        Limit("precision", "FSDP2 casts by a policy of its own", ("bf16", "fp16", "fp32", "fp8")),
        Limit("offload", "FSDP2 offloads parameters with the optimizer (CPUOffloadPolicy), which has no price", ("none",)),
        no_other_zero_1("FSDP2"),
        *always("FSDP2", async_gradients=False, fused_accumulation=False),
        Limit(
            "zero",
            "fully_shard is ZeRO stage 3, or 2 with reshard_after_forward=False",
            (2, 3),
            lambda case: case.layout.copies > 1,
        ),
    ),
)
