"""A source of listings that is asked again and again: Slurm, Kubernetes, Ray, or a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputFileError, MeshwrightError
from ..state import ClusterState, load_state
from . import kubernetes, ray, slurm
from .listings import Listing

FILE = "file:"
KUBERNETES = "kubernetes"
NAMES = ("slurm", KUBERNETES, "ray", f"{FILE}PATH")


@dataclass(frozen=True)
class Source:
    """See the module.

    Attributes:
        name: of it.
        program: that answers, for messages.
        ask: its whole answer.
        read: what an answer says, beside the state so far.
    """

    name: str
    program: str
    ask: Callable[[], str]
    read: Callable[[str, ClusterState], Listing]

    def listing(self, known: ClusterState) -> Listing:
        """Ask, and read the answer.

        Raises:
            MeshwrightError: it cannot be asked, or its answer cannot be understood.
        """
        return self.said(self.ask(), known)

    def said(self, text: str, known: ClusterState, file: Path | None = None) -> Listing:
        """What an answer says; ``file`` is where it was saved.

        Raises:
            MeshwrightError: it cannot be understood.
        """
        try:
            return self.read(text, known)
        except MeshwrightError as error:
            raise error.at(file=self.program if file is None else file) from None


def source(
    spec: str, *, resource: str = "nvidia.com/gpu", context: str | None = None, address: str = "auto", host_label: str = "host"
) -> Source:
    """A source by its name.

    Args:
        spec: one of `NAMES`.
        resource, context: of Kubernetes, as `kubernetes.read` and `kubernetes.ask` take them.
        address, host_label: of Ray, as `ray.ask` and `ray.read` take them.

    Raises:
        InputFileError: none of this name, or no such file.
    """
    if spec == "slurm":
        return Source(spec, slurm.PROGRAM, slurm.ask, slurm.read)
    if spec == KUBERNETES:
        return Source(
            spec,
            kubernetes.PROGRAM,
            lambda: kubernetes.ask(context),
            lambda text, known: kubernetes.read(text, resource, known),
        )
    if spec == "ray":
        return Source(spec, ray.PROGRAM, lambda: ray.ask(address), lambda text, known: ray.read(text, host_label, known))
    if not spec.startswith(FILE):
        raise InputFileError("no such source", field="--source", value=spec, choices=NAMES)
    path = Path(spec.removeprefix(FILE))
    if not path.is_file():
        raise InputFileError("no such file", field="--source", value=str(path))
    return Source("file", str(path), lambda: str(path), lambda told, known: Listing(_of_file(load_state(told))))


def _of_file(state: ClusterState) -> ClusterState:
    """A state that somebody else keeps; its planned jobs are jobs as any other."""
    jobs = tuple(job.model_copy(update={"source": "file"}) if job.source == "plan" else job for job in state.jobs)
    return state.model_copy(update={"jobs": jobs})
