"""A model's arguments as each framework names them: whole, of one shape after another, by hand."""

import json
import tomllib
from itertools import pairwise

import pytest

from meshwright.cli import run_command_line
from meshwright.export import export
from meshwright.export.frameworks.model_arguments import huggingface_keys, megatron_words
from meshwright.export.frameworks.torchtitan import llama3, qwen3, torchtitan_model
from meshwright.jobs.transformer import LatentAttention, LayerKind, ModelConstants, RotaryScaling
from meshwright.plans import Layout
from meshwright.plans.transformer import PlannedTransformer

from ..grids import plan_of

SIZES = {
    **{"sequence_length": 512, "num_layers": 4, "hidden": 256, "num_heads": 8, "num_key_value_heads": 8, "head_dim": 32},
    **{"feed_forward": 704, "vocabulary": 1000, "max_positions": 2048},
}
GPT = {
    **{"learned_positions": True, "is_gated": False, "qkv_bias": True, "output_bias": True, "mlp_bias": True, "norm_vectors": 2},
    **{"is_head_tied": True, "has_dropout": True, "max_positions": 256},
}
GROUPED = {"num_key_value_heads": 2, "head_dim": 64, "has_head_norms": True}
EXPERTS = {"num_experts": 8, "experts_per_token": 2}
MIXED = EXPERTS | {"other_layers": (LayerKind(layers=(0,), feed_forward=1024),), "shared_feed_forward": 300}
LATENT = LatentAttention(key_value_rank=64, rope_head_dim=8, value_head_dim=24)


def of(**changed):
    return PlannedTransformer(**(SIZES | changed))


def megatron(model):
    """Arguments by name, True for one without a value, and those left out."""
    words, left_out = megatron_words(model)
    names = [word for word in words if word.startswith("--")]
    behind = dict(pairwise([*words, "--"]))
    result = {name: True if behind[name].startswith("--") else behind[name] for name in names}
    assert len(words) == len(names) + sum(value is not True for value in result.values())
    return result, left_out


PLAIN = {
    **{"--num-layers": "4", "--hidden-size": "256", "--ffn-hidden-size": "704", "--num-attention-heads": "8"},
    **{"--seq-length": "512", "--max-position-embeddings": "2048", "--position-embedding-type": "rope"},
    **{"--normalization": "RMSNorm", "--vocab-size": "1000", "--attention-dropout": "0.0", "--hidden-dropout": "0.0"},
    **{"--swiglu": True, "--disable-bias-linear": True, "--untie-embeddings-and-output-weights": True},
}
OF_EXPERTS = {"--num-experts": "8", "--moe-router-topk": "2", "--moe-ffn-hidden-size": "704"}
OF_LATENT = {"--multi-latent-attention": True, "--kv-lora-rank": "64", "--qk-head-dim": "24"}
OF_LATENT |= {"--qk-pos-emb-head-dim": "8", "--v-head-dim": "24"}

MEGATRON = [
    ({}, PLAIN),
    (
        GPT,
        {
            **{name: PLAIN[name] for name in ("--num-layers", "--hidden-size", "--ffn-hidden-size", "--num-attention-heads")},
            **{"--seq-length": "512", "--max-position-embeddings": "512", "--position-embedding-type": "learned_absolute"},
            **{"--normalization": "LayerNorm", "--vocab-size": "1000"},
        },
    ),
    ({"qkv_bias": True}, PLAIN | {"--add-qkv-bias": True}),
    ({"num_key_value_heads": 2}, PLAIN | {"--group-query-attention": True, "--num-query-groups": "2"}),
    (
        GROUPED,
        PLAIN | {"--group-query-attention": True, "--num-query-groups": "2", "--kv-channels": "64", "--qk-layernorm": True},
    ),
    (EXPERTS, PLAIN | OF_EXPERTS),
    (
        MIXED,
        PLAIN
        | OF_EXPERTS
        | {"--ffn-hidden-size": "1024", "--moe-shared-expert-intermediate-size": "300", "--moe-layer-freq": "([0]*1+[1]*3)"},
    ),
    # Latent attention has neither groups of heads nor a width of its own for them.
    (GROUPED | {"head_dim": 32, "has_head_norms": None, "latent": LATENT}, PLAIN | OF_LATENT),
    ({"latent": LATENT.model_copy(update={"query_rank": 96})}, PLAIN | OF_LATENT | {"--q-lora-rank": "96"}),
]


