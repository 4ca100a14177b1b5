"""One spelling for every job graph: a zoo name, a profile found by folder name, or a path to any known format."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from .. import files
from ..devices import DeviceType, device_type
from ..errors import GraphError, Names
from ..quantities import counted
from .graph import JobGraph
from .readers import huggingface, pipedream, version_2
from .transformer import TransformerShape
from .zoo.catalogue import DEFAULT_DEVICE, zoo_graph, zoo_names, zoo_shape

PROFILE = "graph.txt"
CONFIG = "config.json"

FILES = (".txt", ".json", ".yaml", ".yml", ".csv")
"""Endings of specifications that are read as a path."""

_MODEL_HUB = re.compile(
    r"(?P<hub>(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/|(?:hf|huggingface):(?://)?)?"
    r"(?P<owner>[\w-][\w.-]*)/(?P<name>[\w.-]+?)(?:/(?:tree|blob|resolve)/.*)?/?"
)
"""A model as Hugging Face names it, by its address or as OWNER/NAME."""


class LoadedJob(NamedTuple):
    """A job graph as it was read.

    Attributes:
        graph: what is run.
        remarks: what of its source is not in it, for people.
    """

    graph: JobGraph
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobSource:
    """A job graph by its spelling, and how it is read; see `load_graph`.

    Attributes:
        spec: the specification.
        graphs_dir: where bare names are looked up.
        keep_input_ops: whether ``Input`` ops of a measured graph are in it.
        profile_batch: samples for which the figures of a profile hold.
    """

    spec: str
    graphs_dir: str | Path | None = None
    keep_input_ops: bool = False
    profile_batch: int | None = None

    def load(
        self,
        *,
        device: DeviceType | None = None,
        batch_size: int | None = None,
        sequence_length: int | None = None,
        is_placed: bool = False,
    ) -> LoadedJob:
        """Return the job graph, and what is left out of it; arguments and errors as of `load_graph`.

        ``is_placed``: ops get devices one by one, so that what a file of format_version 2 says of that counts.
        """
        graph = _read(self.spec, device, self.graphs_dir, batch_size, sequence_length)
        if self.profile_batch is not None:
            graph = _with_samples(graph, self.profile_batch)
        beyond = self.left_out if is_placed else (*self.left_out, *version_2.left_out(graph.times_s, graph.colocate))
        inputs = pipedream.is_input(graph)
        if self.keep_input_ops or graph.source != "measured" or not inputs.any():
            return LoadedJob(graph, beyond)
        left_out_s = float(graph.forward_s[inputs].sum() + graph.backward_s[inputs].sum())
        number = int(inputs.sum())
        remark = (
            f"left out: {counted(number, 'Input op')} of the profile, {1e3 * left_out_s:.4g} of "
            f"{1e3 * graph.step_s:.4g} ms, which time the data loader and not the model (--set keep_input_ops=true counts them)"
        )
        return LoadedJob(pipedream.without_inputs(graph), (remark, *beyond))

    @property
    def left_out(self) -> tuple[str, ...]:
        """The parts of a model that are not read, for people."""
        if self.spec.startswith("zoo:"):
            return ()
        path = _find(self.spec, self.graphs_dir)
        return huggingface.left_out(files.read_json(path)) if path.suffix == ".json" else ()

    def shape(self) -> tuple[TransformerShape, int] | None:
        """Return the transformer that the job is, and the batch of its graph; None where it is another job graph.

        Raises:
            InputFileError, GraphError: it is no job at all, or a transformer is given a profile's batch.
        """
        try:
            result = load_shape(self.spec)
        except GraphError:
            self.load()
            return None
        if self.profile_batch is not None:
            raise _no_profile(result[0].name, self.profile_batch)
        return result


def load_graph(
    spec: str,
    *,
    device: DeviceType | None = None,
    graphs_dir: str | Path | None = None,
    batch_size: int | None = None,
    sequence_length: int | None = None,
    keep_input_ops: bool = False,
    profile_batch: int | None = None,
) -> JobGraph:
    """Return the job graph that a specification names.

    Args:
        spec: ``zoo:NAME``, the name of a folder in ``graphs_dir`` that holds a ``graph.txt``, or a path. Paths may name a
            PipeDream ``graph.txt``, a Hugging Face ``config.json``, the folder of either, or a saved job graph (JSON).
        device: on which analytic graphs (zoo, ``config.json``) are timed, an A100 by default; measured and saved
            graphs keep the times that they carry.
        graphs_dir: where bare names are looked up.
        batch_size: samples of one step of an analytic graph; by default the source's own.
        sequence_length: tokens of each sequence of an analytic graph; by default the source's own.
        keep_input_ops: whether the ``Input`` ops of a measured graph, which time the data loader and not the model, are in it.
        profile_batch: samples for which the figures of a profile, or of a saved graph that does not say, hold.

    Raises:
        InputFileError: the file is missing or unreadable.
        GraphError: nothing of that name, an unknown format, a malformed graph, or only ``Input`` ops. Also a batch size, sequence
            length or profile's batch for a graph that has its own.
    """
    source = JobSource(spec, graphs_dir, keep_input_ops, profile_batch)
    return source.load(device=device, batch_size=batch_size, sequence_length=sequence_length).graph


def job_content(spec: str) -> tuple[str | dict[str, Any], str | None]:
    """Return a job as it is sent to a receiver without its file: ``zoo:NAME`` as it is, else the file's content and name.

    Args:
        spec: as of `load_graph`, without a folder of graphs.

    Raises:
        InputFileError: the file is missing or unreadable.
        GraphError: nothing of that name, an unknown format, or a malformed profile.
    """
    if spec.startswith("zoo:"):
        return spec, None
    path = _find(spec, None)
    data = files.read_json(path) if path.suffix == ".json" else pipedream.load_profile(path).to_data()
    if not isinstance(data, dict):
        raise GraphError("neither a saved job graph (op_names) nor a model configuration (model_type)", file=path)
    return data, huggingface.model_name(path) if "model_type" in data else None


def load_shape(spec: str) -> tuple[TransformerShape, int]:
    """Return the transformer that a specification names, and the batch of its graph.

    Args:
        spec: ``zoo:NAME`` or the path of a Hugging Face ``config.json`` or its folder.

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
    """Return the profiles ``NAME/graph.txt`` in a folder, by name.

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


def _read(
    spec: str,
    device: DeviceType | None,
    graphs_dir: str | Path | None,
    batch_size: int | None,
    sequence_length: int | None,
) -> JobGraph:
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
    if isinstance(data, dict) and "schema_version" in data and "op_names" not in data:
        raise GraphError("is a placement plan, no job; `meshwright export` takes plans", file=path)
    if not (isinstance(data, dict) and "op_names" in data):
        raise GraphError("neither a saved job graph (op_names) nor a model configuration (model_type)", file=path)
    return JobGraph.from_data(data, file=path)


def _with_samples(graph: JobGraph, samples: int) -> JobGraph:
    if samples < 1:
        raise GraphError("must be at least 1", field="--set profile_batch", value=samples)
    if graph.samples_per_step is not None:
        raise _no_profile(graph.name, samples)
    return replace(graph, samples_per_step=samples)


def _no_profile(name: str, samples: int) -> GraphError:
    return GraphError(f"is for a profile, which does not have it; {name} does", field="--set profile_batch", value=samples)


def _find(spec: str, graphs_dir: str | Path | None) -> Path:
    """Return the file that a specification other than ``zoo:NAME`` means; where it is absent, the nearest spellings."""
    profiles = [] if graphs_dir is None else profile_names(graphs_dir)
    if graphs_dir is not None and spec in profiles:
        return Path(graphs_dir) / spec / PROFILE
    path = Path(spec)
    if not spec.strip():
        raise GraphError("must not be empty", field="job", value=spec)
    files.check_path(path)
    if path.is_dir():
        return _inside(path)
    if path.suffix in (".yaml", ".yml", ".csv") and path.is_file():
        what = "a job is a graph.txt, a saved graph (JSON), a config.json, a folder of one, or zoo:NAME, and no"
        raise GraphError(f"{what} {path.suffix[1:].upper()}", file=path)
    if path.exists():
        return path
    zoo = Names("jobs", [f"zoo:{name}" for name in zoo_names()])
    _check_local(spec, path)
    is_bare_name = path.name == spec and path.suffix not in (".txt", ".json")
    if is_bare_name:
        error = GraphError("no such job", value=spec, choices=profiles + _jobs_here() + zoo)
        if "did you mean" in str(error):
            raise error
        problem = "no such job; a model that is not built in is named by the folder that holds its config.json"
        raise GraphError(problem, value=spec, choices=zoo + profiles)
    if f"zoo:{path.name}" in zoo:
        raise GraphError("no such file", file=path, value=path.name, choices=[f"zoo:{path.name}"])
    return path


def _jobs_here() -> list[str]:
    """Return the names in the working folder that may be jobs."""
    result = []
    with suppress(OSError):
        for path in sorted(Path().iterdir()):
            with suppress(OSError):  # a folder that may not be looked into
                if path.suffix in (".txt", ".json") or (path / CONFIG).is_file() or (path / PROFILE).is_file():
                    result.append(path.name)
    return result


def _check_local(spec: str, path: Path) -> None:
    """Refuse what lies in the network: an address, or a model of Hugging Face.

    Raises:
        GraphError: so it is; for a model it says how its config.json is had.
    """
    model = _MODEL_HUB.fullmatch(spec)
    is_name = path.suffix not in FILES and path.name not in zoo_names()
    if model and (model["hub"] or (is_name and not Path(model["owner"]).exists())):
        problem = "a model is not fetched" if model["hub"] else "no such file or folder, and a model is not fetched"
        made = f"`hf download {model['owner']}/{model['name']} config.json --local-dir {model['name']}`"
        raise GraphError(f"{problem}; name a folder that holds its config.json, as {made} makes", value=spec)
    if "://" in spec:
        raise GraphError("is not fetched from the network; save it, or a model's config.json, and name the file", value=spec)


def _inside(folder: Path) -> Path:
    """Return the job of a folder.

    Raises:
        GraphError: there is none, or there are two.
    """
    held = [folder / name for name in (PROFILE, CONFIG) if (folder / name).is_file()]
    if len(held) == 1:
        return held[0]
    if held:
        raise GraphError(f"the folder holds {PROFILE} and {CONFIG}; name one of the two", file=folder)
    raise GraphError(f"the folder holds no {PROFILE} and no {CONFIG}, which says what a model is", file=folder)
