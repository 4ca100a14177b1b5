"""The run folder of a fleet's policy: that of any run, with the network after the search for prices."""

from __future__ import annotations

from pathlib import Path

from ..run_folder import AnyRunFolder
from .settings import FleetTrainSettings


class FleetRunFolder(AnyRunFolder[FleetTrainSettings]):
    """Paths inside it."""

    kind = FleetTrainSettings
    ending = ".pt"

    @property
    def searched(self) -> Path:
        """The network after the search for prices."""
        return self.path / "searched.pt"
