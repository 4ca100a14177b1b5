"""Families of Hugging Face configurations: parameters are those of the tensors that the models are published with.

The oracle `tensors` sums the shapes of a checkpoint from the configuration alone and shares nothing with the reader. The total
of each configuration is that of the model card's checkpoint. The DeepSeek-V2, DeepSeek-V3 and Qwen3 reports print 236 and 671
billion and the activated parameters.
"""

import json

import pytest

from meshwright.costs.work.work import describe
from meshwright.errors import GraphError
from meshwright.jobs.load import JobSource, load_graph
from meshwright.jobs.readers.huggingface import shape_of
from meshwright.plans.partition import Layout
from meshwright.plans.transformer import PlannedTransformer


def config(model_type, hidden, inner, layers, heads, groups, vocabulary, **more):
    return {
        "model_type": model_type,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "vocab_size": vocabulary,
        "max_position_embeddings": 4096,
        **more,
    }


def deepseek(model_type, hidden, inner, layers, heads, vocabulary, **more):
    latent = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    return config(model_type, hidden, inner, layers, heads, heads, vocabulary, **(latent | more))


def experts(inner, number, active, **more):
    return (
        {"moe_intermediate_size": inner, "num_experts_per_tok": active}
        | more
        | dict.fromkeys(("num_experts", "n_routed_experts"), number)
    )


PUBLISHED = {
    "Qwen2.5-7B": (config("qwen2", 3584, 18944, 28, 28, 4, 152064), 7_615_616_512),
    "Qwen2.5-0.5B": (config("qwen2", 896, 4864, 24, 14, 2, 151936, tie_word_embeddings=True), 494_032_768),
    "Qwen3-8B": (config("qwen3", 4096, 12288, 36, 32, 8, 151936, head_dim=128), 8_190_735_360),
    "Phi-3-mini": (config("phi3", 3072, 8192, 32, 32, 32, 32064, sliding_window=2047), 3_821_079_552),
    "Gemma-7B": (config("gemma", 3072, 24576, 28, 16, 16, 256000, head_dim=256), 8_537_680_896),
    "Gemma-2-9B": (config("gemma2", 3584, 14336, 42, 16, 8, 256000, head_dim=256), 9_241_705_984),
    "Gemma-2-2B": (config("gemma2", 2304, 9216, 26, 8, 4, 256000, head_dim=256), 2_614_341_888),
    "Gemma-3-1B": (config("gemma3_text", 1152, 6912, 26, 4, 1, 262144, head_dim=256, sliding_window=512), 999_885_952),
    "Qwen3-30B-A3B": (config("qwen3_moe", 2048, 6144, 48, 32, 4, 151936, head_dim=128, **experts(768, 128, 8)), 30_532_122_624),
    "Qwen3-235B-A22B": (
        config("qwen3_moe", 4096, 12288, 94, 64, 4, 151936, head_dim=128, **experts(1536, 128, 8)),
        235_093_634_560,
    ),
    "DeepSeek-V2": (
        deepseek(
            "deepseek_v2", 5120, 12288, 60, 128, 102400, **experts(1536, 160, 6, n_shared_experts=2, first_k_dense_replace=1)
        ),
        235_741_434_880,
    ),
    "DeepSeek-V2-Lite": (
        deepseek(
            "deepseek_v2",
            *(2048, 10944, 27, 16, 102400),
            q_lora_rank=None,
            **experts(1408, 64, 6, n_shared_experts=2, first_k_dense_replace=1),
        ),
        15_706_484_224,
    ),
    "DeepSeek-V3": (
        deepseek(
            "deepseek_v3", 7168, 18432, 61, 128, 129280, **experts(2048, 256, 8, n_shared_experts=1, first_k_dense_replace=3)
        ),
        671_026_404_352,
    ),
}


@pytest.mark.parametrize(
    ("name", "billions"), [("DeepSeek-V2", 21), ("DeepSeek-V3", 37), ("Qwen3-30B-A3B", 3.3), ("Qwen3-235B-A22B", 22)]
)
def test_a_token_costs_what_the_activated_parameters_say(name, billions):
    held, _ = PUBLISHED[name]
    graph = shape_of(held, name=name).graph(1, 16)
    products = sum(flops for flops, kind in zip(graph.forward_flops, graph.op_kinds, strict=True) if kind != "attention")
    table, hidden = held["vocab_size"] * held["hidden_size"], held["hidden_size"]
    multiplied = products / (2 * 16)
    # The embedding is looked up; norms, less than a thousandth, are no products.
    assert multiplied + table == pytest.approx(1e9 * billions, rel=0.03)
    assert hidden * held["num_hidden_layers"] < 1e-3 * multiplied


