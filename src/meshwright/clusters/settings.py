"""A cluster as YAML spells it: a device type, a topology, names and exceptions of single hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Discriminator, Field, Tag

from ..devices import DeviceSettings
from ..settings import Settings
from .topologies.clos import ClosSettings
from .topologies.host_table import TraceSettings
from .topologies.matrix import MatrixSettings
from .topologies.optical import OpticalSettings
from .topologies.ramp import RampSettings
from .topologies.single_host import SingleHostSettings
from .topologies.torus import TorusSettings

TopologySettings = Annotated[
    RampSettings | ClosSettings | TorusSettings | SingleHostSettings | MatrixSettings | TraceSettings | OpticalSettings,
    Field(discriminator="kind"),
]
"""``topology:``, discriminated by its ``kind``."""


DeviceSpec = Annotated[
    Annotated[str, Tag("name")] | Annotated[DeviceSettings, Tag("mapping")],
    Discriminator(lambda value: "name" if isinstance(value, str) else "mapping"),
]
"""``device:``, a built-in name or a mapping of the same keys as its file."""


class ClusterSettings(Settings):
    """The root of a cluster's YAML.

    ``device`` is what every host holds, ``device_overrides`` the hosts that hold something else, by name.
    ``host_names`` replaces the names that the topology would give, in its order. ``host_memory_gib`` is the memory of the
    smallest host, which ``offload`` of a layout fills; absent: enough.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{0,62}$")
    device: DeviceSpec
    device_overrides: dict[str, DeviceSpec] = Field(default_factory=dict)
    host_names: tuple[str, ...] | None = None
    host_memory_gib: float | None = Field(default=None, gt=0)
    topology: TopologySettings

    def resolved(self, folder: Path) -> ClusterSettings:
        """Return the cluster with the content of every file that it names written out, so that it needs no other file.

        Args:
            folder: where relative file names start.
        """
        topology = self.topology.resolved(folder)
        return self if topology is self.topology else self.model_copy(update={"topology": topology})
