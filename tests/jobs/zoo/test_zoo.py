import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from meshwright.devices import device_names, device_type
from meshwright.errors import GraphError
from meshwright.jobs import load_graph, zoo_graph, zoo_names
from meshwright.jobs.builder import ELEMENT_BYTES

# Parameters: torchvision's model pages (convolutional networks), the models' cards (transformers).
PARAMETERS = {
    "alexnet": 61_100_840,
    "vgg16": 138_357_544,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "squeezenet": 1_248_424,
    "bert-base": 109_482_240,
    "bert-large": 335_141_888,
    "gpt2-small": 124_439_808,
    "gpt2-xl": 1_557_611_200,
    "llama-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "llama-3-405b": 405_853_388_800,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "mixtral-8x7b": 46_702_792_704,
    "deepseek-v3": 671_026_404_352,
    "gpt3-175b": 174_604_259_328,
}
VOLUMES = {"cosmoflow-128", "cosmoflow-256", "cosmoflow-512", "unet3d"}  # in single precision, see test_convolutional
# Billions of multiply-adds for one image, as torchvision's model pages print them (there called GFLOPS).
MULTIPLY_ADDS = {"alexnet": 0.71, "vgg16": 15.47, "resnet18": 1.81, "resnet50": 4.09, "squeezenet": 0.82}


def parameters(graph):
    return graph.parameter_bytes.sum() / ELEMENT_BYTES


def test_the_zoo_holds_the_promised_models():
    assert set(zoo_names()) == {*PARAMETERS, *VOLUMES, "gnmt"}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameter_counts_are_the_published_ones(name):
    assert parameters(zoo_graph(name)) == PARAMETERS[name]


@pytest.mark.parametrize("name", MULTIPLY_ADDS)
def test_multiply_adds_are_the_published_ones(name):
    graph = zoo_graph(name)
    assert graph.forward_flops.sum() / 2e9 / graph.samples_per_step == pytest.approx(MULTIPLY_ADDS[name], abs=0.005)


@pytest.mark.reference
def test_gnmt_has_the_parameters_of_its_profile(reference):
    profile = load_graph(str(reference / "pipedream" / "gnmt"))  # float32: four bytes each
    assert parameters(zoo_graph("gnmt")) == profile.parameter_bytes.sum() / 4


def test_gnmt_worked_by_hand():
    # Embeddings 2 x 32320 x 1024; LSTM(i) = 4 x 1024 (i + 1024) + 8 x 1024: twice (both directions) and thrice
    # (encoder 3, 4, decoder 1) with i = 1024, four times with i = 2048; attention 2 x 1024^2 + 1024; classifier.
    lstm = {i: 4096 * (i + 1024) + 8192 for i in (1024, 2048)}
    hand = 2 * 32320 * 1024 + 5 * lstm[1024] + 4 * lstm[2048] + 2 * 1024**2 + 1024 + 32320 * 1025
    assert parameters(zoo_graph("gnmt")) == hand


def test_a_convolution_worked_by_hand():
    # VGG-16's second convolution on 2 images: 3 x 3 x 64 x 64 multiply-adds at 224 x 224 places.
    graph = zoo_graph("vgg16", batch_size=2)
    op = graph.op_names.index("conv2")
    flops = 2 * 2 * 9 * 64 * 64 * 224 * 224
    assert graph.forward_flops[op] == flops
    assert graph.backward_flops[op] == 2 * flops
    assert graph.activation_bytes[op] == 2 * 2 * 64 * 224 * 224
    assert graph.parameter_bytes[op] == 2 * (9 * 64 * 64 + 64)


def test_the_first_convolution_needs_no_gradient_of_the_image():
    graph = zoo_graph("resnet50")
    assert graph.backward_flops[0] == graph.forward_flops[0]


@pytest.mark.parametrize("name", zoo_names())
def test_every_graph_is_one_piece_with_one_end(name):
    graph = zoo_graph(name)
    pairs = coo_array((np.ones(graph.num_edges), graph.edges.T), shape=(graph.num_ops, graph.num_ops))
    assert connected_components(pairs, directed=False)[0] == 1
    ends = np.setdiff1d(np.arange(graph.num_ops), graph.edges[:, 0])
    assert [graph.op_kinds[op] for op in ends] == ["loss"]
    assert (graph.forward_s > 0).all()
    assert (graph.backward_s > 0).all()
    assert (graph.source, graph.reference_device) == ("estimated", "a100")


@pytest.mark.parametrize("name", zoo_names())
def test_a_newer_device_is_faster(name):
    v100, a100, h100 = (zoo_graph(name, device_type(device)).step_s for device in ("v100", "a100", "h100"))
    assert v100 > a100 > h100 > 0
    assert {"v100", "a100", "h100"} <= set(device_names())


@pytest.mark.parametrize("name", zoo_names())
def test_twice_the_batch_doubles_work_and_keeps_parameters(name):
    one, two = zoo_graph(name, batch_size=3), zoo_graph(name, batch_size=6)
    assert np.array_equal(two.forward_flops, 2 * one.forward_flops)
    assert np.array_equal(two.activation_bytes, 2 * one.activation_bytes)
    assert np.array_equal(two.parameter_bytes, one.parameter_bytes)
    assert (one.samples_per_step, two.samples_per_step) == (3, 6)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("vgg", {}, r"no such job in the zoo \(got 'vgg'\); did you mean 'vgg16'"),
        ("vgg16", {"batch_size": 0}, "batch_size: must be at least 1"),
        ("vgg16", {"sequence_length": 7}, "sequence_length: vgg16 reads images"),
        ("gnmt", {"sequence_length": 0}, "sequence_length: must be at least 1"),
        ("gpt2-xl", {"sequence_length": 1025}, r"gpt2-xl has only 1024 positions \(got 1025\)"),
    ],
)
def test_an_impossible_request_is_refused(name, options, message):
    with pytest.raises(GraphError, match=message):
        zoo_graph(name, **options)


@pytest.mark.parametrize("name", zoo_names())
def test_one_step_fits_an_80_gb_device_but_for_llama(name):
    # Mixed precision with Adam: 16 bytes a parameter (2 weight, 2 gradient, 4 master copy, 8 moments), and every output.
    graph = zoo_graph(name)
    step_bytes = 16 * parameters(graph) + graph.activation_bytes.sum() + graph.workspace_bytes.max()
    assert (step_bytes < 80e9) == (PARAMETERS.get(name, 0) < 6e9)
