"""Convolutional networks on volumes, layer by layer: the sizes that a cut of the volume needs, and the job graph.

`JobGraph` has bytes and operations of an op. The extents and reach here decide whether its volume can be cut in depth, height or
width, and how much neighbours then exchange. Shapes are those of one sample.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from ..errors import GraphError
from .builder import GraphBuilder
from .graph import JobGraph

ELEMENT_BYTES = 4
"""Bytes of single precision, in which volumes are trained.

Source: Oyama et al., "The case for strong scaling in deep learning: training large 3D CNNs with hybrid parallelism", 2020.
"""

TILE_COLUMNS = 64
"""Columns of the smallest tile of a product."""

Extent = tuple[int, int, int]


@dataclass(frozen=True)
class ConvLayer:
    """An op and the volumes that it reads and writes.

    Attributes:
        name: unique in the network.
        kind: ``conv``, ``pool``, ``up_conv``, ``batch_norm``, ``relu``, ``concatenate``, ``linear`` or ``loss``.
        inputs: numbers of the layers that it reads; none for the first.
        in_channels, out_channels: of the volumes; features of a dense layer.
        in_extent, out_extent: depth, height and width; ones for a dense layer.
        reach: positions on each side of its own part that an output needs, ``kernel // 2`` of a window that overlaps.
        parameters: elements of its weights.
        multiply_adds: of the forward pass of a sample.
    """

    name: str
    kind: str
    inputs: tuple[int, ...]
    in_channels: int
    out_channels: int
    in_extent: Extent
    out_extent: Extent
    reach: int = 0
    parameters: int = 0
    multiply_adds: int = 0

    @property
    def is_volume(self) -> bool:
        """Whether it works position by position, so that its volume can be cut."""
        return self.kind not in ("linear", "loss")

    @property
    def filled(self) -> tuple[float, float]:
        """Shares of the tiles of a product that a convolution fills with channels, forward and backward; 1 of other ops.

        Its columns are output channels, or input channels where errors go back, in tiles of 64. The backward pass takes one
        product for the weights and, behind the first layer, one for the errors.

        Source:
            NVIDIA, "Convolutional layers user's guide", 2023, section 2 (implicit products), and "Matrix multiplication
            background user's guide", 2023, section 4.2 (tiles).
        """
        if "conv" not in self.kind:
            return 1.0, 1.0
        out, into = (
            channels / (TILE_COLUMNS * -(-channels // TILE_COLUMNS)) for channels in (self.out_channels, self.in_channels)
        )
        return out, 2 / (1 / out + 1 / into) if self.inputs else out

    @property
    def output(self) -> int:
        """Elements of its output for a sample."""
        return self.out_channels * _positions(self.out_extent)


@dataclass(frozen=True)
class ConvNetShape:
    """A convolutional network on volumes.

    Attributes:
        name: of the model.
        layers: in topological order.
        element_bytes: of a weight or an activation.
    """

    name: str
    layers: tuple[ConvLayer, ...]
    element_bytes: int = ELEMENT_BYTES

    @property
    def extent(self) -> Extent:
        """Depth, height and width of the network's input."""
        return self.layers[0].in_extent

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample at the network's input."""
        return self.element_bytes * self.layers[0].in_channels * _positions(self.extent)

    def graph(self, batch_size: int) -> JobGraph:
        """Return the untimed job graph of a batch."""
        made = GraphBuilder(self.name, batch_size, self.element_bytes)
        for layer in self.layers:
            made.add(
                layer.name,
                layer.kind,
                list(layer.inputs),
                output=batch_size * layer.output,
                parameters=layer.parameters,
                multiply_adds=batch_size * layer.multiply_adds,
                trains_inputs=bool(layer.inputs),
            )
        return replace(made.build(), volumes=self)

    def to_data(self) -> dict[str, Any]:
        """Return plain data that `from_data` reads back."""
        return {
            "name": self.name,
            "element_bytes": self.element_bytes,
            "layers": [
                {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(layer).items()} for layer in self.layers
            ],
        }

    @classmethod
    def from_data(cls, data: Any) -> ConvNetShape:
        """Return the network that `to_data` described.

        Raises:
            GraphError: a key is missing or unknown, or holds something else.
        """
        keys = ("name", "element_bytes", "layers")
        if not isinstance(data, dict) or sorted(data) != sorted(keys) or not isinstance(data["layers"], list):
            raise GraphError(f"wants {', '.join(keys)}", field="volumes")
        layers = tuple(_layer(one, number) for number, one in enumerate(data["layers"]))
        if not layers or not isinstance(data["name"], str) or not _is_count(data["element_bytes"]):
            raise GraphError("wants a name, bytes of an element and layers", field="volumes")
        return cls(data["name"], layers, data["element_bytes"])


def cosmoflow(side: int) -> ConvNetShape:
    """Build CosmoFlow on cubes of 4 channels: convolutions and average pools down to 4 positions a side, then three dense layers.

    Channels are 16, 32, ... up to 256; pools have windows of 3 at a stride of 2.

    Source: Mathuriya et al., "CosmoFlow: using deep learning to learn the universe at scale", 2018. Form: Oyama et al., "The case
        for strong scaling in deep learning: training large 3D CNNs with hybrid parallelism", 2020, table 1.
    """
    net = _Net(f"cosmoflow-{side}", 4, side)
    at, channels = net.source, 16
    while at.extent[0] > 4:
        at = net.pool(net.relu(net.conv(at, min(channels, 256), 3)))
        channels *= 2
    at = net.relu(net.linear(at, 2048))
    at = net.relu(net.linear(at, 256))
    return net.finish(net.linear(at, 4))


