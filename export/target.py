"""What a target is: a name, a pure function from plan to files, and an honest list of what it cannot promise."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import Field, field_validator

from .. import files, settings
from ..plans.document import PlacementPlan

MAX_NAME = 40
"""Longest job name: a pod adds ``-node9999-0-0`` and a random suffix to it and may not pass 63 characters."""


class ExportOptions(settings.Settings):
    """What a plan does not say and a scheduler wants to know."""

    name: str | None = Field(
        default=None,
        max_length=MAX_NAME,
        pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$",
        description="name of the submitted job; by default the plan's job in the letters of a DNS label",
    )
    image: str = Field(
        default="pytorch/pytorch:latest",
        pattern="^[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}$",
        description="container image (kubernetes)",
    )
    command: str | None = Field(
        default=None, description="what each rank runs, in shell words; by default the script under Python"
    )
    script: str = Field(default="train.py", description="Python script of each rank with its arguments, in shell words")
    master_port: int = Field(default=29500, ge=1, le=65535, description="port of the rendezvous on the first rank's host")

    @field_validator("command", "script")
    @classmethod
    def _check_words(cls, text: str | None) -> str | None:
        if text is None:
            return None
        if not text.isprintable():
            raise ValueError("holds a control character")
        try:
            words = shlex.split(text)
        except ValueError:
            raise ValueError("a quotation mark is not closed") from None
        if not words:
            raise ValueError("is empty")
        return text

    @property
    def rank_words(self) -> list[str]:
        """The command of one rank, word by word."""
        return shlex.split(self.command) if self.command is not None else ["python", "-u", *shlex.split(self.script)]

    @property
    def torchrun_words(self) -> list[str]:
        """What follows torchrun's own options, word by word."""
        return ["--no-python", *shlex.split(self.command)] if self.command is not None else shlex.split(self.script)

    def job_name(self, plan: PlacementPlan) -> str:
        """The name to submit under."""
        return self.name or dns_label(plan.job.name)


@dataclass(frozen=True)
class Target:
    """A scheduler or launcher that plans are exported to.

    Attributes:
        name: as ``--format`` spells it.
        summary: what is written, in one line.
        guaranteed: what the target keeps, a sentence each.
        not_guaranteed: what it does not keep, a sentence each; heads every file.
        render: plan and options to ``{file name: text}``; raises `ExportError` where the target cannot express the plan.
    """

    name: str
    summary: str
    guaranteed: tuple[str, ...]
    not_guaranteed: tuple[str, ...]
    render: Callable[[PlacementPlan, ExportOptions], dict[str, str]]


def dns_label(text: str) -> str:
    """A text in the letters of a DNS label that starts with a letter: ``zoo:GPT2 xl`` becomes ``zoo-gpt2-xl``.

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
    lines = [f"Job {name}; ranks: {plan.num_ranks}, hosts: {len(plan.host_order)}.", f"What {scheduler} does not guarantee:"]
    for sentence in not_guaranteed:
        lines += textwrap.wrap(sentence, width=110, initial_indent="- ", subsequent_indent="  ")
    return "".join(f"# {line}\n" for line in lines)
