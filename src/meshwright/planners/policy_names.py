"""The spelling of policies, the same in every world: ``NAME[-NUMBER][:RULE][+EXTRA][@MODE]``.

The world says what the parts mean: ``fixed-8@best-fit``, ``sjf:fixed-16+backfill@spread``, ``annealing@0.1``,
``shipped:operators-latency@sample-64``. A path is a name too.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import PolicyError


class PolicyName(NamedTuple):
    """The parts of a spelling.

    Attributes:
        whole: all before the ``@``.
        base: all before the extras.
        extras: behind each ``+``.
        mode: behind the ``@``; None without one.
    """

    whole: str
    base: str
    extras: tuple[str, ...]
    mode: str | None

    @property
    def name(self) -> str:
        """The base without what is behind its colon."""
        return self.base.partition(":")[0]

    @property
    def rule(self) -> str | None:
        """The part behind the colon of the base; None without one."""
        _, colon, rule = self.base.partition(":")
        return rule if colon else None


def parsed(spec: str) -> PolicyName:
    """Take a spelling apart; any text is one, and what it names is for the world to say."""
    whole, at, mode = spec.partition("@")
    base, *extras = whole.split("+")
    return PolicyName(whole, base, tuple(extras), mode if at else None)


def numbered(name: str) -> tuple[str, str]:
    """Return a name without the number at its end, and that number; both empty or no number where there is no ``-``."""
    stem, _, number = name.rpartition("-")
    return stem, number


def budget_in(spec: str, mode: str | None) -> float:
    """Return the seconds that a search is given by a policy's mode; 1 without one.

    Raises:
        PolicyError: it is no number of seconds.
    """
    try:
        seconds = float(mode) if mode else 1.0
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise PolicyError("seconds after @ are a number above 0, up to 3600", field="policy", value=spec)
    return seconds
