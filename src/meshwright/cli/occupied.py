"""``--state FILE``: the devices that a new job can have, of a cluster that others use too."""

from __future__ import annotations

import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

from . import output
from .options import option

if TYPE_CHECKING:
    from rich.console import Console

    from ..live.state import ClusterState, HeldDevices

StateFile = Annotated[
    Path | None, option("FILE", "Who holds which devices, as `meshwright state` keeps it; by default nobody.", "--state")
]


def is_service(state: str) -> bool:
    """Return whether a state is the address of a service in place of a file."""
    from ..live.sources.connections import is_address

    return "://" in state or is_address(state)


class Occupied(NamedTuple):
    """A state, its file, and who holds which devices of a cluster by it."""

    file: Path
    state: ClusterState
    taken: HeldDevices

    def show(self, out: Console, json_file: str | None) -> None:
        """Print how much was free, which parts of the state did not fit, and how the plan's devices are taken."""
        free = int(self.taken.is_free.sum())
        lines = [f"{self.file.name}: {free} of {len(self.taken.is_free)} devices are free", *self.taken.remarks]
        if json_file not in (None, "-") and self.file.suffix not in (".yaml", ".yml"):
            lines.append(
                f"to hold its devices: meshwright state add {shlex.quote(str(json_file))} --state {shlex.quote(str(self.file))}"
            )
        output.print_remarks(out, lines)


def read_state(file: Path | None, cluster: str) -> Occupied | None:
    """Return the state of a cluster; None without the option.

    Raises:
        InputFileError: the file is missing, or of another kind.
        MeshwrightError: the state is wrong, or not of this cluster.
    """
    if file is None:
        return None
    from ..clusters import load_cluster
    from ..errors import InputFileError, MeshwrightWarning
    from ..live.keeping import KeptState
    from ..live.state import occupancy

    stored = KeptState(file)
    if not file.exists():
        raise InputFileError("no such file; `meshwright state` makes one", field="--state", value=str(file))
    state = stored.read()
    taken = occupancy(state, load_cluster(cluster), file=file)
    if not taken.is_free.any():  # the plan is refused, and its table prints no remarks
        for remark in taken.remarks:
            warnings.warn(f"{file}: {remark}", MeshwrightWarning, stacklevel=2)
    return Occupied(file, state, taken)
