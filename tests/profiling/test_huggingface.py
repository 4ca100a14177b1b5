"""Laws of traced Hugging Face models: what they compute and hold is what the reader of configurations says, by other means."""

import importlib.util
import json
import os
import sys

import pytest

from meshwright.devices import device_type
from meshwright.errors import InputFileError, TraceError
from meshwright.jobs.load import load_graph
from meshwright.jobs.readers.huggingface import load_config
from meshwright.profiling.profile import profile

A100 = device_type("a100")
GPT2 = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 32,
    "vocab_size": 512,
}
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "vocab_size": 512,
    "tie_word_embeddings": False,
}
MIXTRAL = LLAMA | {
    "model_type": "mixtral",
    "architectures": ["MixtralForCausalLM"],
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
VIT = {
    "model_type": "vit",
    "architectures": ["ViTForImageClassification"],
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 32,
    "patch_size": 8,
}
T5 = {
    "model_type": "t5",
    "architectures": ["T5ForConditionalGeneration"],
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 64,
    "num_layers": 2,
    "num_heads": 4,
    "vocab_size": 256,
    "decoder_start_token_id": 0,
}

LLAVA = {
    "model_type": "llava",
    "architectures": ["LlavaForConditionalGeneration"],
    "image_token_index": 500,
    "text_config": LLAMA,
    "vision_config": VIT | {"model_type": "clip_vision_model", "projection_dim": 32, "dtype": "float32"},
}
"""One layer of the tower is run by nobody: the features are those of the last but one. 16 pieces of an image, of 64 numbers."""


QWEN2_VL = "Qwen2VLForConditionalGeneration"


def library(test):
    """A test that runs where the transformers package is installed."""
    is_absent = importlib.util.find_spec("transformers") is None
    message = "transformers is not installed; the extra [hf] installs it"
    return pytest.mark.library(pytest.mark.skipif(is_absent, reason=message)(test))


@pytest.fixture
def config(tmp_path):
    """``config(data)`` writes a ``config.json`` and returns its path."""

    def written(data):
        path = tmp_path / "tiny" / "config.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(data if isinstance(data, str) else json.dumps(data))
        return path

    return written


@library
@pytest.mark.parametrize("data", [GPT2, LLAMA, MIXTRAL], ids=["gpt2", "llama", "mixtral"])
def test_a_traced_decoder_computes_and_holds_what_its_configuration_says(config, data):
    path = config(data)
    graph, read = profile(str(path), A100, batch_size=4).graph, load_config(path, batch_size=4)
    assert graph.parameter_bytes.sum() == read.parameter_bytes.sum()
    assert graph.forward_flops.sum() == pytest.approx(read.forward_flops.sum(), rel=0.02)
    assert graph.backward_flops.sum() == pytest.approx(read.backward_flops.sum(), rel=0.02)
    assert graph.samples_per_step == read.samples_per_step == 4
    assert graph.name == read.name == "tiny"


@library
def test_gpt2_itself_agrees_with_the_reader(config):
    path = config(GPT2 | {"n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024, "vocab_size": 50257})
    graph, read = profile(str(path), A100).graph, load_config(path)
    assert graph.parameter_bytes.sum() == read.parameter_bytes.sum() == 2 * 124_439_808
    assert graph.forward_flops.sum() == pytest.approx(read.forward_flops.sum(), rel=0.02)
    assert graph.backward_flops.sum() == pytest.approx(read.backward_flops.sum(), rel=0.02)


@library
@pytest.mark.parametrize("data", [VIT, T5], ids=["vit", "t5"])
def test_what_the_reader_refuses_is_traced_into_a_job(config, data, tmp_path):
    path = config(data)
    result = profile(str(path.parent), A100, batch_size=2)
    assert result.traced.parameter_bytes == 2 * result.traced.num_parameters
    assert 0.5 * result.traced.parameter_bytes < result.graph.parameter_bytes.sum() <= result.traced.parameter_bytes
    assert 1.5 < result.graph.backward_flops.sum() / result.graph.forward_flops.sum() <= 2
    result.graph.save(tmp_path / "job.json")
    assert load_graph(str(tmp_path / "job.json")).to_data() == result.graph.to_data()


@library
def test_a_decoder_with_images_is_traced_with_both_and_the_checks_of_the_package_come_back(config, monkeypatch):
    monkeypatch.setenv("TRANSFORMERS_DISABLE_TORCH_CHECK", "0")
    result = profile(str(config(LLAVA)), A100, batch_size=2, sequence_length=32)
    alone = profile(str(config(LLAMA)), A100, batch_size=2, sequence_length=32)
    text = alone.traced.parameter_bytes
    assert result.traced.parameter_bytes == 2 * result.traced.num_parameters  # also of the tower, which states its own dtype
    # The pieces' product, 3 x 8 x 8 to 32, and the two to the width of the text, 32 to 64 to 64, with biases.
    piece, projector = 2 * 32 * 192, 2 * (32 * 64 + 64 * 64 + 2 * 64)
    assert result.traced.parameter_bytes > text + piece + projector
    tokens, pieces, width, inner = 2 * 17, 2 * 16, 32, 64
    attention = 2 * 2 * 2 * 17 * 17 * width
    tower = 2 * (tokens * (4 * width * width + 2 * width * inner) * 2 + attention)
    seen = 2 * pieces * 192 * width + 2 * pieces * (32 * 64 + 64 * 64)
    more = result.graph.forward_flops.sum() - alone.graph.forward_flops.sum()
    assert more == pytest.approx(tower + seen, rel=0.02)
    assert os.environ["TRANSFORMERS_DISABLE_TORCH_CHECK"] == "0"


@library
def test_images_of_no_known_size_are_left_out_beside_text_and_are_224_pixels_wide_alone(config):
    text = {key: value for key, value in LLAMA.items() if key != "architectures"} | {"model_type": "qwen2_vl_text"}
    text["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
    tower = {"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "patch_size": 14}
    path = config({"model_type": "qwen2_vl", "text_config": text, "vision_config": tower, "architectures": [QWEN2_VL]})
    result, read = profile(str(path), A100, batch_size=2), load_config(path, batch_size=2)
    assert any(remark.startswith("left out: images, as vision_config gives no image_size") for remark in result.remarks)
    assert result.graph.forward_flops.sum() == pytest.approx(read.forward_flops.sum(), rel=0.02)
    resnet = {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [8], "depths": [1], "layer_type": "basic"}
    assert any("pixel_values=2x3x224x224" in remark for remark in profile(str(config(resnet)), A100, batch_size=2).remarks)


@library
def test_a_model_that_transformers_does_not_know_is_told_in_one_line(config):
    with pytest.raises(TraceError, match=r"config\.json: transformers cannot make the model: ValueError: ") as error:
        profile(str(config({"model_type": "gtp2"})), A100)
    assert "\n" not in str(error.value)


def test_without_the_package_the_extra_is_named(config, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        TraceError,
        match=r"config\.json: the transformers package makes it, which the extra \[hf\] installs: pip install '\.\[hf\]' ",
    ):
        profile(str(config(GPT2)), A100)


@pytest.mark.parametrize("text", ['{"model_type": "gpt', "", "\0"])
def test_a_truncated_configuration_is_named_with_its_place(config, text):
    with pytest.raises(InputFileError, match=r"config\.json") as error:
        profile(str(config(text)), A100)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["[1]", "{}", '{"model_type": 3}'])
def test_json_that_is_no_configuration_is_told(config, text):
    with pytest.raises(TraceError, match=r"config\.json: model_type: is no configuration of a model"):
        profile(str(config(text)), A100)


def test_inputs_belong_to_a_factory(config):
    with pytest.raises(TraceError, match=r"^--input: goes with a factory; a config\.json says its inputs$"):
        profile(str(config(GPT2)), A100, inputs=["3x8"])
