"""Options of an export that a plan does not hold: every option, its possible values, and the formats that read it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import Field, JsonValue, PrivateAttr, ValidationInfo, field_validator

from .. import settings
from ..errors import ExportError
from ..plans.document import PlacementPlan
from .probe import PROBE_WORDS
from .target import MAX_NAME, Files, FrameworkFile, Needs, dns_label

_WITHOUT_RANKS = ("chakra", "device-map", "tensorflow")
"""Formats that start no ranks."""


class _Words(NamedTuple):
    """Texts that go into a scheduler's file as they are, so that only what cannot mean anything else is taken.

    Attributes:
        pattern: of the whole text.
        wanted: the pattern for people.
    """

    pattern: str
    wanted: str

    def several(self) -> _Words:
        """Write as many as sixteen, with commas between."""
        return _Words(f"({self.pattern})(,({self.pattern})){{0,15}}", f"{self.wanted}, with commas between several")


_KEY = "[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_LABEL = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_DNS = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_PATH = "/[A-Za-z0-9._/+=@%-]{0,254}"
_QUANTITY = "[0-9]{1,12}([.][0-9]{1,3})?(m|[kMGTPE]i?|Ki)?"
_EFFECTS = "NoSchedule|PreferNoSchedule|NoExecute"

_NAME = _Words("[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", "a name of letters, digits and . _ - is wanted")
_OBJECT = _Words(_DNS, "a name in small letters, as a DNS label has them, is wanted")
_TIME = _Words(
    "([0-9]{1,5}-[0-9]{1,2}(:[0-9]{2}){0,2}|[0-9]{1,7}(:[0-9]{2}){0,2}|UNLIMITED)",
    "minutes, MINUTES:SECONDS, HOURS:MINUTES:SECONDS, DAYS-HOURS or DAYS-HOURS:MINUTES:SECONDS is wanted",
)
_OUTPUT = _Words("[A-Za-z0-9._/%][A-Za-z0-9._/%+=@-]{0,254}", "a path of letters, digits and . _ / % + = @ - is wanted")
_MEMORY = _Words("[0-9]{1,9}[KMGT]?", "a number with K, M, G or T is wanted")
_UNBOUND = _Words(
    "(verbose,)?none", "none is wanted: a task that Slurm binds to GPUs sees others than CUDA_VISIBLE_DEVICES names"
)
_IMAGE = _Words(
    "[A-Za-z0-9./_][A-Za-z0-9./_:@#+=-]{0,254}", "an image or path of letters, digits and . / _ : @ # + = - is wanted"
)
_MOUNT = _Words(f"{_PATH}:{_PATH}(:[a-z+]{{1,32}})?", "HOST_PATH:PATH[:ro] of absolute paths is wanted")
_VOLUME = _Words(f"({_DNS}|{_PATH}):{_PATH}(:ro)?", "CLAIM:PATH[:ro] or HOST_PATH:PATH[:ro] is wanted")
_RESOURCE = _Words(f"(?!nvidia[.]com/gpu=)({_DNS}/)?{_LABEL}={_QUANTITY}", "NAME=QUANTITY, and no GPUs, is wanted")
_CARDS = _Words(
    f"(?!nvidia[.]com/gpu(=|$)){_DNS}/{_LABEL}(=[1-9][0-9]{{0,2}})?",
    "a resource other than GPUs is wanted, as rdma/hca_shared_devices_a, or NAME=COUNT",
)
_NETWORK = _Words(f"({_DNS}/)?{_DNS}", "[NAMESPACE/]NAME of networks is wanted")
_TAINT = _Words(f"({_DNS}/)?{_LABEL}(=({_LABEL})?)?(:({_EFFECTS}))?", f"KEY[=VALUE][:EFFECT] of {_EFFECTS} is wanted")


def _words(readers: str, about: str, words: _Words, default: str | None = None, most: int = 4000) -> Any:
    """Return an option of certain words, and at most so many letters, that some formats read."""
    extra: dict[str, JsonValue] = {"pattern of words": words.pattern, "wanted": words.wanted}
    return Field(default=default, max_length=most, description=f"{about} ({readers})", json_schema_extra=extra)


class ExportOptions(settings.Settings):
    """Options of an export that a plan does not hold; a description names in brackets the formats that read an option."""

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
        default=None, description="command of each rank, in shell words; by default the script under Python"
    )
    script: str = Field(default="train.py", description="Python script of each rank with its arguments, in shell words")
    env: str | None = Field(default=None, description="further variables of each rank, NAME=VALUE in shell words")
    master_port: int = Field(default=29500, ge=1, le=65535, description="port of the rendezvous on the first rank's host")
    probe: settings.Switch = Field(default=False, description="run the probe, whose lines verify-export reads, and no training")
    topology_conf: settings.Switch = Field(default=False, description="write the cluster's switches as topology.conf too (slurm)")
    sharing: Literal["hosts", "devices"] = Field(
        default="hosts",
        description="request whole hosts, so that nobody else is on them, or the plan's devices alone (slurm)",
    )
    partition: str | None = _words("slurm", "Slurm's partition, or several with commas between", _NAME.several())
    account: str | None = _words("slurm", "account that the job is charged to", _NAME)
    qos: str | None = _words("slurm", "quality of service", _NAME)
    reservation: str | None = _words("slurm", "reservation that the job runs in", _NAME)
    time: str | None = _words("slurm", "limit of the run time, as 30 (minutes), 12:00:00, 2-12 or 2-12:30:00", _TIME)
    requeue: settings.Switch | None = Field(
        default=None, description="whether Slurm may start the job again, by default as the cluster does (slurm)"
    )
    output: str | None = _words("slurm", "file of what the job prints, as logs/%x-%j.out", _OUTPUT)
    cpus_per_task: int | None = Field(default=None, ge=1, le=4096, description="processors of each rank (slurm)")
    mem: str | None = _words("slurm", "memory of each host, as 512G; 0 is all", _MEMORY)
    gpu_bind: str | None = _words("slurm", "none binds tasks to no GPU, whatever the cluster does", _UNBOUND)
    srun: str | None = Field(default=None, description="further options of srun, --NAME=VALUE in shell words (slurm)")
    container: str | None = _words("slurm", "image in which each rank runs, by pyxis: a registry's, or a .sqsh file", _IMAGE)
    mounts: str | None = _words("slurm", "folders in the container, HOST_PATH:PATH[:ro] with commas between", _MOUNT.several())
    kubernetes: Literal["jobset", "trainjob", "volcano", "kueue", "all"] = Field(
        default="jobset",
        description="form to write; all leaves out, with the reason, forms that cannot express the plan (kubernetes)",
    )
    queue: str = _words("kubernetes", "Volcano's queue, or Kueue's local queue, that the job goes to", _OBJECT, "default", 253)
    runtime: str = _words("kubernetes", "ClusterTrainingRuntime of a TrainJob", _OBJECT, "torch-distributed", 253)
    priority: str | None = _words("kubernetes", "priority class of each pod", _OBJECT, most=253)
    service_account: str | None = _words("kubernetes", "account that each pod runs as", _OBJECT, most=253)
    volumes: str | None = _words(
        "kubernetes", "claims or folders of the node in each pod, CLAIM:PATH[:ro] or HOST_PATH:PATH[:ro]", _VOLUME.several()
    )
    resources: str | None = _words("kubernetes", "further limits of each pod, as cpu=64,memory=512Gi", _RESOURCE.several())
    rdma_resource: str | None = _words(
        "kubernetes", "resource of RDMA cards that each pod asks for, as rdma/hca_shared_devices_a, or NAME=COUNT", _CARDS
    )
    host_network: settings.Switch = Field(default=False, description="pods take their host's own network (kubernetes)")
    networks: str | None = _words("kubernetes", "further networks of each pod by Multus, [NAMESPACE/]NAME", _NETWORK.several())
    tolerations: str | None = _words("kubernetes", "taints that pods tolerate, KEY[=VALUE][:EFFECT]", _TAINT.several())
    decision: str | None = Field(
        default=None,
        max_length=63,
        pattern=f"^{_KEY}$",
        description="name under which a state holds the plan; a listing then knows the job again (slurm, kubernetes, ray)",
    )
    host_label: str = Field(
        default="host", max_length=63, pattern=f"^{_KEY}$", description="label of a Ray node that holds its host's name (ray)"
    )
    wait_s: float = Field(
        default=300.0, gt=0, le=86_400, description="longest wait for the placement of all ranks, in seconds (ray)"
    )
    modules: Literal["names", "gpt2", "llama", "gpt-neox"] = Field(
        default="names",
        description="how ops are named, after modules, or as the zoo does for a model of this family (device-map)",
    )

    _needs: Needs | None = PrivateAttr(default=None)

    @field_validator("command", "script")
    @classmethod
    def _check_words(cls, text: str | None) -> str | None:
        if text is None:
            return None
        if not (words := _split(text)):
            raise ValueError("is empty")
        if words[0].startswith("-"):  # --node-rank=0 would pass for the launcher's own
            raise ValueError("begins with an option; name a program (a module runs as the command 'python -m NAME')")
        return text

    @field_validator("env")
    @classmethod
    def _check_variables(cls, text: str | None) -> str | None:
        for word in _split(text or ""):
            name, equals, _ = word.partition("=")
            if not equals or not re.fullmatch("[A-Za-z_][A-Za-z0-9_]{0,127}", name):
                raise ValueError("NAME=VALUE is wanted, in shell words, as \"NCCL_DEBUG=INFO NAME='two words'\"")
            if name in _OWN_VARIABLES or name.startswith("MESHWRIGHT_"):
                raise ValueError(f"{name} is set by the export, as the plan wants it; leave it out")
        return text

    @field_validator("srun")
    @classmethod
    def _check_srun(cls, text: str | None) -> str | None:
        for word in _split(text or ""):
            name = word.partition("=")[0]
            if not re.fullmatch("--[a-z][a-z0-9-]*", name):
                raise ValueError('--NAME or --NAME=VALUE is wanted, in shell words, as "--mpi=pmix --network=job"')
            if own := next((one for one in _OWN_OPTIONS if one.startswith(name)), None):  # getopt takes beginnings of names
                raise ValueError(f"{own} is set by the export, as the plan wants it; leave it out")
        return text

    @field_validator("*", mode="before")
    @classmethod
    def _check_words_of_schedulers(cls, value: object, info: ValidationInfo) -> object:
        """Refuse texts with signs that mean something in the script's directives, which hold them as they are."""
        words = cls.model_fields[info.field_name or ""].json_schema_extra
        if not isinstance(words, dict):
            return value
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if isinstance(text, str) and not re.fullmatch(str(words["pattern of words"]), text):
            raise ValueError(str(words["wanted"]))
        return text

    @field_validator("container")
    @classmethod
    def _check_image(cls, text: str | None) -> str | None:
        """Check for a form that pyxis takes: ``[USER@][REGISTRY#]IMAGE[:TAG]``, or a path that begins with ``/`` or ``.``."""
        if text is None or text.startswith(("/", ".")):
            return text
        is_file, rest = text.endswith((".sqsh", ".sqfs")), text.rpartition("://")[2]
        registry, slash, image = rest.partition("/")
        is_registry = slash and "#" not in registry and (re.search("[.:]", registry) or registry == "localhost")
        host, mark, name = (f"{registry}#{image}" if is_registry else rest).partition("#")
        if (meant := f"./{text}" if is_file else host + mark + name.replace("#", "/")) != text:
            raise ValueError(f"pyxis takes [REGISTRY#]IMAGE[:TAG], or a path from / or ./; {meant} would do")
        return text

    def with_needs(self, needs: Needs) -> ExportOptions:
        """Return these options for a launcher that starts a framework's ranks."""
        options = self.model_copy()
        options._needs = needs
        return options

    @property
    def environment(self) -> dict[str, str]:
        """Variables that every rank has besides those of its place: a framework's, then the user's own, which win."""
        of_framework = {} if self._needs is None else dict(self._needs.environment)
        return of_framework | dict(word.split("=", 1) for word in shlex.split(self.env or ""))

    @property
    def variables(self) -> list[str]:
        """``environment`` in words for ``env``."""
        return [f"{name}={value}" for name, value in self.environment.items()]

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
        """Return the name to submit under."""
        return self.name or dns_label(plan.job.name)


