"""Networks on volumes: layers worked by hand, graphs that are saved and read, bad data."""

import copy

import numpy as np
import pytest

from meshwright.devices import device_type
from meshwright.errors import GraphError
from meshwright.jobs.convolutional import ConvNetShape, cosmoflow, unet3d
from meshwright.jobs.graph import JobGraph


def test_the_first_convolution_of_cosmoflow_worked_by_hand():
    # 27 x 4 x 16 weights and 16 biases; two operations for each of 27 x 4 x 16 x 128^3 products; 16 x 128^3 outputs
    graph = cosmoflow(128).graph(2)
    assert graph.parameter_bytes[0] == 4 * 1744
    assert graph.forward_flops[0] == 2 * 2 * 27 * 4 * 16 * 128**3
    assert graph.activation_bytes[0] == 2 * 4 * 16 * 128**3


def test_unet_has_the_published_parameters():
    # 19,069,955 with 3 channels in and 3 classes, which counts neither batch normalisation nor the biases of up-convolutions.
    shape = unet3d(64, in_channels=3, classes=3)
    uncounted = sum(layer.parameters for layer in shape.layers if layer.kind == "batch_norm")
    uncounted += sum(layer.out_channels for layer in shape.layers if layer.kind == "up_conv")
    assert sum(layer.parameters for layer in shape.layers) - uncounted == 19_069_955


def test_convolutions_in_float32_are_timed_by_their_own_peak_worked_by_hand():
    # conv_1: 27 x 4 x 16 multiply-adds at each of 128^3 places, 14.50 GFLOP of two samples. Sixteen channels fill a quarter of a
    # tile of 64. A V100: 15.7 TFLOP/s without TF32, half of them reached; an A100 156 in TF32.
    graph = cosmoflow(128).graph(2)
    for device, peak in (("v100", 15.7e12), ("a100", 156e12)):
        timed, kind = graph.timed_on(device_type(device)), device_type(device)
        assert timed.forward_s[0] == pytest.approx(14.4955e9 / (peak / 4 * 0.5) + kind.kernel_launch_s, rel=1e-4)
    # conv_2 goes back to sixteen channels and sums the gradients of 32: a product at a quarter and one at half
    layer = next(one for one in cosmoflow(128).layers if one.name == "conv_2")
    assert layer.filled == (0.5, pytest.approx(2 / (4 + 2)))
    dense = graph.op_kinds.index("linear")
    assert graph.peaks_flops_per_s(device_type("a100"))[0][dense] == 19.5e12
    assert JobGraph.from_data(graph.to_data()).element_bytes == 4


@pytest.mark.parametrize("shape", [cosmoflow(64), unet3d(16)], ids=lambda shape: shape.name)
def test_a_saved_graph_keeps_its_volumes(shape, tmp_path):
    shape.graph(2).save(tmp_path / "graph.json")
    read = JobGraph.load(tmp_path / "graph.json")
    assert read.volumes == shape
    assert np.array_equal(read.edges, shape.graph(2).edges)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda data: data.pop("name"), "volumes"),
        (lambda data: data.update(element_bytes=0), "volumes"),
        (lambda data: data["layers"][3].pop("reach"), "volumes.layers.3"),
        (lambda data: data["layers"][0].update(in_extent=[1, 2]), "volumes.layers.0.in_extent"),
        (lambda data: data["layers"][1].update(inputs=[1]), "volumes.layers.1.inputs"),
        (lambda data: data["layers"][1].update(reach=-1), "volumes.layers.1.reach"),
        (lambda data: data["layers"][1].update(out_channels=True), "volumes.layers.1.out_channels"),
        (lambda data: data["layers"][1].update(kind=3), "volumes.layers.1.kind"),
    ],
)
def test_bad_volumes_are_refused(change, field):
    data = copy.deepcopy(cosmoflow(16).to_data())
    change(data)
    with pytest.raises(GraphError) as caught:
        ConvNetShape.from_data(data)
    assert caught.value.field == field


def test_volumes_of_another_graph_are_refused():
    data = cosmoflow(16).graph(1).to_data() | {"volumes": cosmoflow(32).to_data()}
    with pytest.raises(GraphError, match="the layers are not the ops"):
        JobGraph.from_data(data)
