"""Convolutional networks of the zoo, layer by layer, for 224 x 224 images and 1,000 classes.

Each function returns an untimed graph for a batch of images. Layer shapes are those of the papers in the variant
that torchvision ships, whose published parameter counts the tests hold them to.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..builder import GraphBuilder
from ..graph import JobGraph

NUM_CLASSES = 1000
IMAGE_SIDE = 224


def alexnet(batch_size: int) -> JobGraph:
    """Build AlexNet in its single-column variant.

    Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014.
    """
    net = _ConvNet("alexnet", batch_size)
    x = net.max_pool(net.relu(net.conv(net.image, 64, 11, stride=4, padding=2)), 3, 2)
    x = net.max_pool(net.relu(net.conv(x, 192, 5, padding=2)), 3, 2)
    for channels in (384, 256, 256):
        x = net.relu(net.conv(x, channels, 3, padding=1))
    x = net.average_pool(net.max_pool(x, 3, 2), 6)
    x = net.relu(net.linear(net.dropout(x), 4096))
    x = net.relu(net.linear(net.dropout(x), 4096))
    return net.finish(net.linear(x, NUM_CLASSES))


def vgg16(batch_size: int) -> JobGraph:
    """Return the graph of VGG-16, configuration D.

    Source: Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", 2015.
    """
    net = _ConvNet("vgg16", batch_size)
    x = net.image
    for channels, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            x = net.relu(net.conv(x, channels, 3, padding=1))
        x = net.max_pool(x, 2, 2)
    for _ in range(2):
        x = net.dropout(net.relu(net.linear(x, 4096)))
    return net.finish(net.linear(x, NUM_CLASSES))


def resnet18(batch_size: int) -> JobGraph:
    """Build ResNet-18: two basic blocks in each of four stages.

    Source: He, Zhang, Ren and Sun, "Deep residual learning for image recognition", 2016.
    """
    net = _ConvNet("resnet18", batch_size)
    x = _resnet_stem(net)
    for stage, channels in enumerate((64, 128, 256, 512)):
        for block in range(2):
            stride = 2 if stage > 0 and block == 0 else 1
            skip = x if stride == 1 else net.conv_norm(x, channels, 1, stride=stride)
            x = net.relu(net.conv_norm(x, channels, 3, stride=stride, padding=1))
            x = net.relu(net.add(net.conv_norm(x, channels, 3, padding=1), skip))
    return net.finish(net.linear(net.average_pool(x, 1), NUM_CLASSES))


def resnet50(batch_size: int) -> JobGraph:
    """Build ResNet-50: bottleneck blocks, the stride on the 3 x 3 convolution.

    Source: He, Zhang, Ren and Sun, "Deep residual learning for image recognition", 2016.
    """
    net = _ConvNet("resnet50", batch_size)
    x = _resnet_stem(net)
    for stage, (channels, depth) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(depth):
            stride = 2 if stage > 0 and block == 0 else 1
            skip = net.conv_norm(x, 4 * channels, 1, stride=stride) if block == 0 else x
            x = net.relu(net.conv_norm(x, channels, 1))
            x = net.relu(net.conv_norm(x, channels, 3, stride=stride, padding=1))
            x = net.relu(net.add(net.conv_norm(x, 4 * channels, 1), skip))
    return net.finish(net.linear(net.average_pool(x, 1), NUM_CLASSES))


def squeezenet(batch_size: int) -> JobGraph:
    """Return the graph of SqueezeNet 1.0.

    Source: Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters", 2016.
    """
    net = _ConvNet("squeezenet", batch_size)
    x = net.max_pool(net.relu(net.conv(net.image, 96, 7, stride=2)), 3, 2, ceil=True)
    for number, (squeeze, expand) in enumerate(
        ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)), start=2
    ):
        x = net.relu(net.conv(x, squeeze, 1))
        narrow = net.relu(net.conv(x, expand, 1))
        wide = net.relu(net.conv(x, expand, 3, padding=1))
        x = net.concatenate(narrow, wide)
        if number in (4, 8):
            x = net.max_pool(x, 3, 2, ceil=True)
    x = net.relu(net.conv(net.dropout(x), NUM_CLASSES, 1))
    return net.finish(net.average_pool(x, 1))


def _resnet_stem(net: _ConvNet) -> _Image:
    return net.max_pool(net.relu(net.conv_norm(net.image, 64, 7, stride=2, padding=3)), 3, 2, padding=1)


@dataclass(frozen=True)
class _Image:
    """An op's output for one sample; ``op`` is None for the network's own input."""

    op: int | None
    channels: int
    side: int

    @property
    def elements(self) -> int:
        return self.channels * self.side**2

    @property
    def inputs(self) -> list[int]:
        return [] if self.op is None else [self.op]


class _ConvNet:
    """Adds layers to a graph and follows their shapes; ops are named by kind and running number."""

    def __init__(self, name: str, batch_size: int) -> None:
        self.image = _Image(None, 3, IMAGE_SIDE)
        self._batch_size = batch_size
        self._graph = GraphBuilder(name, batch_size)
        self._count: dict[str, int] = {}

    def conv(self, x: _Image, channels: int, kernel: int, *, stride: int = 1, padding: int = 0, bias: bool = True) -> _Image:
        side = (x.side + 2 * padding - kernel) // stride + 1
        weights = kernel**2 * x.channels * channels
        parameters = weights + channels * bias
        return self._add("conv", [x], channels, side, parameters=parameters, multiply_adds=weights * side**2)

    def conv_norm(self, x: _Image, channels: int, kernel: int, *, stride: int = 1, padding: int = 0) -> _Image:
        """Return a convolution without bias and the batch normalisation after it (its running averages are no parameters)."""
        y = self.conv(x, channels, kernel, stride=stride, padding=padding, bias=False)
        return self._add("batch_norm", [y], channels, y.side, parameters=2 * channels)

    def linear(self, x: _Image, channels: int) -> _Image:
        weights = x.elements * channels
        return self._add("linear", [x], channels, 1, parameters=weights + channels, multiply_adds=weights)

    def relu(self, x: _Image) -> _Image:
        return self._add("relu", [x], x.channels, x.side)

    def dropout(self, x: _Image) -> _Image:
        return self._add("dropout", [x], x.channels, x.side)

    def add(self, x: _Image, y: _Image) -> _Image:
        return self._add("add", [x, y], x.channels, x.side)

    def concatenate(self, x: _Image, y: _Image) -> _Image:
        return self._add("concatenate", [x, y], x.channels + y.channels, x.side)

    def max_pool(self, x: _Image, kernel: int, stride: int, *, padding: int = 0, ceil: bool = False) -> _Image:
        span = x.side + 2 * padding - kernel
        side = (-(-span // stride) if ceil else span // stride) + 1
        return self._add("max_pool", [x], x.channels, side)

    def average_pool(self, x: _Image, side: int) -> _Image:
        return self._add("average_pool", [x], x.channels, side)

    def finish(self, x: _Image) -> JobGraph:
        """Close the network with the loss: log-probabilities in float32 while it runs, one number per image left."""
        batch = self._batch_size
        self._graph.add("loss", "loss", x.inputs, output=batch, workspace_bytes=4 * batch * x.elements)
        return self._graph.build()

    def _add(
        self, kind: str, xs: list[_Image], channels: int, side: int, *, parameters: int = 0, multiply_adds: int = 0
    ) -> _Image:
        self._count[kind] = self._count.get(kind, 0) + 1
        op = self._graph.add(
            f"{kind}{self._count[kind]}",
            kind,
            [op for x in xs for op in x.inputs],
            output=self._batch_size * channels * side**2,
            parameters=parameters,
            multiply_adds=self._batch_size * multiply_adds,
            trains_inputs=xs[0].op is not None,
        )
        return _Image(op, channels, side)