_OWN_VARIABLES = {
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "SLURM_HOSTFILE"),
}

_OWN_OPTIONS = (
    *("--distribution", "--ntasks", "--ntasks-per-node", "--nodes", "--nodelist", "--nodefile", "--exclude", "--relative"),
    *("--kill-on-bad-exit", "--multi-prog", "--het-group", "--cpus-per-task", "--chdir", "--container-image"),
    *("--container-mounts", "--container-workdir", "--gpu-bind", "--gpus", "--gpus-per-task", "--gpus-per-node", "--gres"),
    *("--export", "--jobid"),
)
"""Options of srun that choose hosts, ranks and devices, or that other keys say."""


def _split(text: str) -> list[str]:
    """Return the shell words of a text.

    Raises:
        ValueError: a control character, or a quotation mark that is not closed.
    """
    if not text.isprintable():
        raise ValueError("holds a control character")
    try:
        return shlex.split(text)
    except ValueError:
        raise ValueError("a quotation mark is not closed") from None


TEXTS = tuple(key for key, about in ExportOptions.model_fields.items() if about.annotation in (str, str | None))
"""Options that are texts; a command line hands them over as they are."""

_READ_BY: dict[str, tuple[str, ...]] = {
    key: tuple(found[1].split(", "))
    for key, about in ExportOptions.model_fields.items()
    if (found := re.search(r" \(([a-z, -]+)\)$", about.description or ""))
}
"""By option the formats that read it; ``name`` is read by all, other options by those that start ranks."""

