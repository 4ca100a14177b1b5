"""Spellings of 0.1 that are understood for one release more: old names of commands and options, and what replaces each."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

COMMANDS = {
    "place": "plan --ops",
    "arrange": "plan --stages",
    "sweep": "train --sweep",
    "summarise": "evaluate --summarise",
    "token": "serve token",
    "slurm-hooks": "serve hooks",
    "decisions": "history decisions",
    "observe": "history observe",
    "calibration": "history calibration",
    "replay": "history replay",
    "validate": "dev validate",
    "calibrate": "dev calibrate",
    "state from-slurm": "state read slurm",
    "state from-kubernetes": "state read kubernetes",
    "state from-ray": "state read ray",
}
"""By the old name of a command the words that replace it."""

FLAGS = (
    *("--keep-input-ops", "--forward-only", "--eager", "--quick", "--half", "--statistics", "--latency-first", "--as-served"),
    *("--feedback", "--no-feedback", "--measure"),
)
"""Old options that take no value."""


def _keys(*names: str) -> dict[str, str]:
    """Options that are keys of ``--set`` now; a trailing ``=`` takes the option's value."""
    return {name: f"--set {name[2:].replace('-', '_')}={'true' * (name in FLAGS)}" for name in names}


_JOB = _keys("--graphs", "--keep-input-ops", "--profile-batch")
_COSTS = {"--costs": "--set", **_keys("--collectives", "--collectives-table", "--overlap-slowdown")}

OPTIONS: dict[str, dict[str, str]] = {
    "place": {"--by": "--policy", **_keys("--optimizer", "--forward-only", "--in-flight", "--seed")},
    "arrange": {
        "--solver": "--policy",
        "--stages": "--set num_stages=",
        "--dp-bytes": "--set gradient_bytes=",
        "--pp-bytes": "--set activation_bytes=",
        **_keys("--seed"),
    },
    "plan": {
        **_JOB,
        **_COSTS,
        **_keys("--max-degree", "--order", "--arrange", "--top", "--front", "--recipes", "--compression"),
        "--live": "--state",
    },
    "estimate": {**_JOB, **_COSTS, **_keys("--compression")},
    "compare": {**_JOB, "--costs": "--set", **_keys("--sequence-length")},
    "sweep": _keys("--trials"),
    "train": {"--ray": "--jobs", **_keys("--log")},
    "evaluate": {"--ray": "--jobs", "--references": ""},
    "serve": {
        "--host": "--listen",
        "--port": "--listen :",
        "--socket": "--listen unix:",
        "--name": "--set names=[]",
        "--feedback": "--set feedback=true",
        "--no-feedback": "--set feedback=false",
        **_keys("--tls-cert", "--tls-key", "--sharing", "--lease-s", "--resync-s", "--max-age-s", "--graphs", "--kueue-check"),
        **_keys("--slurm-token-file", "--seed", "--keep-days", "--pricing-limit-s"),
    },
    "slurm-hooks": {"--url": "--server", "--socket": "--server unix:"},
    "submit": {
        "--server": "--state",
        "--time": "--set time_minutes=",
        **_keys("--max-devices", "--name", "--owner", "--key", "--sharing", "--partition", "--account", "--qos"),
    },
    "decisions": {"--server": "--state"},
    "observe": {"--server": "--state"},
    "replay": _keys("--queue", "--as-served", "--graphs"),
    "profile": {"--measure": "--times here", **_keys("--sequence-length", "--dtype", "--eager")},
    "state from-slurm": {"--by": "slurm:", **_keys("--slurm-token-file")},
    "state from-kubernetes": _keys("--resource", "--context"),
    "state from-ray": _keys("--address", "--host-label"),
    "validate": {
        **_keys("--operation", "--max-mean-error", "--max-mean-group-error", "--max-error", "--latency-first", "--constants"),
        **_keys("--device", "--plot", "--graphs", "--statistics", "--seeds", "--placement", "--search-s", "--sets", "--keep"),
        **_keys("--max-p95-error", "--reference"),
        "--only": "--set only=[]",
    },
    "calibrate": {
        **_keys("--name", "--operation", "--device", "--library-version", "--half", "--start", "--multiprocessors", "--quick"),
        **_keys("--seed", "--sets", "--keep"),
    },
}
"""By the old name of a command its old options, and the words that replace each: ``=``, ``:`` and ``[]`` take the value in."""

_SCALES = {("place", "--budget-ms"): ("--budget-s", 1e-3), ("sweep", "--budget-s"): ("--minutes", 1 / 60)}
"""Options that have another unit now."""


def renamed(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """Arguments in today's spelling, and a remark where they were in an older one.

    Args:
        arguments: of the command line.
    """
    words = list(arguments)
    old = next((name for name in COMMANDS if words[: len(name.split())] == name.split()), words[0] if words else "")
    before = len(old.split())
    further = OPTIONS["plan"] if old in ("place", "arrange") else {}
    options = {**further, **OPTIONS.get(old, {})}
    rest, end = words[before:], len(words)
    if "--" in rest:
        end = rest.index("--")
    spelled = _options(old, rest[:end], options)
    if old == "state from-slurm" and any(word.startswith("slurm:") for word in spelled):
        made = ["state", "read", *spelled, *rest[end:]]
    else:
        made = [*COMMANDS.get(old, old).split(), *_joined(spelled), *rest[end:]]
    if made == words:
        return words, None
    return made, f"this is now: {shlex.join(['meshwright', *made])}; the old spelling ends with the next release"


def _options(old: str, words: Sequence[str], options: dict[str, str]) -> list[str]:
    """Words behind a command with their options in today's spelling."""
    made: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        scaled = _SCALES.get((old, name))
        if name not in options and scaled is None:
            made.append(word)
            continue
        if not equals and name not in FLAGS:
            value = rest.pop(0) if rest else ""
        made += _scaled(*scaled, value) if scaled is not None else _spelled(options[name], name, value)
    return made


def _joined(words: list[str]) -> list[str]:
    """Words in which a host and a port that are apart are one address."""
    places = [place for place, word in enumerate(words) if word == "--listen"]
    if len(places) != 2:
        return words
    host, port = sorted((words[place + 1] for place in places), key=lambda word: word.startswith(":"))
    rest = [word for place, word in enumerate(words) if place not in {*places, *(place + 1 for place in places)}]
    return [*rest, "--listen", f"{host}{port}"]


def _scaled(option: str, factor: float, value: str) -> list[str]:
    try:
        return [option, f"{float(value) * factor:g}"]
    except ValueError:
        return [option, value]


def _spelled(new: str, name: str, value: str) -> list[str]:
    """One option: its new words with the value in its place."""
    first, _, second = new.partition(" ")
    if not first:
        return value.split(",")
    if first == "slurm:":
        return [f"{first}{value}"]
    if name in FLAGS:
        return [first, second]
    if second.endswith("[]"):
        return [first, f"{second[:-1]}{value}]"]
    return [first, f"{second}{value}"]