@pytest.mark.parametrize(("changed", "expected"), MEGATRON)
def test_megatron_is_told_the_whole_shape(changed, expected):
    assert megatron(of(**changed)) == (expected, [])


def test_two_experts_are_experts():
    model = of(num_experts=2, experts_per_token=1, other_layers=(LayerKind(layers=(3,), feed_forward=9),))
    result = megatron(model)[0]
    assert (result["--num-experts"], result["--moe-layer-freq"], result["--ffn-hidden-size"]) == ("2", "([1]*3+[0]*1)", "9")
    assert huggingface_keys(model)["num_experts"] == qwen3(model)[0]["moe_args"]["num_experts"] == 2
    assert llama3(model)[1] == ["experts"]


LLAMA_SCALING = {"kind": "llama3", "factor": 8.0, "low_frequency_factor": 1.0, "high_frequency_factor": 4.0}
LINEAR = RotaryScaling(kind="linear", factor=2.0)
CONSTANTS = [
    ({}, {}, []),
    (
        {"rotary_base": 10000.0, "rotary_share": 0.25, "norm_epsilon": 1e-5, "activation": "silu"},
        {"--rotary-base": "10000", "--rotary-percent": "0.25", "--norm-epsilon": "1e-05"},
        [],
    ),
    ({"rotary_base": 10000.5}, {}, ["rotary base 10000.5"]),
    (
        {"rotary_scaling": RotaryScaling(**LLAMA_SCALING, original_positions=8192)},
        {"--rope-scaling-factor": "8.0", "--use-rope-scaling": True},
        [],
    ),
    ({"rotary_scaling": RotaryScaling(**LLAMA_SCALING, original_positions=4096)}, {}, ["positions scaled by the rule llama3"]),
    ({"rotary_scaling": LINEAR}, {"--rotary-seq-len-interpolation-factor": "2"}, []),
    ({"rotary_scaling": RotaryScaling(kind="linear")}, {"--rotary-seq-len-interpolation-factor": "1"}, []),
    ({"rotary_scaling": RotaryScaling(kind="linear", factor=2.5)}, {}, ["positions scaled by the rule linear"]),
    ({"activation": "gelu"}, {}, ["gelu in the gate (--swiglu computes silu)"]),
]


@pytest.mark.parametrize(("constants", "more", "left_out"), CONSTANTS)
def test_megatron_is_told_the_constants(constants, more, left_out):
    assert megatron(of(constants=ModelConstants(**constants))) == (PLAIN | more, left_out)


def test_megatron_is_told_no_rotation_of_positions_from_a_table_and_what_it_leaves_out_is_told():
    turned = ModelConstants(rotary_base=10000.5, rotary_share=0.5, rotary_scaling=LINEAR, activation="relu")
    assert megatron(of(**GPT, constants=turned)) == (MEGATRON[1][1], ["activation relu (Megatron's is gelu)"])
    for known in (None, "gelu", "gelu_new", "gelu_fast", "gelu_pytorch_tanh"):
        assert megatron(of(**GPT, constants=ModelConstants(activation=known)))[1] == []
    assert megatron(of(**EXPERTS, constants=ModelConstants(activation="swish")))[1] == [
        "how experts are chosen and balanced (--moe-router-...)"
    ]
    yarn = ModelConstants(rotary_scaling=RotaryScaling(kind="yarn"))
    message = "positions scaled by the rule yarn (--rotary-scaling-factor, --mscale, --mscale-all-dim)"
    assert megatron(of(latent=LATENT, constants=yarn))[1] == [message]


