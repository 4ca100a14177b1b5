"""Inputs of a model as they are written: ``8x3x224x224``, ``x=8x1024:int64``."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from ..errors import TraceError

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
"""Types of weights, by name."""

INPUT_DTYPES = DTYPES | {"int64": torch.int64, "int32": torch.int32, "bool": torch.bool}
"""Types of inputs."""

_WRITTEN = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?P<shape>[0-9]+(?:x[0-9]+)*)(?::(?P<dtype>\w+))?")
_MOST_NUMBERS = 10**13


def parse_inputs(written: Sequence[str], dtype: torch.dtype) -> tuple[tuple[torch.Tensor, ...], dict[str, torch.Tensor]]:
    """Return the tensors on the ``meta`` device: those without a name in their order, and those with one.

    Args:
        written: each ``[NAME=]SHAPE[:TYPE]``, the first number of the shape being the batch.
        dtype: of inputs that name none.

    Raises:
        TraceError: it does not read so, or a name appears twice.
    """
    args: list[torch.Tensor] = []
    kwargs: dict[str, torch.Tensor] = {}
    for text in written:
        match = _WRITTEN.fullmatch(text.strip())
        if match is None:
            raise TraceError("must read [NAME=]SHAPE[:TYPE], as x=8x3x224x224 or ids=8x1024:int64", field="--input", value=text)
        if match["dtype"] is not None and match["dtype"] not in INPUT_DTYPES:
            raise TraceError("no such type", field="--input", value=match["dtype"], choices=INPUT_DTYPES)
        sizes = [int(size[:20]) for size in match["shape"].split("x")]
        number = 1
        for size in sizes:
            number *= size
        if not 0 < number <= _MOST_NUMBERS:
            raise TraceError(f"holds no number, or more than {_MOST_NUMBERS:,}", field="--input", value=text)
        tensor = torch.empty(sizes, dtype=INPUT_DTYPES.get(match["dtype"] or "", dtype), device="meta")
        if match["name"] is None:
            if kwargs:
                raise TraceError("inputs without a name come before those with one", field="--input", value=text)
            args.append(tensor)
        elif match["name"] in kwargs:
            raise TraceError("the input appears twice", field="--input", value=match["name"])
        else:
            kwargs[match["name"]] = tensor
    return tuple(args), kwargs
