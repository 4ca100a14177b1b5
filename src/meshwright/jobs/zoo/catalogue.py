"""The built-in zoo: analytic graphs of well-known models, timed on a device by its roofline.

A model's default batch keeps one accelerator busy. Weights, gradients, optimizer state and activations of one step fit an 80 GB
device, but for models of 7 billion parameters and more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from ... import packaged, settings
from ...devices import DeviceType, device_type
from ...errors import GraphError, Names
from ..convolutional import cosmoflow, unet3d
from ..graph import JobGraph
from ..readers import huggingface
from ..transformer import TransformerShape
from . import convnets
from .gnmt import gnmt

DEFAULT_DEVICE = "a100"


@dataclass(frozen=True)
class _Model:
    """How a zoo graph is made, of a batch and, but for images, a sequence length, and its defaults; no length means images."""

    build: Callable[..., JobGraph]
    batch_size: int
    sequence_length: int | None = None
    shape: TransformerShape | None = None


def zoo_names() -> list[str]:
    """Return the names of the built-in job graphs."""
    return Names("jobs", sorted(_models()))


def zoo_graph(
    name: str, device: DeviceType | None = None, *, batch_size: int | None = None, sequence_length: int | None = None
) -> JobGraph:
    """Return a built-in job graph.

    Args:
        name: one of `zoo_names`.
        device: on which its ops are timed; an A100 by default.
        batch_size: images, sequences or sentence pairs of one step; by default the model's own.
        sequence_length: tokens of each sequence; by default the model's own. Models of images have none.

    Raises:
        GraphError: an unknown name, a batch without samples, a length for a model of images.
    """
    if name not in _models():
        raise _absent(name, _models())
    model = _models()[name]
    batch = model.batch_size if batch_size is None else batch_size
    length = model.sequence_length if sequence_length is None else sequence_length
    if batch < 1:
        raise GraphError("must be at least 1", field="batch_size", value=batch)
    if model.sequence_length is None and length is not None:
        raise GraphError(f"{name} reads images, not sequences", field="sequence_length", value=length)
    if length is not None and length < 1:
        raise GraphError("must be at least 1", field="sequence_length", value=length)
    graph = model.build(batch) if length is None else model.build(batch, length)
    return graph.timed_on(device or device_type(DEFAULT_DEVICE))


def zoo_shape(name: str) -> tuple[TransformerShape, int]:
    """Return the shape of a built-in transformer, and its default batch.

    Raises:
        GraphError: an unknown name, or no transformer.
    """
    transformers = [known for known, model in _models().items() if model.shape is not None]
    model = _models().get(name)
    if model is None or model.shape is None:
        if model is None:
            raise _absent(name, transformers)
        raise GraphError("no transformer, which a parallel layout needs", value=name, choices=transformers)
    return model.shape, model.batch_size


def _absent(name: str, known: Iterable[str]) -> GraphError:
    """Return the refusal of a name with the nearest one; where none is near, with how any other model is named."""
    error = GraphError("no such job in the zoo", value=name, choices=known)
    if not name or "did you mean" in str(error):
        return error
    message = f"no such job in the zoo (got {name[:100]!r}); any other model is named by its Hugging Face config.json"
    return GraphError(message, choices=known)


@cache
def _models() -> dict[str, _Model]:
    """Return all models by name; the transformers are in ``configs/zoo.yaml``."""
    rows, _ = settings.read_yaml(packaged.shipped_path("zoo.yaml"))
    shapes = {name: huggingface.shape_of(row["config"], name=name) for name, row in rows.items()}
    return _NO_TRANSFORMERS | {
        name: _Model(shape.graph, rows[name]["batch_size"], rows[name]["sequence_length"], shape)
        for name, shape in shapes.items()
    }


# Batches: images for the convolutional networks; volumes for CosmoFlow and the 3-D U-Net (cubes of 128); sentence pairs of 48
# tokens a side, the length in PipeDream's profile, for GNMT.
_NO_TRANSFORMERS: dict[str, _Model] = {
    "alexnet": _Model(convnets.alexnet, 256),
    "vgg16": _Model(convnets.vgg16, 256),
    "resnet18": _Model(convnets.resnet18, 256),
    "resnet50": _Model(convnets.resnet50, 256),
    "squeezenet": _Model(convnets.squeezenet, 256),
    "cosmoflow-128": _Model(cosmoflow(128).graph, 64),
    "cosmoflow-256": _Model(cosmoflow(256).graph, 16),
    "cosmoflow-512": _Model(cosmoflow(512).graph, 2),
    "unet3d": _Model(unet3d(128).graph, 4),
    "gnmt": _Model(gnmt, 128, 48),
}
