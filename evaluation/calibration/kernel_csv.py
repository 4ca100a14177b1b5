"""Measured kernels as tables in CSV: matrix products, and forward passes of fused attention.

Products have the columns ``dtype`` (``bfloat16`` or ``fp8``), ``m, n, k``; attention, causal and in 16 bits, ``batch,
sequence_length, heads, kv_heads, head_dim``; both ``latency_ms``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from ... import files
from ...costs.work.operations import FusedAttention, Product
from ...errors import InputFileError

PRODUCT, FP8_PRODUCT, ATTENTION = "product", "product in fp8", "fused_attention"

PRODUCT_COLUMNS = ("dtype", "m", "n", "k", "latency_ms")
ATTENTION_COLUMNS = ("batch", "sequence_length", "heads", "kv_heads", "head_dim", "latency_ms")
FAMILY_OF = {"bfloat16": PRODUCT, "float16": PRODUCT, "fp8": FP8_PRODUCT}


@dataclass(frozen=True)
class TableKernel:
    """A row of a table of kernels.

    Attributes:
        family: `PRODUCT`, `FP8_PRODUCT` or `ATTENTION`.
        number: of the row in its file, from 0.
        kernel: what the cost model prices.
        us: as measured.
    """

    family: str
    number: int
    kernel: Product | FusedAttention
    us: float

    @property
    def item(self) -> str:
        """The row in words."""
        if isinstance(self.kernel, Product):
            return f"{self.family} {self.kernel.m} x {self.kernel.n} x {self.kernel.k}"
        return f"attention, length {self.kernel.length}, head dim {self.kernel.head_dim}, {self.kernel.flops:.3g} operations"


def is_kernel_csv(path: str | Path) -> bool:
    """Return whether a file's first line has the columns of either table."""
    if Path(path).suffix.lower() != ".csv" or not Path(path).is_file():
        return False
    _, header = next(files.read_csv(path, skips_blanks=True), (1, []))
    return tuple(header) in (PRODUCT_COLUMNS, ATTENTION_COLUMNS)


def read(path: str | Path) -> tuple[TableKernel, ...]:
    """Return the rows of a table.

    Raises:
        InputFileError: missing, unreadable or empty; other columns. A size that is no whole positive number, a time that is not
            positive, or an unknown data type; with the line.
    """
    rows = files.read_csv(path, skips_blanks=True)
    first, header = next(rows, (1, []))
    if tuple(header) not in (PRODUCT_COLUMNS, ATTENTION_COLUMNS):
        expected = f"wants the columns {', '.join(PRODUCT_COLUMNS)}, or {', '.join(ATTENTION_COLUMNS)}"
        raise InputFileError(expected, file=path, line=first, value=",".join(header))
    results = []
    for number, (line, cells) in enumerate(rows):
        if len(cells) != len(header):
            raise InputFileError(f"wants {len(header)} values", file=path, line=line, value=",".join(cells))
        results.append(_row(dict(zip(header, cells, strict=True)), number, path, line))
    if not results:
        raise InputFileError("holds no row", file=path)
    return tuple(results)


def _row(row: dict[str, str], number: int, path: str | Path, line: int) -> TableKernel:
    def size(name: str) -> int:
        if not row[name].isascii() or not row[name].isdigit() or int(row[name]) < 1:
            raise InputFileError("must be a positive whole number", file=path, line=line, field=name, value=row[name])
        return int(row[name])

    try:
        us = float(row["latency_ms"]) * 1e3
    except ValueError:
        us = math.nan
    if not 0 < us < math.inf:
        raise InputFileError("must be a positive number", file=path, line=line, field="latency_ms", value=row["latency_ms"])
    if "dtype" in row:
        if row["dtype"] not in FAMILY_OF:
            problem = "unknown data type"
            raise InputFileError(problem, file=path, line=line, field="dtype", value=row["dtype"], choices=FAMILY_OF)
        family = FAMILY_OF[row["dtype"]]
        is_fp8 = family == FP8_PRODUCT  # the time is that of turning the left operand into bytes as well
        product = Product("product", size("m"), size("n"), size("k"), is_fp8=is_fp8, fp8_casts=int(is_fp8))
        return TableKernel(family, number, product, us)
    heads, length, width = size("batch") * size("heads"), size("sequence_length"), size("head_dim")
    moved = 2.0 * length * width * (2 * heads + 2 * size("batch") * size("kv_heads"))
    flops = 4.0 * heads * width * length * length / 2
    return TableKernel(ATTENTION, number, FusedAttention("attention", flops, moved, length=length, head_dim=width), us)
