"""Policies by their spelling, which take their files along to where these do not lie.

A policy is made where it plays, from its spelling: those that are compiled or hold closures cannot be pickled. Where the spelling
names a file of this machine, a worker elsewhere makes the policy from the bytes of that file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Generic, TypeVar

Made = TypeVar("Made")


class CarriedPolicies(Generic[Made]):
    """Policies, each made when it is first asked for; what is pickled are spellings and bytes of files.

    Args:
        make: a policy from its spelling; can be pickled.
        file_of: which part of a spelling names a file, and that file; None where none does. Can be pickled.
        specs: spellings whose files are carried.
    """

    def __init__(
        self, make: Callable[[str], Made], file_of: Callable[[str], tuple[str, Path] | None], specs: Iterable[str]
    ) -> None:
        self._make, self._file_of, self._specs = make, file_of, tuple(dict.fromkeys(specs))
        self._carried: dict[str, tuple[str, str, bytes]] = {}
        self._made: dict[str, Made] = {}

    def __getitem__(self, spec: str) -> Made:
        if spec not in self._made:
            self._made[spec] = self._from_carried(spec) if spec in self._carried else self._make(spec)
        return self._made[spec]

    def __getstate__(self) -> dict[str, Any]:
        found = {spec: self._file_of(spec) for spec in self._specs}
        carried = {spec: (file[0], file[1].name, file[1].read_bytes()) for spec, file in found.items() if file is not None}
        return vars(self) | {"_carried": carried, "_made": {}}

    def _from_carried(self, spec: str) -> Made:
        named, name, content = self._carried[spec]
        with TemporaryDirectory(prefix="meshwright-") as folder:
            file = Path(folder) / name
            file.write_bytes(content)
            return self._make(spec.replace(named, str(file)))
