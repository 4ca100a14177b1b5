"""CosmoFlow on cubes of 512, cut in depth: memory, computation and messages of its layers, the least devices, and scaling.

Source:
    Oyama et al., "The case for strong scaling in deep learning: training large 3D CNNs with hybrid parallelism", 2020.
    Tables 1 and 2 and section 5. A sample took 2.108 s on one V100, both passes, in float32.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....clusters.cluster import Cluster
from ....costs.process_groups.group_network import group_network
from ....costs.settings import CostSettings
from ....costs.training_step.graph_step_time import ROOFLINE_UNCERTAINTY, GraphPricer
from ....costs.training_step.uncertainty import interval
from ....costs.work.graph_work import describe_graph
from ....costs.work.halos import ERRORS_AND_OUTPUTS, halo_bytes
from ....devices import device_type
from ....jobs.convolutional import ConvLayer, ConvNetShape, cosmoflow
from ....jobs.graph import JobGraph
from ....plans.partition import Layout
from ..published_figures import PublishedFigure

MIB, GIB = 2**20, 2**30
SAMPLE_S = "2.108"
V100_BYTES = "16000000000"
PARTS = 8

PUBLISHED = {
    "conv_1": ("1744", "463.9", "17.0", "8", "32"),
    "conv_2": ("13856", "463.9", "4.25", "8", "16"),
    "conv_3": ("55360", "231.9", "1.06", "4", "8"),
    "conv_4": ("221312", "116.0", "0.27", "2", "4"),
}
"""Of a convolution with its rectifier and pool: parameters, GFLOP forward, GiB of outputs, MiB of both halos forward and back."""


def figures() -> Iterator[PublishedFigure]:
    """Yield layers, the whole network, memory and scaling."""
    shape = cosmoflow(512)
    yield from _layers(shape)
    yield from _network(shape)
    yield from _fits(shape)
    yield from _scaling(shape)


def _layers(shape: ConvNetShape) -> Iterator[PublishedFigure]:
    for place, layer in enumerate(shape.layers):
        if layer.name not in PUBLISHED:
            continue
        parameters, gflop, gib, forward, backward = PUBLISHED[layer.name]
        made = sum(one.output for one in shape.layers[place : place + 3]) * shape.element_bytes
        yield PublishedFigure(layer.name, "parameters", layer.parameters, parameters, 1e-6)
        yield PublishedFigure(layer.name, "forward, GFLOP", 2 * layer.multiply_adds / 1e9, gflop, 1e-3)
        yield PublishedFigure(layer.name, "outputs, GiB", made / GIB, gib, 5e-3)
        yield PublishedFigure(layer.name, "halos of x, MiB", _halo_mib(layer.in_channels, layer), forward, 1e-6)
        yield PublishedFigure(layer.name, "halos of dy, MiB", _halo_mib(layer.out_channels, layer), backward, 1e-6)


def _halo_mib(channels: int, layer: ConvLayer) -> float:
    return sum(halo_bytes(channels, layer.in_extent, (PARTS, 1, 1), layer.reach, 4)) / MIB


def _network(shape: ConvNetShape) -> Iterator[PublishedFigure]:
    dense = [layer for layer in shape.layers if layer.kind == "linear"]
    made = sum(layer.output for layer in shape.layers) * shape.element_bytes / GIB
    yield PublishedFigure("dense layers", "parameters, millions", sum(layer.parameters for layer in dense) / 1e6, "34.1", 1e-3)
    yield PublishedFigure("dense layers", "forward, GFLOP", 2 * sum(layer.multiply_adds for layer in dense) / 1e9, "0.07", 0.01)
    yield PublishedFigure(
        "all layers", "forward, TFLOP", 2 * sum(layer.multiply_adds for layer in shape.layers) / 1e12, "1.35", 5e-3
    )
    yield PublishedFigure("all layers", "outputs, GiB", made, "22.7", 5e-3)
    yield PublishedFigure("all layers", "outputs and their gradients, GiB", ERRORS_AND_OUTPUTS * made, "45.0", 0.01)


def _fits(shape: ConvNetShape) -> Iterator[PublishedFigure]:
    for parts, fits in ((1, False), (2, False), (4, True)):
        layout = Layout(sp_d=parts, micro_batch=1, global_batch=1)
        held = describe_graph(_timed(shape), layout, device_type("v100")).peak_memory()[1].total
        yield PublishedFigure("16 GB V100", f"bytes of a rank, sp={parts}", held, V100_BYTES, 1e-5, fits, not fits)


def _scaling(shape: ConvNetShape) -> Iterator[PublishedFigure]:
    cluster = Cluster.from_data(
        {
            "name": "nvlink-v100",
            "device": "v100",
            "topology": {"kind": "single-host", "num_devices": 8, "fabric": "switch", **_NVLINK},
        }
    )
    costs = CostSettings().of_layouts
    pricer, graph = GraphPricer(cluster.device_types[0], group_network(cluster, costs), costs.overlap_slowdown), _timed(shape)
    step_s = {}
    for parts in (1, 2, 4, 8):
        layout = Layout(sp_d=parts, micro_batch=1, global_batch=1, overlap_dp=True)
        step_s[parts] = pricer.step_s(describe_graph(graph, layout, cluster.device_types[0], costs))
    ends_s = interval(step_s[1], ROOFLINE_UNCERTAINTY)
    for name, end_s in zip(("lower", "upper"), ends_s, strict=True):
        sides = name == "lower", name == "upper"
        yield PublishedFigure("1 V100", f"s of a sample, {name} end of its interval", end_s, SAMPLE_S, 1e-6, *sides)
    speed_up = step_s[1] / step_s[PARTS]
    yield PublishedFigure("8 V100 on NVLink", "speed-up", speed_up, "6.0", 1e-6, is_floor=True)
    yield PublishedFigure("8 V100 on NVLink", "speed-up", speed_up, "8.0", 1e-6, is_limit=True)
    for fewer, more in ((1, 2), (2, 4), (4, 8)):
        change = step_s[fewer] * fewer / (step_s[more] * more)
        yield PublishedFigure("8 V100 on NVLink", f"efficiency {fewer} -> {more}", change, "1.0", 1e-9, is_limit=True)


_NVLINK = {"bandwidth_gbytes_per_s": 150.0, "latency_us": 0.6}
"""Of a DGX-1V: six links of 25 GB/s a direction for each device."""


def _timed(shape: ConvNetShape) -> JobGraph:
    return shape.graph(1).timed_on(device_type("v100"))
