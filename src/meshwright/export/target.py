"""What a target is: a name, a pure function from plan to files, and an honest list of what it cannot promise."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator

from .. import files, settings
from ..plans.document import PlacementPlan
from .probe import PROBE_WORDS

Files = dict[str, str | bytes]
"""What a target writes: content by name. A name is a relative path with ``/`` (``traces/rank0.et``); text is written as
UTF-8, bytes as they are; what starts with ``#!`` becomes executable."""


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


_NAME = "[A-Za-z0-9_][A-Za-z0-9._-]{0,63}"
_LABEL = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_DNS = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_QUALIFIED = f"{_DNS}/{_LABEL}"
_NETWORK = f"({_DNS}/)?{_DNS}"
_TAINT = f"({_DNS}/)?{_LABEL}(=({_LABEL})?)?(:(NoSchedule|PreferNoSchedule|NoExecute))?"
"""Names as Kubernetes spells them: nothing that YAML or a shell reads otherwise."""

_WORDS = {
    "partition": (f"{_NAME}(,{_NAME}){{0,15}}", "names of letters, digits and . _ - are wanted, with commas between several"),
    "account": (_NAME, "a name of letters, digits and . _ - is wanted"),
    "time": (
        "([0-9]{1,5}-[0-9]{1,2}(:[0-9]{2}){0,2}|[0-9]{1,7}(:[0-9]{2}){0,2}|UNLIMITED)",
        "minutes, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS or DAYS-HOURS:MINUTES:SECONDS is wanted",
    ),
    "container": (
        "[A-Za-z0-9./_][A-Za-z0-9./_:@#+=-]{0,254}",
        "an image or path of letters, digits and . / _ : @ # + = - is wanted",
    ),
    "rdma_resource": (
        f"(?!nvidia[.]com/gpu(=|$)){_QUALIFIED}(=[1-9][0-9]{{0,2}})?",
        "a resource other than GPUs is wanted, as rdma/hca_shared_devices_a, or NAME=COUNT",
    ),
    "networks": (f"{_NETWORK}(,{_NETWORK}){{0,15}}", "[NAMESPACE/]NAME of networks is wanted, with commas between several"),
    "tolerations": (
        f"{_TAINT}(,{_TAINT}){{0,15}}",
        "KEY[=VALUE][:EFFECT] is wanted, with commas between several; effects are NoSchedule, PreferNoSchedule and NoExecute",
    ),
}
"""By option what words of Slurm and Kubernetes may be, and how that is told."""


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
    probe: bool = Field(
        default=False,
        strict=True,
        description="run the probe in place of the training: each rank prints where it is, for verify-export to read",
    )
    topology_conf: bool = Field(
        default=False, strict=True, description="also write the switches of the plan's cluster as topology.conf (slurm)"
    )
    sharing: Literal["hosts", "devices"] = Field(
        default="hosts",
        description="what is asked for (slurm): hosts whole, so that nobody else is on them, or the plan's devices alone",
    )
    partition: str | None = Field(default=None, description="Slurm's partition, or several with commas between (slurm)")
    account: str | None = Field(default=None, description="account that the job is charged to (slurm)")
    time: str | None = Field(
        default=None, description="limit of the job's run time, as 30 (minutes), 12:00:00, 2-12 or 2-12:30:00 (slurm)"
    )
    container: str | None = Field(
        default=None, description="image in which each rank runs, by pyxis: a registry's, or the path of a .sqsh file (slurm)"
    )
    kubernetes: Literal["jobset", "trainjob", "volcano", "kueue", "all"] = Field(
        default="jobset",
        description="what to write (kubernetes); all leaves out, with the reason, what cannot express the plan",
    )
    queue: str = Field(
        default="default",
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        description="queue that the job is submitted to (kubernetes: Volcano's, or Kueue's local queue)",
    )
    runtime: str = Field(
        default="torch-distributed",
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        description="ClusterTrainingRuntime of a TrainJob (kubernetes)",
    )
    rdma_resource: str | None = Field(
        default=None,
        max_length=320,
        description="resource of RDMA cards that each pod asks for, as rdma/hca_shared_devices_a, or NAME=COUNT (kubernetes)",
    )
    host_network: bool = Field(default=False, strict=True, description="pods take their host's own network (kubernetes)")
    networks: str | None = Field(
        default=None,
        max_length=2000,
        description="further networks of each pod by Multus, [NAMESPACE/]NAME with commas between (kubernetes)",
    )
    tolerations: str | None = Field(
        default=None,
        max_length=2000,
        description="taints that pods tolerate, KEY[=VALUE][:EFFECT] with commas between (kubernetes)",
    )
    decision: str | None = Field(
        default=None,
        max_length=63,
        pattern="^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        description="name under which a state holds the plan; a listing then knows the job again (slurm, kubernetes, ray)",
    )
    host_label: str = Field(
        default="host",
        max_length=63,
        pattern="^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
        description="label of a Ray node that holds its host's name (ray)",
    )
    wait_s: float = Field(
        default=300.0, gt=0, le=86_400, description="longest wait for the placement of all ranks, in seconds (ray)"
    )

    modules: Literal["names", "gpt2", "llama", "gpt-neox"] = Field(
        default="names",
        description="how ops are named (device-map): after modules, or as the zoo does for a model of this family",
    )

    _needs: Needs | None = PrivateAttr(default=None)

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
        if words[0].startswith("-"):  # --node-rank=0 would pass for the launcher's own
            raise ValueError("begins with an option; name a program (a module runs as the command 'python -m NAME')")
        return text

    @field_validator(*_WORDS, mode="before")
    @classmethod
    def _check_words_of_schedulers(cls, value: object, info: ValidationInfo) -> object:
        """Texts stand in the script's directives as they are, so that only what cannot mean anything else is taken."""
        pattern, wanted = _WORDS[info.field_name or ""]
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if isinstance(text, str) and not re.fullmatch(pattern, text):
            raise ValueError(wanted)
        return text

    def with_needs(self, needs: Needs) -> ExportOptions:
        """These options for a launcher that starts a framework's ranks."""
        options = self.model_copy()
        options._needs = needs
        return options

    @property
    def environment(self) -> dict[str, str]:
        """Variables that a framework wants every rank to have."""
        return {} if self._needs is None else dict(self._needs.environment)

    @property
    def carried(self) -> Files:
        """Files that a framework's arguments name."""
        needs = self._needs
        return {} if needs is None else {str(w): needs.files[w] for w in needs.arguments if isinstance(w, FrameworkFile)}

    @property
    def rank_words(self) -> list[str]:
        """The command of one rank, word by word."""
        if self.probe:
            return list(PROBE_WORDS)
        own = shlex.split(self.command) if self.command is not None else ["python", "-u", *shlex.split(self.script)]
        return [*own, *self._arguments]

    @property
    def torchrun_words(self) -> list[str]:
        """The words behind torchrun's own options."""
        if self.probe:
            return ["--no-python", *PROBE_WORDS]
        own = ["--no-python", *shlex.split(self.command)] if self.command is not None else shlex.split(self.script)
        return [*own, *self._arguments]

    @property
    def _arguments(self) -> tuple[str, ...]:
        return () if self._needs is None else self._needs.arguments

    def job_name(self, plan: PlacementPlan) -> str:
        """The name to submit under."""
        return self.name or dns_label(plan.job.name)


