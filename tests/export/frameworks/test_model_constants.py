"""Keys of a ``config.json`` other than sizes, on their way to the arguments of frameworks, by hand."""

import ast
from itertools import pairwise
from pathlib import Path

import pytest

from meshwright.errors import GraphError
from meshwright.export.frameworks.model_arguments import megatron_words
from meshwright.export.frameworks.torchtitan import torchtitan_model
from meshwright.jobs.readers.huggingface import shape_of
from meshwright.jobs.transformer import ModelConstants, RotaryScaling
from meshwright.plans.transformer import PlannedTransformer

from .torchtitan_modules import PACKAGE

LLAMA = {
    **{"model_type": "llama", "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4, "num_attention_heads": 8},
    **{"num_key_value_heads": 2, "vocab_size": 1024, "max_position_embeddings": 131072, "hidden_act": "silu"},
    **{"rope_theta": 500000.0, "rms_norm_eps": 1e-5},
    "rope_scaling": {
        **{"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
        "rope_type": "llama3",
    },
}
MIXTRAL = {key: value for key, value in LLAMA.items() if key != "rope_scaling"} | {
    **{"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None, "rope_theta": 1e6}
}


def planned(changes=None, base=None):
    return PlannedTransformer.from_shape(shape_of((base or LLAMA) | (changes or {}), name="mine"), 512)


def megatron(changes=None, base=None):
    words, left_out = megatron_words(planned(changes, base))
    return dict(pairwise(words)), words, left_out


def test_a_llama_keeps_its_base_scaling_and_epsilon():
    named, words, left_out = megatron()
    expected = {"--rotary-base": "500000", "--rope-scaling-factor": "8.0", "--norm-epsilon": "1e-05"}
    assert {key: named[key] for key in expected} == expected
    assert "--use-rope-scaling" in words
    assert left_out == []
    made = torchtitan_model(planned(), has_pipeline=True)
    scaling = {"scaling_factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    assert (made.name, made.left_out) == ("llama3", [])
    assert {key: made.keys[key] for key in ("rope_theta", "norm_eps", "rope_scaling_args")} == {
        "rope_theta": 500000.0,
        "norm_eps": 1e-5,
        "rope_scaling_args": scaling,
    }


def test_newer_files_tell_the_same_under_rope_parameters():
    newer = {key: value for key, value in LLAMA.items() if key not in ("rope_theta", "rope_scaling")}
    newer["rope_parameters"] = LLAMA["rope_scaling"] | {"rope_theta": 500000.0}
    assert planned(base=newer) == planned()
    plain = newer | {"rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}}
    assert planned(base=plain) == planned({"rope_scaling": None})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"rope_theta": "500000"}, "rope_theta: must be a positive number"),
        ({"rope_theta": -1}, "rope_theta: must be a positive number"),
        ({"rope_theta": True}, "rope_theta: must be a positive number"),
        ({"rms_norm_eps": 0}, "rms_norm_eps: must be a positive number, 1 at most"),
        ({"rope_scaling": {"type": "linear", "factor": "4"}}, "factor: must be a positive number"),
        ({"partial_rotary_factor": 2}, "partial_rotary_factor: must be a positive number, 1 at most"),
    ],
)
def test_constants_that_no_model_has_are_refused_by_name(changes, problem):
    with pytest.raises(GraphError, match=problem):
        planned(changes)


@pytest.mark.parametrize(
    "changes", [{"rope_scaling": "linear"}, {"rope_scaling": {"rope_type": None}}, {"rope_parameters": {"full_attention": {}}}]
)
def test_what_is_no_rule_of_scaling_is_none(changes):
    base = {key: value for key, value in LLAMA.items() if key != "rope_scaling"}
    assert planned(changes, base).constants.rotary_scaling is None


def test_a_shape_without_constants_is_written_as_before():
    plain = planned().model_copy(update={"constants": None})
    assert "constants" not in plain.model_dump()
    assert PlannedTransformer(**plain.model_dump()) == plain
    assert PlannedTransformer(**planned().model_dump()) == planned()
    assert ModelConstants(rotary_scaling=RotaryScaling(kind="yarn")).model_dump() == {"rotary_scaling": {"kind": "yarn"}}


@pytest.mark.scheduler("torchtitan")
@pytest.mark.parametrize("base", [LLAMA, MIXTRAL])
def test_torchtitan_itself_knows_every_key_of_its_models(base):
    if PACKAGE is None:
        pytest.skip("torchtitan is not installed (pip install --no-deps torchtitan==0.2.2)")
    made = torchtitan_model(planned(base=base), has_pipeline=False)
    kind = {"llama3": "TransformerModelArgs", "qwen3": "Qwen3ModelArgs"}[made.name]
    inner = {"rope_scaling_args": ("RoPEScalingArgs", "llama3/model/args.py"), "moe_args": ("MoEArgs", "moe/moe.py")}
    assert set(made.keys) <= fields_of(kind, f"{made.name}/model/args.py")
    for key in inner.keys() & made.keys.keys():
        assert set(made.keys[key]) <= fields_of(*inner[key])


def fields_of(name, path):
    """Fields of a class of torchtitan's models, read from its source: the package wants much else installed."""
    (folder,) = PACKAGE.submodule_search_locations
    tree = ast.parse((Path(folder) / "models" / path).read_text())
    (result,) = (one for one in tree.body if isinstance(one, ast.ClassDef) and one.name == name)
    return {one.target.id for one in result.body if isinstance(one, ast.AnnAssign)}
