"""Sources of listings that are polled: Slurm, Kubernetes, Ray, or a file.

Slurm is asked in three ways that give the same: its text, its JSON, and slurmrestd. Where JSON cannot be read, as from a
release with an unknown form, the text takes its place, and a remark says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ...errors import ConfigError, InputFileError, MeshwrightError
from ..state import ClusterState, load_state
from . import kubernetes, ray, slurm, slurm_json
from .connections import ADDRESSES, UNIX, is_address
from .listings import Listing
from .slurmrestd import TOKEN_OPTION, Slurmrestd

FILE = "file:"
KUBERNETES = "kubernetes"
SLURM = "slurm:"
TEXT, JSON = "text", "json"
NAMES = ("slurm", f"{SLURM}{JSON}", f"{SLURM}http://HOST:PORT", f"{SLURM}{UNIX}PATH", KUBERNETES, "ray", f"{FILE}PATH")


@dataclass(frozen=True)
class Source:
    """See the module.

    Attributes:
        name: of it.
        program: that answers, for messages.
        ask: its whole answer.
        read: reads a saved answer, given the state so far.
        otherwise: second request where the form of an answer is unknown.
        read_asked: reads what `ask` returned; `read` by default.
    """

    name: str
    program: str
    ask: Callable[[], str]
    read: Callable[[str, ClusterState], Listing]
    otherwise: Source | None = None
    read_asked: Callable[[str, ClusterState], Listing] | None = None

    def listing(self, known: ClusterState) -> Listing:
        """Ask, and read the answer.

        Raises:
            MeshwrightError: it cannot be asked, or its answer cannot be understood.
        """
        try:
            return self.said(self._answer(), known)
        except slurm_json.FormError as error:
            if self.otherwise is None:
                raise
            try:
                result = self.otherwise.listing(known)
            except MeshwrightError as other:
                raise type(error)(f"{error.problem}; nor can its text be read: {other}", file=error.file) from None
            return replace(result, remarks=(f"{error.problem}; its text was read in place of it", *result.remarks))

    def _answer(self) -> str:
        try:
            return self.ask()
        except MeshwrightError as error:
            raise error.at(file=self.program) from None

    def said(self, text: str, known: ClusterState, file: Path | None = None) -> Listing:
        """Read an answer; ``file`` is where it was saved.

        Raises:
            MeshwrightError: it cannot be understood.
        """
        try:
            return (self.read if file is not None else self.read_asked or self.read)(text, known)
        except MeshwrightError as error:
            raise error.at(file=self.program if file is None else file) from None


def source(
    spec: str,
    *,
    resource: str = "nvidia.com/gpu",
    context: str | None = None,
    address: str = "auto",
    host_label: str = "host",
    slurm_token_file: Path | None = None,
) -> Source:
    """Return a source by its name.

    Args:
        spec: one of `NAMES`.
        resource, context: of Kubernetes, as `kubernetes.read` and `kubernetes.ask` take them.
        address, host_label: of Ray, as `ray.ask` and `ray.read` take them.
        slurm_token_file: of slurmrestd, as `Slurmrestd` takes it.

    Raises:
        ConfigError: an option that goes with another source, or no such address.
        InputFileError: none of this name, or no such file.
    """
    if spec == "slurm" or spec.startswith(SLURM):
        return _slurm(spec.removeprefix("slurm").removeprefix(":") or TEXT, slurm_token_file)
    if slurm_token_file is not None:
        raise ConfigError("goes with slurmrestd", field=TOKEN_OPTION)
    if spec == KUBERNETES:
        return Source(
            spec,
            kubernetes.PROGRAM,
            lambda: kubernetes.ask(context),
            lambda text, known: kubernetes.read(text, resource, known),
            read_asked=lambda text, known: kubernetes.read(text, resource, known, is_whole=True),
        )
    if spec == "ray":
        return Source(spec, ray.PROGRAM, lambda: ray.ask(address), lambda text, known: ray.read(text, host_label, known))
    if not spec.startswith(FILE):
        raise InputFileError("no such source", field="source", value=spec, choices=NAMES)
    path = Path(spec.removeprefix(FILE))
    if not path.is_file():
        raise InputFileError("no such file", field="source", value=str(path))
    return Source("file", str(path), lambda: str(path), lambda reported, known: Listing(_of_file(load_state(reported))))


def _slurm(by: str, token_file: Path | None) -> Source:
    """Return Slurm, asked by `TEXT`, by `JSON`, or at the address of slurmrestd."""
    text = Source("slurm", slurm.PROGRAM, slurm.ask, _read_slurm)
    if by in (TEXT, JSON):
        if token_file is not None:
            raise ConfigError("goes with slurmrestd", field=TOKEN_OPTION)
        return text if by == TEXT else Source("slurm", slurm_json.PROGRAM, slurm_json.ask, slurm_json.read, text)
    if not by.startswith((UNIX, "http:", "https:")):
        choices = (TEXT, JSON, "http://HOST:PORT", f"{UNIX}PATH")
        raise ConfigError("no such way to ask Slurm", field="source", value=by, choices=choices)
    if not is_address(by):
        raise ConfigError(f"must be {ADDRESSES}", field="source", value=by)
    rest = Slurmrestd(by, token_file)
    return Source("slurm", f"slurmrestd {rest.url}", rest.ask, slurm_json.read, text)


def _read_slurm(text: str, known: ClusterState) -> Listing:
    """Read a saved answer of either form."""
    return slurm_json.read(text, known) if text.lstrip().startswith("{") else slurm.read(text, known)


def _of_file(state: ClusterState) -> ClusterState:
    """Return a state that somebody else keeps; its planned jobs are jobs as any other."""
    jobs = tuple(job.model_copy(update={"source": "file"}) if job.source == "plan" else job for job in state.jobs)
    return state.model_copy(update={"jobs": jobs})