def unet3d(side: int, *, in_channels: int = 1, classes: int = 3) -> ConvNetShape:
    """Build a 3-D U-Net with padded convolutions and batch normalisation: three levels down, three up, skips between them.

    Source: Cicek et al., "3D U-Net: learning dense volumetric segmentation from sparse annotation", 2016, figure 2.
    """
    net = _Net("unet3d", in_channels, side)
    at, skips = net.source, []
    for width in (32, 64, 128):
        at = net.block(net.block(at, width), 2 * width)
        skips.append(at)
        at = net.pool(at, window=2)
    at = net.block(net.block(at, 256), 512)
    for skip in reversed(skips):
        at = net.concatenate(net.up_conv(at), skip)
        at = net.block(net.block(at, skip.channels), skip.channels)
    return net.finish(net.conv(at, classes, 1))


@dataclass(frozen=True)
class _Volume:
    op: int | None
    channels: int
    extent: Extent


class _Net:
    """Adds layers and follows their volumes."""

    def __init__(self, name: str, channels: int, side: int) -> None:
        self.source = _Volume(None, channels, (side, side, side))
        self._name = name
        self._layers: list[ConvLayer] = []

    def conv(self, x: _Volume, channels: int, kernel: int, *, bias: bool = True) -> _Volume:
        weights = kernel**3 * x.channels * channels
        adds = weights * _positions(x.extent)
        return self._add("conv", [x], channels, x.extent, kernel // 2, weights + channels * bias, adds)

    def block(self, x: _Volume, channels: int) -> _Volume:
        """Return a convolution, batch normalisation and a rectifier."""
        y = self.conv(x, channels, 3)
        return self.relu(self._add("batch_norm", [y], channels, y.extent, 0, 2 * channels))

    def up_conv(self, x: _Volume) -> _Volume:
        """Return a transposed convolution of windows of 2 at a stride of 2, which do not overlap."""
        weights = 8 * x.channels**2
        extent = _scaled(x.extent, 2, 1)
        return self._add("up_conv", [x], x.channels, extent, 0, weights + x.channels, weights * _positions(x.extent))

    def pool(self, x: _Volume, window: int = 3) -> _Volume:
        return self._add("pool", [x], x.channels, _scaled(x.extent, 1, 2), window // 2 if window % 2 else 0)

    def relu(self, x: _Volume) -> _Volume:
        return self._add("relu", [x], x.channels, x.extent)

    def concatenate(self, x: _Volume, y: _Volume) -> _Volume:
        return self._add("concatenate", [x, y], x.channels + y.channels, x.extent)

    def linear(self, x: _Volume, features: int) -> _Volume:
        weights = x.channels * _positions(x.extent) * features
        return self._add("linear", [x], features, (1, 1, 1), 0, weights + features, weights)

    def finish(self, x: _Volume) -> ConvNetShape:
        """Close the network with its loss, a number for each sample."""
        self._add("loss", [x], 1, (1, 1, 1))
        return ConvNetShape(self._name, tuple(self._layers))

    def _add(
        self,
        kind: str,
        xs: list[_Volume],
        channels: int,
        extent: Extent,
        reach: int = 0,
        parameters: int = 0,
        multiply_adds: int = 0,
    ) -> _Volume:
        number = 1 + sum(layer.name.startswith(f"{kind}_") for layer in self._layers)
        inputs = tuple(x.op for x in xs if x.op is not None)
        in_channels = sum(x.channels for x in xs)
        layer = ConvLayer(
            f"{kind}_{number}", kind, inputs, in_channels, channels, xs[0].extent, extent, reach, parameters, multiply_adds
        )
        self._layers.append(layer)
        return _Volume(len(self._layers) - 1, channels, extent)


def _positions(extent: Extent) -> int:
    return extent[0] * extent[1] * extent[2]


def _scaled(extent: Extent, times: int, over: int) -> Extent:
    return extent[0] * times // over, extent[1] * times // over, extent[2] * times // over


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**53


def _layer(data: Any, number: int) -> ConvLayer:
    field = f"volumes.layers.{number}"
    if not isinstance(data, dict) or sorted(data) != sorted(ConvLayer.__dataclass_fields__):
        raise GraphError(f"wants {', '.join(ConvLayer.__dataclass_fields__)}", field=field)
    for key in ("name", "kind"):
        if not isinstance(data[key], str):
            raise GraphError("is a text", field=f"{field}.{key}", value=str(data[key]))
    for key in ("in_channels", "out_channels"):
        if not _is_count(data[key]):
            raise GraphError("is a positive whole number", field=f"{field}.{key}", value=str(data[key]))
    for key in ("reach", "parameters", "multiply_adds"):
        if data[key] != 0 and not _is_count(data[key]):
            raise GraphError("is a whole number, not negative", field=f"{field}.{key}", value=str(data[key]))
    for key in ("in_extent", "out_extent"):
        if not (isinstance(data[key], list) and len(data[key]) == 3 and all(map(_is_count, data[key]))):
            raise GraphError("wants depth, height and width", field=f"{field}.{key}", value=str(data[key]))
    inputs = data["inputs"]
    if not isinstance(inputs, list) or not all(one == 0 or _is_count(one) for one in inputs) or any(i >= number for i in inputs):
        raise GraphError("wants numbers of earlier layers", field=f"{field}.inputs", value=str(inputs))
    plain: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    return ConvLayer(**plain)
