"""Numbers as people write them: read from text, and held to what a machine, a job or a run can be.

A unit ends a name (``memory_bytes``, ``nic_bandwidth_gbytes_per_s``), so the end of a name gives the range of its number;
`RANGES` is the one table. The ranges are far wider than today's machines. A number outside is a slip of the pen, a wrong unit
or a damaged file, and times made of it would mean nothing.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import NamedTuple


class Range(NamedTuple):
    """Range of a number's absolute value: from ``least`` to ``most``, or zero where zero is allowed.

    Attributes:
        least: the smallest number above zero.
        most: the largest number.
    """

    least: float
    most: float


MOST_DIGITS = 300
"""Of a whole number: what has more is beyond what a float holds, and Python itself gives up at 4,300."""

MOST = 2**63 - 1
"""Of a number without a unit; a count that is larger fits into no array."""

_AGES_S = 1e10
"""Three hundred years: longer than any step, job or wait. A training run of the largest models takes months."""

_ROWS = (
    # Times. No message waits for a quarter of an hour, no kernel's launch for a second.
    (0.0, _AGES_S, "_s"),
    (0.0, _AGES_S * 1e3, "_ms"),
    (0.0, 1e11, "_us"),
    (0.0, _AGES_S * 1e9, "_ns"),
    (0.0, _AGES_S / 3600, "_h"),
    (0.0, 1e9, "latency_us propagation_ns io_ns rate_per_job_h"),
    (
        0.0,
        1e6,
        "kernel_launch_us kernel_gap_us host_us_per_kernel host_us_per_message host_us_per_hook "
        "host_us_per_compiled_hook host_us_per_launch",
    ),
    (0.0, 1e7, "step_overhead_ms"),
    (1e-4, 1e10, "time_us"),
    (1e-7, 1e7, "time_ms"),
    # Of one device; longer than any run means never.
    (0.0, 1e18, "mean_time_between_failures_h"),
    # Of whole jobs, also on a single device: the largest training run would take one 1e13 s. Deadlines may be loose.
    (0.0, 1e15, "low_s high_s sequential_s work_s completion_s"),
    (0.0, 1e22, "deadline_s"),
    (1e-12, 1e6, "low"),
    (1e-12, 1e9, "high"),
    # Sizes and work: the memory of the largest machine holds 1e16 bytes, the largest training run took 1e26 operations.
    (0.0, 1e19, "_bytes"),
    (1.0, 1e19, "payload_bytes"),
    (0.0, 1e30, "_flops"),
    (1e-6, 1e9, "_gbytes _gib"),
    # Speeds: a wafer-scale engine computes 1.3e5 TFLOP/s and reads 2e7 GB/s, a modem sends 1e-5 GB/s.
    (1e-6, 1e9, "_gbytes_per_s _tflops_per_s _w"),
    (1e3, 1e18, "_bytes_per_s"),
    (1e-5, 1e10, "_gbit_per_s"),
    (1e-3, 1e9, "_mhz"),
    # Shares of a peak (one above 1 counts bytes that a cache saves), and factors.
    (1e-4, 1e2, "_efficiency"),
    (1e-6, 1e6, "oversubscription"),
    (1.0, 1e3, "overlap_slowdown"),
    (0.0, 1e2, "uncertainty"),
    # Of kernels: a wafer-scale engine has 9e5 processors, an update of a parameter moves some 30 bytes.
    (1.0, 1e8, "num_multiprocessors"),
    (0.0, 1e6, "product_overhead_k optimizer_bytes_per_parameter"),
    (1e-6, 1e3, "gradient_bytes_per_parameter_byte"),
    # Of flows, in bytes and seconds.
    (1e-3, 1e18, "bandwidth"),
    (0.0, 1e4, "latency"),
    (0.0, 1e15, "start finish"),
    # Work that arrives, over what the devices do in the same time.
    (1e-9, 1e6, "offered_load"),
    # Sizes of a cluster, and samples of a step.
    (1.0, 1e8, "num_devices"),
    (1.0, 1e6, "devices_per_host nics_per_host"),
    (1.0, 1e9, "global_batch micro_batch samples_per_step"),
)
RANGES = {end: Range(least, most) for least, most, ends in _ROWS for end in ends.split()}
"""Ranges by the end of a name, the longest end first."""


@cache
def range_of(name: str) -> Range:
    """Return the range of a number of this name, or of a unit of this name."""
    ends = [end for end in RANGES if f"_{name}".endswith(f"_{end.lstrip('_')}")]
    return RANGES[max(ends, key=len)] if ends else Range(0.0, MOST)


def problem(name: str, value: float) -> str | None:
    """Describe the mistake in a number of this name, as a phrase; None if there is none."""
    least, most = range_of(name)
    if value == 0 or least <= abs(value) <= most:
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return "must be finite and not negative"
    return f"must be {least:g} to {most:g}: nothing is {'smaller' if abs(value) < least else 'larger'}"


def number(text: str, name: str = "") -> float:
    """Return a number that a text spells, held to what a number of this name can be.

    Raises:
        ValueError: it spells none, or an impossible one; the message is a phrase for an error.
    """
    try:
        value = float(text)
    except ValueError:
        raise ValueError("must be a number") from None
    wrong = problem(name, value)
    if wrong is not None:
        raise ValueError(wrong)
    return value


def amount(text: str, name: str = "") -> float:
    """Read a number as `number` does, which may not be negative."""
    value = number(text, name)
    if value < 0:
        raise ValueError("must be finite and not negative")
    return value


def whole(text: str, name: str = "") -> int:
    """Return a whole number that a text spells in decimal digits, and the rest as `number`."""
    digits = text.strip()
    if re.fullmatch("[+-]?[0-9]+", digits) is None:
        raise ValueError("must be a whole number")
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"has {len(digits)} digits: nothing is so large")
    value = int(digits)
    wrong = problem(name, value)
    if wrong is not None:
        raise ValueError(wrong)
    return value


_WITH_UNIT = re.compile(r"([+-]?[0-9]{1,15}(?:[.][0-9]{1,15})?(?:e[0-9])?) ?([a-z%]{0,9})", re.IGNORECASE)
_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_MULTIPLES = {"": 1, "k": 1_000}
_POWERS_OF_TWO = {"": 1, "k": 1_024}
IN_POWERS_OF_TWO = ("sequence_length",)
"""Numbers whose 2k means 2048."""


def not_plain(text: str, name: str, *, is_whole: bool) -> tuple[str, bool]:
    """Describe why a text is no plain number, as a phrase; and whether the phrase quotes the text.

    For a number with a known unit or an exponent it proposes the plain number.

    Args:
        text: what was found.
        name: of the number; one that ends in ``_s`` is a time.
        is_whole: whether a whole number is wanted.
    """
    wrong = "must be a whole number" if is_whole else "must be a number"
    written = _WITH_UNIT.fullmatch(text)
    if written is None:
        return wrong, False
    unit, is_time = written[2].lower(), name.endswith("_s")
    multiples = _POWERS_OF_TWO if name in IN_POWERS_OF_TWO else _SECONDS if is_time and unit else _MULTIPLES
    factor = multiples.get(unit)
    meant = None if factor is None else float(written[1]) * factor
    if unit:
        wrong += " of seconds" * is_time + " without a unit"
    if meant is None or (is_whole and not meant.is_integer()):
        return wrong, False
    meant_text = f"{meant:.0f}" if meant.is_integer() else f"{meant:g}"
    return f"{wrong} (got {text!r}); did you mean {meant_text}?", True


def counted(number: int, thing: str) -> str:
    """Return a number of things in words: ``1 host``, ``2 hosts``; thousands have no commas, as in names of benchmarks."""
    return f"{number} {things(number, thing)}"


def things(number: int, thing: str) -> str:
    """Return the word for so many of a thing, whose plural ends in s: ``host``, ``hosts``."""
    return f"{thing}{'s' * (number != 1)}"


def compared_gb(need_bytes: float, has_bytes: float) -> tuple[str, str, str]:
    """Return needed, available and missing memory in GB, with the digits that distinguish them."""
    short_bytes = need_bytes - has_bytes
    digits = next((number for number in (1, 3, 6) if short_bytes >= 10.0 ** (9 - number)), 9)
    need, has, short = (f"{one / 1e9:.{digits}f} GB" for one in (need_bytes, has_bytes, short_bytes))
    return need, has, short
