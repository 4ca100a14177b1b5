"""What a layout that FSDP2 runs by itself asks of ``torch.distributed.fsdp.fully_shard``, as lines of ``mesh.py``.

Source:
    The documentation of ``fully_shard`` and ``MixedPrecisionPolicy`` in PyTorch 2.13: a mesh of one dimension shards over all of
    it, of two over the second; ``reshard_after_forward=False`` keeps parameters whole until the backward pass, ZeRO stage 2.
"""

from __future__ import annotations

from ...plans.partition import Layout

_SCRIPT = (
    *("micro_batch", "num_micro_batches", "recompute", "recompute_method", "recompute_num_layers", "precision", "attention"),
    *("compile", "loss_chunks"),
)
"""What of a layout is not sharding."""

_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp8": "bfloat16"}


def fully_shard_text(layout: Layout | None) -> str:
    """The lines; none where the layout is another framework's, or cuts along other axes than those of data."""
    if layout is None or layout.framework != "fsdp2" or layout.world != layout.dp or layout.zero not in (2, 3):
        return ""
    keys = {key: getattr(layout, key) for key in _SCRIPT}
    told = "".join(f"    {key!r}: {value!r},\n" for key, value in keys.items()).replace("'", '"')
    dtype = _DTYPES[layout.precision]
    sums = "float32" if layout.gradient_bytes == 4 else dtype
    return _TEXT.format(told=told, shards=layout.num_shards, reshards=layout.zero == 3, dtype=dtype, sums=sums)


_TEXT = '''
# What the plan asks of the script beside sharding, by keys of its layout; compile: None is as the script does.
SCRIPT = {{
{told}}}


def fully_shard_arguments(device_type="cuda"):
    """Keyword arguments of torch.distributed.fsdp.fully_shard, of each block and then of the model.

    Every rank must call this once, after init_process_group.
    """
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy

    ranks = [rank for rank, _, _ in sorted(RANKS, key=lambda one: one[2]["dp"])]
    groups = [ranks[first : first + {shards}] for first in range(0, len(ranks), {shards})]
    names = ("dp_replicate", "dp_shard")
    mesh = _mesh(device_type, groups, names) if len(groups) > 1 else _mesh(device_type, groups[0], names[1:])
    policy = MixedPrecisionPolicy(param_dtype=torch.{dtype}, reduce_dtype=torch.{sums})
    return {{"mesh": mesh, "reshard_after_forward": {reshards}, "mp_policy": policy}}

'''