_FORMS = {"queue": ("volcano", "kueue", "all"), "runtime": ("trainjob", "all")}
"""Forms of Kubernetes by option that only some of them read."""

_SAME = {
    "slurm": {"image": "container", "queue": "partition", "volumes": "mounts", "priority": "qos", "resources": "mem"},
    "kubernetes": {
        **{"container": "image", "partition": "queue, with kubernetes=kueue or volcano", "mounts": "volumes"},
        **{"qos": "priority", "mem": "resources, as memory=512Gi", "cpus_per_task": "resources, as cpu=64"},
    },
}
"""By format another's key and the format's own of the same meaning."""


def keys_of(target: str) -> tuple[str, ...]:
    """Return the options that a format reads, in the order in which `ExportOptions` has them."""
    return tuple(key for key in ExportOptions.model_fields if _reads(target, key))


def refuse_unread(targets: Iterable[str], options: Mapping[str, Any]) -> None:
    """Refuse an option that none of the formats asked for reads, which would be lost in silence.

    Args:
        targets: formats that are exported with these options.
        options: keys and values that somebody set; unknown ones are left to `ExportOptions`.

    Raises:
        ExportError: the first such key; the formats that read it are named, and the format's own key of the same meaning.
    """
    target_names = tuple(targets)
    form = options.get("kubernetes", ExportOptions.model_fields["kubernetes"].default)
    for key in [key for key in options if key in ExportOptions.model_fields]:
        if not any(_reads(target, key) for target in target_names):
            readers = _READ_BY.get(key)
            who = (
                f"{_listed(readers)} read{'s' if len(readers) == 1 else ''} it" if readers else "formats that start ranks read it"
            )
            own = next((_SAME[target][key] for target in target_names if key in _SAME.get(target, ())), None)
            instead = (
                f"{target_names[0]}'s own key is {own}" if own else f"{target_names[0]} reads {_listed(keys_of(target_names[0]))}"
            )
            does = "does" if len(target_names) == 1 else "do"
            raise ExportError(f"{_listed(target_names)} {does} not read it, {who}; {instead}", file="--set", field=key)
        if key in _FORMS and target_names == ("kubernetes",) and form not in _FORMS[key]:
            problem = f"is read with kubernetes={' or '.join(_FORMS[key])}, and not with {form}"
            raise ExportError(problem, file="--set", field=key)


def _reads(target: str, key: str) -> bool:
    return key == "name" or (target in _READ_BY[key] if key in _READ_BY else target not in _WITHOUT_RANKS)


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
