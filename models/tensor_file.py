"""Tensors and plain data in one file, as `torch.save` writes it, read so that a file from elsewhere does no harm.

A reader that trusts a file may be made to run code, or to allocate 800 GB. A tensor of more numbers than are stored does that (a
view with a stride of 0, a sparse tensor, one without data). So does a compressed member, or an object of any size that a pickle
makes. So the archive is checked first: `torch.save` does not compress it, and its pickle calls few names. Then the size of every
tensor is checked.
"""

from __future__ import annotations

import io
import math
import pickletools
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import torch

from .. import files
from ..errors import CheckpointError, InputFileError

_PICKLE = "data.pkl"
_DATA_TYPES = ("Bool", "Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double")
_CALLED = {
    "collections OrderedDict",
    "torch._utils _rebuild_tensor_v2",
    *(f"torch {data_type}Storage" for data_type in _DATA_TYPES),
}
"""All that the pickle of dense tensors and plain data names."""


def save_tensors(path: str | Path, data: dict[str, Any]) -> None:
    """Write dense tensors and plain data, whole or not at all.

    Raises:
        InputFileError: it cannot be written.
    """
    buffer = io.BytesIO()
    torch.save(data, buffer)
    with files.atomic_file(path) as file:
        file.write(buffer.getvalue())


def load_tensors(path: str | Path) -> Any:
    """Read what `save_tensors` wrote, without running any code from the file, in memory of about the file's size.

    Raises:
        CheckpointError: missing, truncated, of another kind, or it holds tensors of more numbers than are stored.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError("no such file", file=path)
    try:
        content = files.read_bytes(path)
    except InputFileError as error:
        raise CheckpointError(error.problem, file=error.file, field=error.field, value=error.value) from None
    try:
        _check_archive(content)
        data = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except Exception:  # whatever the readers stumble over in bytes that are not their own
        raise CheckpointError("is truncated or not a file of tensors", file=path) from None
    for tensor in _tensors(data):
        if math.prod(tensor.shape) * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise CheckpointError("holds a tensor of more numbers than are stored", file=path, value=list(tensor.shape))
    return data


def _check_archive(content: bytes) -> None:
    """Refuse an archive of other members, or a pickle of other names, than `torch.save` makes of dense tensors.

    Raises:
        ValueError: it is one.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        names = [member.filename for member in members]
        if not content.startswith(b"PK") or len(set(names)) < len(names):
            raise ValueError
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError
        if sum(member.file_size for member in members) > len(content):
            raise ValueError
        (pickle,) = (name for name in names if PurePosixPath(name).name == _PICKLE)
        for operation, argument, _ in pickletools.genops(archive.read(pickle)):
            if operation.name == "GLOBAL" and argument not in _CALLED:
                raise ValueError


def _tensors(data: Any) -> Iterator[torch.Tensor]:
    """Yield every tensor in nested mappings and sequences, which may hold themselves."""
    waiting, seen = [data], set[int]()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, Mapping):
            waiting += [*value.keys(), *value.values()]
        elif isinstance(value, list | tuple | set):
            waiting += value
