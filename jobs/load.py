"""One spelling for every job graph: a zoo name, a profile found by folder name, or a path to any known format."""

from __future__ import annotations

from pathlib import Path

from .. import files
from ..devices import DeviceType, device_type
from ..errors import GraphError
from . import huggingface, pipedream
from .graph import JobGraph
from .transformer import TransformerShape
from .zoo import DEFAULT_DEVICE, zoo_graph, zoo_names, zoo_shape

PROFILE = "graph.txt"


def load_graph(
    spec: str,
    *,
    device: DeviceType | None = None,
    graphs_dir: str | Path | None = None,
    batch_size: int | None = None,
    sequence_length: int | None = None,
) -> JobGraph:
    """The job graph that a specification names.

    Args:
        spec: ``zoo:NAME``; the name of a folder in ``graphs_dir`` that holds a ``graph.txt``; or a path to a
            PipeDream ``graph.txt`` (or its folder), a saved job graph (JSON) or a Hugging Face ``config.json``.
        device: on which analytic graphs (zoo, ``config.json``) are timed, an A100 by default; measured and saved
            graphs keep the times that they carry.
        graphs_dir: where bare names are looked up.
        batch_size: samples of one step of an analytic graph; by default the source's own.
        sequence_length: tokens of each sequence of an analytic graph; by default the source's own.

    Raises:
        InputFileError: the file is missing or unreadable.
        GraphError: nothing of that name, an unknown format, a malformed graph, or a batch size or sequence length
            for a graph that has its figures already.
    """
    if spec.startswith("zoo:"):
        return zoo_graph(spec.removeprefix("zoo:"), device, batch_size=batch_size, sequence_length=sequence_length)
    path = _find(spec, graphs_dir)
    is_json = path.suffix == ".json"
    data = files.read_json(path) if is_json else None
    if isinstance(data, dict) and "model_type" in data:
        graph = huggingface.load_config(path, batch_size=batch_size, sequence_length=sequence_length)
        return graph.timed_on(device or device_type(DEFAULT_DEVICE))
    for field, value in (("batch_size", batch_size), ("sequence_length", sequence_length)):
        if value is not None:
            raise GraphError("the graph's figures hold for its own batch only", file=path, field=field, value=value)
    if not is_json:
        return pipedream.load_profile(path)
    if not (isinstance(data, dict) and "op_names" in data):
        raise GraphError("neither a saved job graph (op_names) nor a model configuration (model_type)", file=path)
    return JobGraph.from_data(data, file=path)


def load_shape(spec: str) -> tuple[TransformerShape, int]:
    """The transformer that a specification names, and the batch of its graph.

    Args:
        spec: ``zoo:NAME`` or the path of a Hugging Face ``config.json``.

    Raises:
        InputFileError: the file is missing or unreadable.
        GraphError: nothing of that name, or no transformer.
    """
    if spec.startswith("zoo:"):
        return zoo_shape(spec.removeprefix("zoo:"))
    path = _find(spec, None)
    data = files.read_json(path) if path.suffix == ".json" else None
    if not (isinstance(data, dict) and "model_type" in data):
        raise GraphError("a parallel layout needs a transformer: a config.json or one of the zoo", file=path)
    return huggingface.read_shape(path), huggingface.DEFAULT_BATCH_SIZE


def profile_names(graphs_dir: str | Path) -> list[str]:
    """The profiles ``NAME/graph.txt`` in a folder, by name.

    Raises:
        GraphError: the folder is missing or holds none.
    """
    folder = Path(graphs_dir)
    if not folder.is_dir():
        raise GraphError("no such folder of graphs", file=folder)
    names = sorted(path.parent.name for path in folder.glob(f"*/{PROFILE}"))
    if not names:
        raise GraphError(f"the folder holds no profile (NAME/{PROFILE})", file=folder)
    return names


def _find(spec: str, graphs_dir: str | Path | None) -> Path:
    """The file that a specification other than ``zoo:NAME`` means; where it is absent, the nearest spellings."""
    profiles = [] if graphs_dir is None else profile_names(graphs_dir)
    if graphs_dir is not None and spec in profiles:
        return Path(graphs_dir) / spec / PROFILE
    path = Path(spec)
    if path.is_dir():
        if not (path / PROFILE).is_file():
            raise GraphError(f"the folder holds no {PROFILE}", file=path)
        return path / PROFILE
    is_bare_name = path.name == spec and path.suffix not in (".txt", ".json")
    if is_bare_name and not path.exists():
        choices = [f"zoo:{name}" for name in zoo_names()] + profiles
        raise GraphError("no such job", value=spec, choices=choices)
    return path
