"""Rows of a training's table: the best validation, its step, and the first and last validations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ....training.methods import Method

MUCH = 0.1
"""A last validation that is worse than the kept one by more than this share of it is called worse; less may be chance."""

COLLAPSED = 1.0
"""By this share worse, a training has collapsed."""

_WHERE = {"steps": "at {:,} decisions", "generation": "after {:,} generations", "update": "after {:,} updates"}
"""At which point of a training a row of its curve was written, by the key of its steps."""

Row = Mapping[str, Any]


def kept_rows(curve: Sequence[Row], method: Method, measure: str, file: str, *, is_less_better: bool = True) -> list[list[str]]:
    """Rows about a learning curve: what is kept, where it was reached, the first validation, and the last where that was another.

    Args:
        curve: a row per validation, in order.
        method: of the training.
        measure: what a person calls what is validated.
        file: in which the best policy is kept.
        is_less_better: whether less of the measure is better.
    """
    key, text = method.key, method.text
    kept = (min if is_less_better else max)(curve, key=lambda row: row[key])
    is_untrained = curve[0][method.step_key] == 0 and not _is_staged(curve[0], method)
    first = method.first if is_untrained else f"of the network {_where(curve[0], method)}"
    rows = [
        [f"validation {measure}", f"{text(kept[key])} {_where(kept, method)} (kept as {file})"],
        [first, text(curve[0][key])],
    ]
    if curve[-1] is not kept and len(curve) > 1:
        last = "of the last mean" if method.step_key == "generation" else "of the last network"
        rows.append([last, text(curve[-1][key]) + _fallen(curve[-1][key], kept[key], is_less_better, file)])
    return rows


def _is_staged(row: Row, method: Method) -> bool:
    """Whether a row was written after a stage before the first decision of PPO."""
    return method.step_key == "steps" and row.get("stage") in ("search", "imitation")


def _where(row: Row, method: Method) -> str:
    return f"after the {row['stage']}" if _is_staged(row, method) else _WHERE[method.step_key].format(row[method.step_key])


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