def test_llama_4_has_dense_layers_between_those_with_experts_and_attends_in_chunks():
    keys = {"head_dim": 128, "intermediate_size_mlp": 16384, "num_experts_per_tok": 1, "attention_chunk_size": 8192}
    scout = config("llama4_text", 5120, 8192, 48, 40, 8, 202048, num_local_experts=16, interleave_moe_layer_step=1, **keys)
    maverick = scout | {"num_local_experts": 128, "interleave_moe_layer_step": 2}
    for held, billions in ((scout, 108), (maverick, 401)):  # 109 and 400 with the image encoder, as the model cards round them
        shape = shape_of(held, name="m")
        h, each = 5120, 3 * 5120 * 8192
        attention = h * (2 * 40 + 2 * 8) * 128 + 2 * h
        sparse = 48 // held["interleave_moe_layer_step"]
        mixed = sparse * (each * (held["num_local_experts"] + 1) + h * held["num_local_experts"]) + (48 - sparse) * 2 * each
        total = 2 * 202048 * h + h + 48 * attention + mixed
        assert shape.graph(1, 8).parameter_bytes.sum() == 2 * total
        assert round(total / 1e9) == billions
    counts = {
        (kind.num_experts, kind.window, kind.window_form): n for kind, n in zip(shape.kinds, shape.kind_counts, strict=True)
    }
    assert counts == {(128, 8192, "chunks"): 12, (1, 8192, "chunks"): 24, (128, None, None): 12}


def test_of_a_model_around_a_decoder_of_text_the_decoder_is_read_and_the_rest_is_named(tmp_path):
    """Gemma 3 4B as it is published: what its text_config leaves out takes the format's defaults."""
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    held = {"model_type": "gemma3", "text_config": text | {"model_type": "gemma3_text"}, "vision_config": {"hidden_size": 1152}}
    (tmp_path / "config.json").write_text(json.dumps(held))
    source = JobSource(str(tmp_path))
    shape = source.shape()[0]
    assert shape.graph(1, 8).parameter_bytes.sum() == 2 * 3_880_263_168
    assert (shape.max_positions, shape.is_head_tied) == (131_072, True)
    remark = "of this gemma3 the decoder of text (gemma3_text) is read; left out: vision_config and what joins them to it"
    assert source.load().remarks == source.left_out == (remark,)
    assert not shape_of(held | {"tie_word_embeddings": False}, name="m").is_head_tied
    with pytest.raises(GraphError, match=r"text_config\.hidden_size: must be a positive whole number"):
        shape_of(held | {"text_config": held["text_config"] | {"hidden_size": 0}}, name="m")


@pytest.mark.parametrize(
    ("file", "parameters"),
    [
        ("gpt-oss-20b.json", 20_914_757_184),
        ("kimi_k2.json", 1_026_408_209_408),
        ("qwen3_moe_saved_by_transformers5.json", 15_350_731_776),
    ],
)
def test_parameters_of_saved_files_are_those_of_the_library(cases, file, parameters):
    """Of GPT-OSS 20.9 and of Kimi K2 1,026.4 billion are published; the last figure is that of the library's own module."""
    shape = shape_of(json.loads((cases / "huggingface" / file).read_text()), name="m")
    assert int(shape.graph(1, 8).parameter_bytes.sum()) // 2 == parameters


LARGE = {
    "Qwen1.5-MoE-A2.7B": (
        config("qwen2_moe", 2048, 5632, 24, 16, 16, 151936, shared_expert_intermediate_size=5632, **experts(1408, 60, 4)),
        14_315_784_192,
    ),
    "Qwen3-Next-80B-A3B": (
        config(
            *("qwen3_next", 2048, 5632, 48, 16, 2, 151936),
            **{"linear_num_key_heads": 16, "linear_num_value_heads": 32},
            **{"linear_key_head_dim": 128, "linear_value_head_dim": 128},
            **experts(512, 512, 10, shared_expert_intermediate_size=512),
        ),
        79_674_391_296,
    ),
    "GLM-4-9B": (config("glm", 4096, 13696, 40, 32, 2, 151552, head_dim=128), 9_399_951_360),
    "OLMo-2-7B": (config("olmo2", 4096, 11008, 32, 32, 32, 100352), 7_298_617_344),
    "OLMoE-1B-7B": (config("olmoe", 2048, 1024, 16, 16, 16, 50304, num_experts=64, num_experts_per_tok=8), 6_919_161_856),
    "SmolLM3-3B": (config("smollm3", 2048, 11008, 36, 16, 4, 128256), 3_075_098_624),
    "StarCoder2-3B": (config("starcoder2", 3072, 12288, 30, 24, 2, 49152), 3_030_371_328),
    "Falcon-7B": ({"model_type": "falcon", "hidden_size": 4544, "n_layer": 32, "n_head": 71, "vocab_size": 65024}, 6_921_720_704),
    "Command R": (config("cohere", 8192, 22528, 40, 64, 64, 256000), 34_980_831_232),
    "Phi-1.5": (config("phi", 2048, 8192, 24, 32, 32, 51200), 1_418_270_720),
    "MiniMax-Text-01": (
        config(
            *("minimax", 6144, 9216, 80, 64, 8, 200064),
            head_dim=128,
            layer_types=10 * (7 * ["linear_attention"] + ["full_attention"]),
            num_local_experts=32,
            num_experts_per_tok=2,
        ),
        456_089_655_296,
    ),
    "Ling-lite": (
        config("bailing_moe", 2048, 5632, 28, 16, 4, 126464, head_dim=128, num_shared_experts=2, **experts(1408, 64, 6)),
        16_801_974_272,
    ),
    "ModernBERT-base": (config("modernbert", 768, 1152, 22, 12, 12, 50368), 149_655_232),
}


