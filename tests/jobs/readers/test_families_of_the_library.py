"""Parameters of every family are those of the library's module on the meta device, at small sizes, with switches turned.

Heads, windows and attention kinds are those of its configuration, by the family's rule where it names no types."""

import importlib
import importlib.util
import random

import pytest

from meshwright.jobs.readers.huggingface import shape_of
from meshwright.jobs.readers.model_families import families
from meshwright.jobs.transformer import layer_kinds

pytestmark = [
    pytest.mark.library,
    pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed"),
]

ELSEWHERE = {"bailing_moe", "bailing_moe_v2", "deepseek", "kimi_k2"}
"""Families whose modules come with their checkpoints."""

FORMS = {"linear_attention": "linear", "chunked_attention": "chunks"}
"""Forms of windows by the library's types of layers."""

SIZES = {
    **{"hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4},
    **{"vocab_size": 512, "max_position_embeddings": 64, "head_dim": 16, "ffn_hidden_size": 200, "num_kv_heads": 4},
    **{"n_embd": 128, "n_layer": 4, "n_head": 8, "n_positions": 64, "type_vocab_size": 2, "intermediate_size_mlp": 160},
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), 8),
    **{"moe_intermediate_size": 96, "num_experts_per_tok": 2, "moe_k": 2, "n_shared_experts": 2, "first_k_dense_replace": 1},
    **{"moe_num_shared_experts": 2, "moe_layer_end_index": -1},
    **{"shared_expert_intermediate_size": 64, "shared_intermediate_size": 80, "index_n_heads": 4, "index_head_dim": 16},
    **{"q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24},
    **{"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24},
    **{"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0},
}

SWITCHES = (
    *("attention_bias", "attention_out_bias", "bias", "decoder_bias", "lm_head_bias", "mlp_bias", "multi_query"),
    *("new_decoder_architecture", "parallel_attn", "qk_layernorm", "qkv_bias", "tie_word_embeddings", "use_bias"),
    *("use_parallel_residual", "use_qk_norm", "use_qkv_bias"),
)


def config_class(model_type):
    """The class of a configuration, of one inside of another too."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if model_type in CONFIG_MAPPING:
        return CONFIG_MAPPING[model_type]
    outer = model_type.removesuffix("_text")
    module = importlib.import_module(f"transformers.models.{outer}.configuration_{outer}")
    return next(getattr(module, name) for name in dir(module) if name.endswith("TextConfig"))


def parameters(config):
    """Of the module that is trained."""
    import torch
    from transformers import AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM

    has_no_head = config.model_type == "bert" or ("_text" in config.model_type and config.model_type[:3] in ("glm", "qwe"))
    has_no_head &= not config.model_type.startswith("qwen3_5")
    made = AutoModel if has_no_head else AutoModelForMaskedLM if config.model_type == "modernbert" else AutoModelForCausalLM
    with torch.device("meta"):
        count = sum(one.numel() for one in made.from_config(config).parameters())
    is_tied = getattr(config, "tie_word_embeddings", False) or config.model_type == "bert"
    return count + (config.vocab_size * config.hidden_size if has_no_head and not is_tied else 0)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("model_type", sorted(set(families()) - ELSEWHERE))
def test_parameters_are_those_of_the_librarys_module(model_type, seed):
    made = config_class(model_type)
    known = made().to_dict()
    names = known.keys() | (set() if "n_embd" in known else getattr(made, "attribute_map", {}).keys())
    sizes = {key: value for key, value in SIZES.items() if key in names}
    if families()[model_type].latent:
        sizes.pop("head_dim", None)
    if model_type == "stablelm":
        sizes["num_key_value_heads"] = 8
    draw = random.Random(seed)
    turned = {key: draw.random() < 0.5 for key in SWITCHES if key in known and seed and model_type != "internlm3"}
    config = made(**sizes, **turned)
    held = config.to_dict()
    assert shape_of(held, name="m").graph(1, 8).parameter_bytes.sum() == 2 * parameters(config)
    shape = shape_of({key: value for key, value in held.items() if key != "layer_types"}, name="m")
    kinds = [shape.kinds[kind] for kind in layer_kinds(shape.num_layers, shape.other_layers)]
    for kind, named in zip(kinds, held.get("layer_types") or (), strict=False):
        assert (kind.window is None, kind.window_form) == (named == "full_attention", FORMS.get(named))
    family = families()[model_type]
    assert {kind.window for kind in kinds if kind.window_form != "linear"} <= {None, held.get(family.window, 128)}
    assert shape.num_heads == config.num_attention_heads
    for key in () if family.latent else ("num_key_value_heads", "head_dim"):
        assert held.get(key) in (None, getattr(shape, key))
