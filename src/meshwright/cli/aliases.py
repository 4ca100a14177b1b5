"""Spellings of 0.1 that are understood for one release more: old names of commands and options, and their replacements."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress

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
"""Today's words by the old name of a command."""


def _keys(names: str) -> dict[str, str]:
    """Return the options that are keys of ``--set`` now; ``!`` marks those without a value."""
    keys = {name: name.rstrip("!").replace("-", "_") for name in names.split()}
    return {f"--{name.rstrip('!')}": f"--set {key}={'true' if name.endswith('!') else '{}'}" for name, key in keys.items()}


_ESTIMATE = {
    **_keys("graphs keep-input-ops! profile-batch collectives collectives-table overlap-slowdown compression"),
    "--costs": "--set {}",
}
_PLAN = {**_ESTIMATE, **_keys("max-degree order arrange top front recipes"), "--live": "--state {}"}

OPTIONS: dict[str, dict[str, str]] = {
    "plan": _PLAN,
    "place": _PLAN | {"--by": "--policy {}", **_keys("optimizer forward-only! in-flight seed")},
    "arrange": _PLAN
    | {
        "--solver": "--policy {}",
        "--stages": "--set num_stages={}",
        "--dp-bytes": "--set gradient_bytes={}",
        "--pp-bytes": "--set activation_bytes={}",
        **_keys("seed"),
    },
    "estimate": _ESTIMATE,
    "compare": {**_keys("graphs keep-input-ops! profile-batch sequence-length"), "--costs": "--set {}"},
    "sweep": _keys("trials"),
    "train": {"--ray": "--jobs {}", **_keys("log")},
    "evaluate": {"--ray": "--jobs {}", "--references": "{}"},
    "serve": {
        "--host": "--listen {}",
        "--port": "--listen :{}",
        "--socket": "--listen unix:{}",
        "--name": "--set names=[{}]",
        "--no-feedback": "--set feedback=false",
        **_keys("feedback! tls-cert tls-key sharing lease-s resync-s max-age-s graphs kueue-check slurm-token-file seed"),
        **_keys("keep-days pricing-limit-s"),
    },
    "slurm-hooks": {"--url": "--server {}", "--socket": "--server unix:{}"},
    "submit": {
        "--server": "--state {}",
        "--time": "--set time_minutes={}",
        **_keys("max-devices name owner key sharing partition account qos"),
    },
    "decisions": {"--server": "--state {}"},
    "observe": {"--server": "--state {}"},
    "replay": _keys("queue as-served! graphs"),
    "profile": {"--measure": "--times here", **_keys("sequence-length dtype eager!")},
    "state from-slurm": {"--by": "slurm:{}", **_keys("slurm-token-file")},
    "state from-kubernetes": _keys("resource context"),
    "state from-ray": _keys("address host-label"),
    "validate": {
        **_keys("operation max-mean-error max-mean-group-error max-error latency-first! constants device plot graphs"),
        **_keys("statistics! seeds placement search-s sets keep max-p95-error reference"),
        "--only": "--set only=[{}]",
    },
    "calibrate": _keys("name operation device library-version half! start multiprocessors quick! seed sets keep"),
}
"""Today's words by the old name of a command and its old option; ``{}`` takes the value, and without it there is none."""

_SCALES = {("place", "--budget-ms"): ("--budget-s", 1e-3), ("sweep", "--budget-s"): ("--minutes", 1 / 60)}
"""Options that have another unit now."""


def renamed(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """Return arguments in today's spelling, and a remark where they were in an older one.

    Args:
        arguments: of the command line.
    """
    words = list(arguments)
    old = next((name for name in COMMANDS if words[: len(name.split())] == name.split()), words[0] if words else "")
    rest, made = words[len(old.split()) :], list[str]()
    while rest and rest[0] != "--":
        name, equals, value = (word := rest.pop(0)).partition("=")
        option, factor = _SCALES.get((old, name), (None, 1.0))
        template = OPTIONS.get(old, {}).get(name) if option is None else f"{option} {{}}"
        if template is None:
            made.append(word)
            continue
        if not equals and "{}" in template:
            value = rest.pop(0) if rest else ""
        if option is not None:
            with suppress(ValueError):
                value = f"{float(value) * factor:g}"
        values = value.split(",") if name == "--references" else [value]
        made += [part.format(one) for one in values for part in template.split()]
    new = COMMANDS.get(old, old).split()
    if new[-1:] == ["slurm"] and any(word.startswith("slurm:") for word in made):
        new.pop()
    made = [*new, *_joined(made), *rest]
    if made == words:
        return words, None
    return made, f"this is now: {shlex.join(['meshwright', *made])}; the old spelling ends with the next release"


def _joined(words: list[str]) -> list[str]:
    """Join a host and a port that are separate into one address."""
    places = [place for place, word in enumerate(words) if word == "--listen"]
    if len(places) != 2:
        return words
    host, port = sorted((words[place + 1] for place in places), key=lambda word: word.startswith(":"))
    rest = [word for place, word in enumerate(words) if place not in {*places, *(place + 1 for place in places)}]
    return [*rest, "--listen", f"{host}{port}"]