def test_linear_attention_costs_the_same_for_each_token_and_may_be_narrower_than_attention():
    held = LARGE["Qwen3-Next-80B-A3B"][0] | {"linear_key_head_dim": 1, "linear_value_head_dim": 2}
    short, long = (shape_of(held, name="m").graph(1, length) for length in (1024, 4096))
    flops = [dict(zip(graph.op_names, graph.forward_flops, strict=True)) for graph in (short, long)]
    linear, full = (flops[1][f"layer{layer}.attention"] / flops[0][f"layer{layer}.attention"] for layer in (0, 3))
    assert (linear, full) == (4, 16)
    at = [long.op_names.index(f"layer0.{op}") for op in ("qkv", "attention_output")]
    # 32 heads of 2, 16 of 1 and the gate of the shared expert; a convolution of 4 over 96, 64 numbers of heads, a norm of 2
    assert long.parameter_bytes[at].sum() == 2 * (2048 * (2 * 16 + 3 * 64 + 64 + 1) + 4 * 96 + 64 + 2)
    assert (long.forward_flops[at] > 0).all()


TINY = config("gemma3_text", 64, 128, 12, 4, 2, 512, head_dim=32, sliding_window=16)
TINY_QWEN = config("qwen2", 64, 128, 12, 4, 2, 512)
TINY_LLAMA = config("llama4_text", 64, 64, 12, 8, 2, 512, num_local_experts=2, num_experts_per_tok=1, intermediate_size_mlp=128)
TINY_LLAMA |= {"attention_chunk_size": 16, "no_rope_layer_interval": 3}


@pytest.mark.parametrize(
    ("held", "everywhere"),
    [
        (TINY, [5, 11]),
        (TINY | {"sliding_window_pattern": 4}, [3, 7, 11]),
        (TINY | {"model_type": "gemma2"}, [1, 3, 5, 7, 9, 11]),
        (TINY | {"layer_types": ["full_attention"] + 11 * ["sliding_attention"]}, [0]),
        (TINY_QWEN | {"sliding_window": 16, "max_window_layers": 3}, range(12)),  # not switched on
        (TINY_QWEN | {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 3}, range(3)),
        (TINY_LLAMA, [2, 5, 8, 11]),
        (TINY_LLAMA | {"model_type": "minimax", "block_size": 16}, range(0, 12, 2)),  # the work of 8 + 16 / 2 tokens
    ],
)
def test_layers_look_back_over_their_window_or_over_all(held, everywhere):
    graph = shape_of(held, name="m").graph(1, 64)
    flops = [graph.forward_flops[graph.op_names.index(f"layer{n}.attention")] for n in range(12)]
    assert [n for n, one in enumerate(flops) if one == max(flops)] == list(everywhere)
    assert set(flops) <= {max(flops), max(flops) / 4}


@pytest.mark.parametrize(
    ("changes", "dense"),
    [
        ({}, []),
        ({"mlp_only_layers": [0, 7]}, [0, 7]),
        ({"decoder_sparse_step": 2}, [0, 2, 4, 6, 8, 10]),
        ({"decoder_sparse_step": 20}, range(12)),
        ({"moe_layer_end_index": None}, []),
        ({"moe_layer_end_index": 0}, range(1, 12)),
    ],
)
def test_layers_of_qwen_have_experts_or_are_dense_as_the_keys_say(changes, dense):
    held = TINY_QWEN | {"model_type": "qwen3_moe", "head_dim": 16} | experts(32, 4, 2) | changes
    names = shape_of(held, name="m").graph(1, 8).op_names
    assert [n for n in range(12) if f"layer{n}.mlp_up" in names] == list(dense)
    assert [n for n in range(12) if f"layer{n}.router" not in names] == list(dense)


