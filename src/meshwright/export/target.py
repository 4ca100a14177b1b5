"""A target: a name, a pure function from plan to files, and an honest list of its guarantees."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .. import files
from ..plans.document import PlacementPlan

if TYPE_CHECKING:
    from .options import ExportOptions

Files = dict[str, str | bytes]
"""Files of a target: content by name. A name is a relative path with ``/`` (``traces/rank0.et``). Text is written as UTF-8,
bytes unchanged; a file that starts with ``#!`` becomes executable."""


class FrameworkFile(str):
    """A word of a command that names a file of the export; see `joined`."""


@dataclass(frozen=True)
class Needs:
    """A training framework's part of an export, whoever starts its ranks.

    Attributes:
        plan: the plan in the framework's own rank numbers.
        arguments: words behind the program's own.
        environment: variables of every rank.
        files: content by name; those that arguments name (`FrameworkFile`) are carried to the ranks.
        not_guaranteed: sentences on what the framework does not keep.
    """

    plan: PlacementPlan
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Files = field(default_factory=dict)
    not_guaranteed: tuple[str, ...] = ()


MAX_NAME = 40
"""Longest job name: a pod adds ``-node9999-0-0`` and a random suffix to it and may not pass 63 characters."""


@dataclass(frozen=True)
class Target:
    """A scheduler or launcher that plans are exported to.

    Attributes:
        name: as ``--format`` spells it.
        summary: its files, in one line.
        guaranteed: guarantees of the target, a sentence each.
        not_guaranteed: missing guarantees, a sentence each; heads every file.
        render: plan and options to files; raises `ExportError` where the target cannot express the plan.
        names_devices: whether CUDA_VISIBLE_DEVICES of its ranks counts as the host's driver does, so that a rank's device can
            be compared with the plan.
        as_launched: the plan with the rank numbers that the target uses, where they are not the plan's own.
        left_open: ``not_guaranteed`` with some options, where it differs from the default.
        remark: message to the user who exports a plan with some options, or None.
    """

    name: str
    summary: str
    guaranteed: tuple[str, ...]
    not_guaranteed: tuple[str, ...]
    render: Callable[[PlacementPlan, ExportOptions], Mapping[str, str | bytes]]
    names_devices: bool = True
    as_launched: Callable[[PlacementPlan], PlacementPlan] = lambda plan: plan
    left_open: Callable[[ExportOptions], tuple[str, ...]] | None = None
    remark: Callable[[PlacementPlan, ExportOptions], str | None] = lambda plan, options: None


def joined(words: Iterable[str], folder: str = '"$MESHWRIGHT_FILES"') -> str:
    """Join words as a shell reads them; a file of the export is in ``folder``, which is the shell's own text."""
    return " ".join(f"{folder}/{word}" if isinstance(word, FrameworkFile) else shlex.quote(word) for word in words)


def dns_label(text: str) -> str:
    """Return a text in the letters of a DNS label that starts with a letter: ``zoo:GPT2 xl`` becomes ``zoo-gpt2-xl``.

    One that is too long keeps its beginning and ends in a hash of the whole, so that long names stay different.
    """
    label = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not label[:1].isalpha():
        label = f"job-{label}".rstrip("-")
    if len(label) > MAX_NAME:
        label = f"{label[: MAX_NAME - 9].rstrip('-')}-{files.digest(text)[:8]}"
    return label


def header(name: str, plan: PlacementPlan, scheduler: str, not_guaranteed: Sequence[str]) -> str:
    """Comment lines for the head of a file. Of the plan's texts only the checked job name appears in them."""
    lines = [f"Job {name}; ranks: {plan.num_ranks}, hosts: {len(plan.host_order)}.", f"Not guaranteed by {scheduler}:"]
    for sentence in not_guaranteed:
        lines += textwrap.wrap(sentence, width=110, initial_indent="- ", subsequent_indent="  ")
    return "".join(f"# {line}\n" for line in lines)
