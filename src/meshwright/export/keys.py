"""Which options each format reads: what ``export --set`` takes for it, and what a key of another format is told."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import ExportError
from .target import ExportOptions

_WITHOUT_RANKS = ("chakra", "device-map", "tensorflow")
"""Formats that start no ranks."""

_READ_BY: dict[str, tuple[str, ...]] = {
    "image": ("kubernetes",),
    "topology_conf": ("slurm",),
    "sharing": ("slurm",),
    "partition": ("slurm",),
    "account": ("slurm",),
    "time": ("slurm",),
    "container": ("slurm",),
    "kubernetes": ("kubernetes",),
    "queue": ("kubernetes",),
    "runtime": ("kubernetes",),
    "rdma_resource": ("kubernetes",),
    "host_network": ("kubernetes",),
    "networks": ("kubernetes",),
    "tolerations": ("kubernetes",),
    "decision": ("slurm", "kubernetes", "ray"),
    "host_label": ("ray",),
    "wait_s": ("ray",),
    "modules": ("device-map",),
}
"""By option the formats that read it; ``name`` is read by all, other options by those that start ranks."""

_FORMS = {"queue": ("volcano", "kueue", "all"), "runtime": ("trainjob", "all")}
"""Forms of Kubernetes by option that only some of them read."""

_SAME = {
    ("slurm", "image"): "container",
    ("slurm", "queue"): "partition",
    ("kubernetes", "container"): "image",
    ("kubernetes", "partition"): "queue, with kubernetes=kueue or volcano",
}
"""By format and another's key the format's own of the same meaning."""


def keys_of(target: str) -> tuple[str, ...]:
    """The options that a format reads, in the order in which `ExportOptions` has them."""
    return tuple(key for key in ExportOptions.model_fields if _reads(target, key))


def refuse_unread(targets: Iterable[str], given: Iterable[str], options: ExportOptions) -> None:
    """Refuse an option that none of the formats asked for reads, which would be lost in silence.

    Args:
        targets: formats that are exported with these options.
        given: keys that somebody set.
        options: as they were set.

    Raises:
        ExportError: the first such key; the formats that read it are named, and the format's own key of the same meaning.
    """
    asked = tuple(targets)
    for key in given:
        if not any(_reads(target, key) for target in asked):
            readers = _READ_BY.get(key)
            who = (
                f"{_listed(readers)} read{'s' if len(readers) == 1 else ''} it" if readers else "formats that start ranks read it"
            )
            own = next((_SAME[target, key] for target in asked if (target, key) in _SAME), None)
            instead = f"{asked[0]}'s own key is {own}" if own else f"{asked[0]} reads {_listed(keys_of(asked[0]))}"
            does = "does" if len(asked) == 1 else "do"
            raise ExportError(f"{_listed(asked)} {does} not read it, {who}; {instead}", file="--set", field=key)
        if key in _FORMS and asked == ("kubernetes",) and options.kubernetes not in _FORMS[key]:
            problem = f"is read with kubernetes={' or '.join(_FORMS[key])}, and not with {options.kubernetes}"
            raise ExportError(problem, file="--set", field=key)


def _reads(target: str, key: str) -> bool:
    return key == "name" or (target in _READ_BY[key] if key in _READ_BY else target not in _WITHOUT_RANKS)


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