@pytest.mark.parametrize("name", [*PUBLISHED, *LARGE])
def test_a_plan_embeds_every_family_and_a_rank_holds_the_published_parameters_and_sends_their_gradients(name):
    """Of `LARGE` those of the library's modules at the published sizes; 456 billion are published of MiniMax-Text-01."""
    held, published = (PUBLISHED | LARGE)[name]
    shape = shape_of(held, name=name)
    planned, graph = PlannedTransformer.from_shape(shape, 128), shape.graph(2, 128)
    again = PlannedTransformer.model_validate_json(planned.model_dump_json(exclude_none=True))
    assert again.shape(name) == shape
    again.check(graph)
    (stage,) = describe(shape, Layout(dp=2, micro_batch=1, global_batch=2), 128).stages
    assert stage.parameters == graph.parameter_bytes.sum() / 2 == published
    assert sum(message.payload_bytes for message in stage.sync) == 4 * stage.parameters


def test_a_family_that_is_published_without_some_keys_has_its_formats_own():
    left_out = ("num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")
    stored = {key: value for key, value in TINY.items() if key not in left_out}
    shape = shape_of(stored, name="m")
    assert (shape.num_heads, shape.num_key_value_heads, shape.head_dim, shape.vocabulary) == (8, 4, 256, 262_208)


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({"model_type": "vit"}, "a model of images, which has no parallel layouts; `meshwright profile`"),
        ({"model_type": "t5"}, "an encoder and a decoder with attention across them, .* data and pipeline parallelism"),
        ({"model_type": "whisper"}, "a model of speech, "),
        ({"model_type": "llava", "text_config": {"model_type": "llama"}}, "text_config.num_attention_heads: the key is missing"),
        ({"model_type": "llava"}, "other parts around it .*, without a text_config of a type that is read; `meshwright profile`"),
        ({"model_type": "fuyu", "text_config": {"model_type": "persimmon"}}, "other parts around it .*; `meshwright profile`"),
        ({"model_type": "qwen22"}, "unsupported model type; supported are apertus, "),
        ({"model_type": "mamba"}, "a model with state-space layers, .*; `meshwright profile`"),
    ],
)
def test_a_model_of_another_kind_is_refused_by_its_family_and_no_other_architecture_is_suggested(tmp_path, held, message):
    path = tmp_path / "model" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(held))
    with pytest.raises(GraphError, match=message) as error:
        load_graph(str(path.parent))
    said = str(error.value)
    assert held["model_type"] in said or "text_config." in said
    assert "did you mean" not in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("held", "changes", "message"),
    [
        (TINY, {"layer_types": ["full_attention"]}, "layer_types: must name .* for each of the 12 layers"),
        (TINY, {"sliding_window_pattern": ""}, r"sliding_window_pattern: must be a positive whole number"),
        (TINY_LLAMA, {"no_rope_layers": 12 * ["yes"]}, "no_rope_layers: must hold 0 or 1 for each of the 12 layers"),
        (TINY, {"layer_types": 12 * ["linear"]}, "layer_types: must name full_attention or"),
        (TINY_QWEN, {"num_key_value_heads": None}, "num_key_value_heads: the key is missing"),
        (TINY_QWEN, {"use_sliding_window": 1}, "use_sliding_window: must be true or false"),
        ({**TINY_QWEN, "model_type": "qwen3_moe"}, experts(32, 4, 5), r"num_experts_per_tok: there are only 4 experts \(got 5\)"),
        (
            {**TINY_QWEN, "model_type": "qwen3_moe"},
            experts(32, 4, 2) | {"mlp_only_layers": [12]},
            "a list of layers from 0 to 11",
        ),
        (PUBLISHED["DeepSeek-V2"][0], {"kv_lora_rank": None}, "kv_lora_rank: the key is missing"),
        (PUBLISHED["DeepSeek-V2"][0], {"first_k_dense_replace": -1}, "first_k_dense_replace: must be a positive whole number"),
        (PUBLISHED["DeepSeek-V2"][0], {"n_shared_experts": []}, "n_shared_experts: must be a positive whole number"),
        (PUBLISHED["DeepSeek-V2"][0], {"num_experts_per_tok": 200}, "there are only 160 experts"),
    ],
)
def test_an_impossible_value_is_refused_by_its_key(held, changes, message):
    with pytest.raises(GraphError, match=message):
        shape_of(held | changes, name="m")
