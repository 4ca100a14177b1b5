"""The run folder of a fleet's policy: that of any run, with the search for weights and the network after it."""

from __future__ import annotations

from pathlib import Path

from ..run_folder import AnyRunFolder
from .settings import FleetTrainSettings


class FleetRunFolder(AnyRunFolder[FleetTrainSettings]):
    """The run folder of a fleet's policy."""

    kind = FleetTrainSettings
    ending = ".pt"

    @property
    def searched(self) -> Path:
        """The network after the search for weights."""
        return self.path / "searched.pt"

    @property
    def searching(self) -> Path:
        """The state of the search after its latest generation."""
        return self.path / "searching.json"