def _unchanged(plan: PlacementPlan) -> PlacementPlan:
    return plan


def _nothing(plan: PlacementPlan, options: ExportOptions) -> str | None:
    """No remark."""
    return None


@dataclass(frozen=True)
class Target:
    """A scheduler or launcher that plans are exported to.

    Attributes:
        name: as ``--format`` spells it.
        summary: what is written, in one line.
        guaranteed: what the target keeps, a sentence each.
        not_guaranteed: what it does not keep, a sentence each; heads every file.
        render: plan and options to files; raises `ExportError` where the target cannot express the plan.
        names_devices: whether CUDA_VISIBLE_DEVICES of its ranks counts as the host's driver does, so that what a rank says
            of its device can be held against the plan.
        as_launched: the plan with the rank numbers that the target uses, where they are not the plan's own.
        left_open: ``not_guaranteed`` with some options, where it is other than by default.
        remark: what to say to whoever exports a plan with some options; None where there is nothing to say.
    """

    name: str
    summary: str
    guaranteed: tuple[str, ...]
    not_guaranteed: tuple[str, ...]
    render: Callable[[PlacementPlan, ExportOptions], Mapping[str, str | bytes]]
    names_devices: bool = True
    as_launched: Callable[[PlacementPlan], PlacementPlan] = _unchanged
    left_open: Callable[[ExportOptions], tuple[str, ...]] | None = None
    remark: Callable[[PlacementPlan, ExportOptions], str | None] = _nothing


def joined(words: Iterable[str], folder: str = '"$MESHWRIGHT_FILES"') -> str:
    """Words as a shell reads them; a file of the export stands in ``folder``, which is the shell's own text."""
    return " ".join(f"{folder}/{word}" if isinstance(word, FrameworkFile) else shlex.quote(word) for word in words)


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
