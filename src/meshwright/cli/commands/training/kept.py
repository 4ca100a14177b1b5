"""What a training kept, in the rows of its table: the best validation, where it was reached, and what came before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

MUCH = 0.1
"""A last validation that is worse than the kept one by more than this share of it is called worse; less may be chance."""

COLLAPSED = 1.0
"""By this share worse, a training has collapsed."""

Row = Mapping[str, Any]


def kept_rows(
    curve: Sequence[Row],
    key: str,
    measure: str,
    shown: Callable[[float], str],
    where: Callable[[Row], str],
    file: str,
    first: str,
    *,
    last: str = "of the last network",
    is_less_better: bool = True,
) -> list[list[str]]:
    """Rows about a learning curve: what is kept, where it was reached, the first validation, and the last where that was another.

    Args:
        curve: a row per validation, in order.
        key: of the validation in a row.
        measure: what a person calls it.
        shown: writes it.
        where: says at which point of the training a row was written.
        file: in which the best policy is kept.
        first, last: what a person calls the policies of the first row and the last one.
        is_less_better: whether less of the measure is better.
    """
    kept = (min if is_less_better else max)(curve, key=lambda row: row[key])
    rows = [
        [measure, f"{shown(kept[key])} {where(kept)} (kept as {file})"],
        [first, shown(curve[0][key])],
    ]
    if curve[-1] is not kept and len(curve) > 1:
        rows.append([last, shown(curve[-1][key]) + _fallen(curve[-1][key], kept[key], is_less_better, file)])
    return rows


def written(value: float) -> str:
    """A value of an objective to four digits, without powers of ten where thousands can be read."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def _fallen(last: float, kept: float, is_less_better: bool, file: str) -> str:
    """How much worse the last validation is than the kept one, in words; nothing where that is little."""
    lost = (last - kept) if is_less_better else (kept - last)
    if not lost > MUCH * abs(kept):
        return ""
    if kept == 0:
        return f": worse than {file}, which is from before"
    share = lost / abs(kept)
    if share < COLLAPSED:
        return f": {100 * share:.0f} % worse than {file}, which is from before"
    return f": far worse than {file}, after which the training collapsed"
