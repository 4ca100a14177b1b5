"""How a command reads its job: where bare names are looked up, and which ops of a profile count."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class JobOptions:
    """What was given; `jobs.load.JobSource` explains it.

    Attributes:
        graphs: folder of profiles.
        keep_input_ops: whether the data loader's ops count.
        profile_batch: samples of a profile.
    """

    graphs: Path | None = None
    keep_input_ops: bool = False
    profile_batch: int | None = None

    def arguments(self) -> dict[str, Any]:
        """The options as keyword arguments of `estimate`, `plan` and `search_layouts`.

        Raises:
            GraphError: the folder is missing or holds no profile.
        """
        from ..jobs.load import profile_names

        if self.graphs is not None:
            profile_names(self.graphs)
        return {"graphs_dir": self.graphs, "keep_input_ops": self.keep_input_ops, "profile_batch": self.profile_batch}
