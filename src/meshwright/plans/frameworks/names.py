"""Keys of a plan: how others spell those of a layout, and the refusal of what is wrong in one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ... import settings
from ...errors import ConfigError, Names, PlanError

OTHER_NAMES = {
    "tensor_parallel": "tp",
    "tensor_model_parallel_size": "tp",
    "tensor_parallel_size": "tp",
    "pipeline_parallel": "pp",
    "pipeline_model_parallel_size": "pp",
    "pipeline_parallel_size": "pp",
    "data_parallel": "dp",
    "data_parallel_size": "dp",
    "expert_parallel": "ep",
    "expert_model_parallel_size": "ep",
    "context_parallel_size": "cp",
    "mbs": "micro_batch",
    "micro_batch_size": "micro_batch",
    "gbs": "global_batch",
    "global_batch_size": "global_batch",
    "batch": "global_batch",
    "zero_stage": "zero",
    "vp": "virtual_stages",
    "vpp": "virtual_stages",
    "virtual_pipeline_model_parallel_size": "virtual_stages",
    "num_layers_per_virtual_pipeline_stage": "virtual_stages",
}
"""Keys of a layout as Megatron-LM, DeepSpeed and others spell them."""


def unknown_layout_key(key: str, field: str, known: Iterable[str]) -> PlanError:
    """Return the refusal of a key, which names the one that is meant."""
    own = OTHER_NAMES.get(key.lower().replace("-", "_"))
    if own is not None and own in known:
        return PlanError(f"unknown key; here it is {own!r}", field=field)
    return PlanError("unknown key", field=field, value=key, choices=Names(None, known))


def build_of_plan(model: type[settings.AnySettings], data: Any, *, file: Any = None, prefix: str = "") -> settings.AnySettings:
    """Build settings as `settings.build_settings` does, with a `PlanError` for what is wrong."""
    try:
        return settings.build_settings(model, data, file=file)
    except ConfigError as error:
        field = f"{prefix}{error.field}" if error.field else prefix.rstrip(".") or None
        if error.problem == "unknown key" and field and error.choices and "micro_batch" in error.choices:  # those of a layout
            raise unknown_layout_key(str(error.value), field, error.choices) from None
        raise PlanError(error.problem, file=file, field=field, value=error.value, choices=error.choices) from None