OF_NO_FRAMEWORK = [
    ({"window": 128}, "a window of 128 tokens"),
    ({"other_layers": (LayerKind(layers=(1,), feed_forward=704, window=64),)}, "a window of 64 tokens"),
    ({"is_parallel": True}, "attention and feed-forward layer side by side"),
    ({"has_output_norms": True}, "norms behind attention and feed-forward layer"),
    ({"is_encoder": True}, "an encoder's form, with a pooler"),
]


@pytest.mark.parametrize(("changed", "what"), OF_NO_FRAMEWORK)
def test_what_no_framework_s_arguments_say_is_told_for_each(changed, what):
    model = of(**changed)
    assert [megatron(model)[1], llama3(model)[1], qwen3(model)[1]] == [[what]] * 3


KEYS = {
    **{"num_hidden_layers": 4, "hidden_size": 256, "intermediate_size": 704, "num_attention_heads": 8, "num_key_value_heads": 8},
    **{"head_dim": 32, "vocab_size": 1000, "max_position_embeddings": 2048, "tie_word_embeddings": False, "sequence_length": 512},
}


@pytest.mark.parametrize(
    ("changed", "more"),
    [
        ({}, {}),
        (GROUPED | {"is_head_tied": True}, {"num_key_value_heads": 2, "head_dim": 64, "tie_word_embeddings": True}),
        (EXPERTS, {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 704}),
        (MIXED, {"intermediate_size": 1024, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 704}),
    ],
)
def test_a_shape_has_the_keys_of_a_hugging_face_configuration(changed, more):
    assert huggingface_keys(of(**changed)) == KEYS | more


