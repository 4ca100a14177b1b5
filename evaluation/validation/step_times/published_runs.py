"""Details of published runs from the text of their sources: switches, cards, and the kind of model.

A row is our reading of a table. The text around a table may say more (which precision its second line added, which cards it ran
on). Or a run left a switch at its framework's default. Both are added here, each with its source, and noted in the row. Nothing
here is a figure of a result.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple


class RunText(NamedTuple):
    """Details of some rows of a source.

    Attributes:
        family: of the rows.
        rows: what their names hold, as a regular expression.
        layout: keys of the layout, in place of what the row says.
        cluster: keys of the cluster.
        source: page or section.
    """

    family: str
    rows: str
    layout: Mapping[str, Any]
    cluster: Mapping[str, Any]
    source: str


_TITAN = "torchtitan-2024"
_TABLES = "pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md"
_SPLIT = "torchtitan/parallelisms/pipelining_utils.py (generate_split_points)"
_CODE = "pytorch/torchtitan at 9dec370, torchtitan/parallelisms/parallelize_llama.py"

RUNS = (
    RunText(
        _TITAN,
        "",
        {"framework": "fsdp2", "async_gradients": False, "fused_accumulation": False},
        {"power_watts": 500.0, "memory_bandwidth_gbytes_per_s": 2400.0},
        f"{_TABLES}, Hardware: cards of 96 GB and 2.4 TB/s at the default limit of 500 W",
    ),
    RunText(_TITAN, "-eager$", {"compile": False}, {}, f"{_TABLES}, tables 1 and 3, first line"),
    RunText(_TITAN, "^(?!.*-eager$)", {"compile": True}, {}, f"{_TABLES}, tables 1 to 5"),
    RunText(
        _TITAN,
        "-8B-[0-9]+-(eager|compile|f8)$",
        {"recompute": "selective-ops"},
        {},
        f"{_TABLES}, tables 1 and 3; train_configs/llama3_8b.toml, selective_ac_option = 'op'",
    ),
    RunText(
        _TITAN,
        "-f8|-405B-",
        {"precision": "fp8"},
        {},
        f"{_TABLES}, tables 1, 2, 4 and 5: Float8, of all linear layers but the output",
    ),
    RunText(
        _TITAN,
        "-cp[0-9]",
        {"context_parallel": "all-gather"},
        {},
        "pytorch/pytorch, torch/distributed/tensor/experimental/_attention.py, default of rotate_method",
    ),
    RunText(
        _TITAN,
        "-405B-",
        {"zero": 2, "overlap_tp": True, "first_stage_less_layers": 1, "last_stage_less_layers": 1},
        {},
        f"{_TABLES}, table 5: AsyncTP; {_CODE}: with a pipeline weights stay whole after the forward pass; {_SPLIT}: the first "
        "and the last stage get no spare layer",
    ),
    RunText(
        _TITAN,
        "-405B-.*-cp[0-9]",
        {"micro_batch": 1, "schedule": "1f1b", "virtual_stages": 1},
        {},
        f"{_TABLES}, table 6: 1F1B, 8 sequences of a replica; as many micro-batches as stages, as in table 5",
    ),
    RunText(
        _TITAN,
        "-405B-[0-9]+-(1f1b|inter)$",
        {"micro_batch": 4},
        {},
        f"{_TABLES}, table 5: 32 sequences of a replica; config_manager.py: as many micro-batches as stages, 8, where their "
        "number is not given",
    ),
    RunText(_TITAN, "-405B-.*-inter$", {"virtual_stages": 2}, {}, f"{_SPLIT}: two stages of a rank where no split is given"),
    RunText(
        "llama3-2024",
        "",
        {"framework": "fsdp2", "compile": None, "overlap_pp": True, "first_stage_less_layers": 1, "last_stage_less_layers": 1},
        {},
        "Grattafiori et al. 2024 (arXiv 2407.21783), section 3.3.2: FSDP with ZeRO-2, asynchronous transfers, a layer less on "
        "the first and on the last stage; whether kernels are fused is not printed",
    ),
)
"""In the order in which they are applied. A None leaves a field open."""

LLAMA = {
    "max_positions": 131_072,
    "learned_positions": False,
    "qkv_bias": False,
    "output_bias": False,
    "mlp_bias": False,
    "norm_vectors": 1,
    "is_head_tied": False,
    "has_dropout": False,
}
"""A decoder whose feed-forward layer has a gate, built as Llama. Root-mean-square norms, rotated positions, no biases, no
dropout, a head of its own (Touvron et al., "Llama", 2023, section 2.2)."""


def as_published(row: Mapping[str, Any], name: str, family: str) -> tuple[dict[str, Any], list[str]]:
    """Return a row with what its source says of its run, and a note on each key that is another one than the row's.

    A figure of the devices that the row gives itself is left as it is.

    Args:
        row: with its ``layout`` and ``cluster``.
        name, family: of the row.
    """
    made = {**row, "layout": dict(row["layout"]), "cluster": dict(row["cluster"])}
    notes = []
    for run in RUNS:
        if run.family != family or not re.search(run.rows, name):
            continue
        remarks = []
        for where, keys in (("layout", run.layout), ("cluster", run.cluster)):
            for key, value in keys.items():
                if where == "cluster" and made[where].get(key) is not None:  # what the row gives of its devices holds
                    continue
                if made[where].get(key) != value:
                    remarks.append(f"{where}.{key}={str(value).lower() if isinstance(value, bool) else value}")
                made[where][key] = value
        if remarks:
            notes.append(f"{', '.join(remarks)} by {run.source}")
    return made, notes


def year_of(text: str) -> int:
    """Return the year of a source, by its arXiv number or a four-digit year; the present where it has neither."""
    arxiv = re.search(r"\b(\d\d)(\d\d)\.\d{4,5}\b", text)
    if arxiv:
        return 2000 + int(arxiv.group(1))
    years = [int(results) for results in re.findall(r"\b(20[12]\d)\b", text)]
    return min(years) if years else 2026