LLAMA3 = {
    **{"dim": 256, "n_layers": 4, "n_heads": 8, "n_kv_heads": 8, "vocab_size": 1000, "multiple_of": 704},
    **{"ffn_dim_multiplier": None, "max_seq_len": 2048},
}
QWEN3 = {
    **{"dim": 256, "n_layers": 4, "n_heads": 8, "n_kv_heads": 8, "head_dim": 32, "hidden_dim": 704, "vocab_size": 1000},
    **{"max_seq_len": 2048, "qk_norm": False, "enable_weight_tying": False},
}
MOE = {"num_experts": 8, "num_shared_experts": 0, "top_k": 2, "score_func": "softmax", "route_norm": True}
OF_MOE = {"moe_enabled": True, "moe_inter_dim": 704, "moe_args": MOE | {"score_before_experts": False}}
SCALED = {"scaling_factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
ROPE = ModelConstants(rotary_base=1e6, norm_epsilon=1e-6, rotary_scaling=RotaryScaling(**LLAMA_SCALING, original_positions=8192))
OF_ROPE = {"rope_theta": 1e6, "norm_eps": 1e-6}
GPT_HAS = ["biases", "a feed-forward layer without a gate", "layer norm", "a table of positions", "dropout"]
TIED, WIDE, NORMS = "a tied head", "heads of another width than hidden over heads", "norms of heads"

TORCHTITAN = [
    ({}, {}, [], {}, []),
    # Llama 3 begins with int(8 x 256 / 3) = 682, which is more than 600.
    ({"feed_forward": 600}, {"multiple_of": 600, "ffn_dim_multiplier": 600 / 682}, [], {"hidden_dim": 600}, []),
    ({"feed_forward": 682}, {"multiple_of": 682}, [], {"hidden_dim": 682}, []),
    (GPT, {"max_seq_len": 512}, [*GPT_HAS, TIED], {"max_seq_len": 512, "enable_weight_tying": True}, GPT_HAS),
    (GROUPED, {"n_kv_heads": 2}, [WIDE, NORMS], {"n_kv_heads": 2, "head_dim": 64, "qk_norm": True}, []),
    (EXPERTS, {}, ["experts"], OF_MOE, []),
    (MIXED, {}, ["experts"], OF_MOE, ["layers with and without experts", "experts that every token visits"]),
    ({"latent": LATENT}, {}, ["latent attention"], {}, ["latent attention"]),
    ({"constants": ROPE}, OF_ROPE | {"rope_scaling_args": SCALED}, [], OF_ROPE, ["scaled positions"]),
    ({"constants": ModelConstants()}, {"rope_scaling_args": {"scaling_factor": 1.0}}, [], {}, []),
    (
        {"constants": ModelConstants(rotary_scaling=LINEAR, rotary_share=0.5, activation="gelu")},
        {},
        ["gelu in the gate", "positions of a part of a head", "positions scaled by the rule linear"],
        {},
        ["gelu in the gate", "positions of a part of a head", "scaled positions"],
    ),
]


@pytest.mark.parametrize(("changed", "of_llama", "not_llama", "of_qwen", "not_qwen"), TORCHTITAN)
def test_torchtitan_s_models_are_told_the_whole_shape(changed, of_llama, not_llama, of_qwen, not_qwen):
    model = of(**changed)
    assert llama3(model) == (LLAMA3 | of_llama, not_llama)
    assert qwen3(model) == (QWEN3 | of_qwen, not_qwen)
    is_qwen = len(not_qwen) < len(not_llama)
    choice = ("qwen3", "Qwen3", *qwen3(model)) if is_qwen else ("llama3", "Llama 3", *llama3(model))
    assert torchtitan_model(model, has_pipeline=False) == choice


def test_one_thing_less_left_out_makes_up_for_no_pipeline():
    # Llama 3 has neither wide heads nor their norms, Qwen3 no pipeline; of experts alone both leave out one thing.
    assert torchtitan_model(of(**GROUPED), has_pipeline=True).left_out == ["pipeline"]
    assert torchtitan_model(of(**EXPERTS), has_pipeline=True)[:2] == ("llama3", "Llama 3")


@pytest.mark.parametrize(
    ("bias", "flags"), [("qkv_bias", {"--disable-bias-linear", "--add-qkv-bias"}), ("output_bias", set()), ("mlp_bias", set())]
)
def test_biases_of_any_part_are_told(bias, flags):
    model = of(**{bias: True})
    assert llama3(model)[1] == qwen3(model)[1] == ["biases"]
    assert {name for name in megatron(model)[0] if "bias" in name} == flags


def test_files_of_a_plan_that_holds_its_model_hold_its_arguments_and_what_they_leave_out(tmp_path, capsys):
    plain = plan_of(Layout(dp=2, micro_batch=1, global_batch=2))
    for changed, name, title, left in (
        ({}, "llama3", "Llama 3", []),
        (GPT, "qwen3", "Qwen3", GPT_HAS),
        (EXPERTS, "qwen3", "Qwen3", []),
    ):
        model = of(**changed)
        plan = plain.model_copy(update={"job": plain.job.model_copy(update={"transformer": model})})
        files = export(plan, "torchtitan", {"name": "mine"})
        keys = torchtitan_model(model, has_pipeline=False).keys
        reported = {"_not_guaranteed": [f"{title} of torchtitan has no {what}." for what in left]} if left else {}
        assert json.loads(files["model_args.json"]) == keys | reported
        assert files["model_args.json"].endswith("}\n")
        said = [line for line in files["torchtitan.toml"].splitlines() if line.startswith("# Left out: ")]
        assert said == [f"# Left out: {title} of torchtitan has no {what}; name a model that has." for what in left]
        plan.save(tmp_path / "plan.json")
        words = ["--format", "torchtitan", "--out", str(tmp_path / "out")]
        assert run_command_line(["export", str(tmp_path / "plan.json"), *words]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        assert shown.count("Left out: ") == len(said)
        assert all(line.removeprefix("# ") in shown for line in said)
        tables = tomllib.loads(files["torchtitan.toml"])
        assert (tables["model"], tables["training"]["seq_len"]) == ({"name": name, "flavor": "mine"}, 512)
        assert json.loads(export(plan, "deepspeed")["model.json"]) == huggingface_keys(model)
    assert not {"model_args.json", "model.json"} & {*export(plain, "torchtitan"), *export(plain, "deepspeed")}
