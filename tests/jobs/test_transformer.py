import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import GraphError, InputFileError
from meshwright.jobs.readers.huggingface import load_config, shape_of

GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "max_position_embeddings": 4096,
    "vocab_size": 32000,
}
MISTRAL = {
    **LLAMA,
    "model_type": "mistral",
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 32768,
}
MIXTRAL = {**MISTRAL, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
BERT = {
    "model_type": "bert",
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "max_position_embeddings": 512,
    "vocab_size": 30522,
}


def parameters(config, **changes):
    return shape_of({**config, **changes}, name="m").graph(1, 8).parameter_bytes.sum() / 2


@pytest.mark.parametrize(
    ("config", "changes", "published"),
    [
        (GPT2, {}, 124_439_808),
        (GPT2, {"n_embd": 1600, "n_head": 25, "n_layer": 48}, 1_557_611_200),
        (LLAMA, {}, 6_738_415_616),
        (MISTRAL, {}, 7_241_732_096),
        (MIXTRAL, {}, 46_702_792_704),
        (BERT, {}, 109_482_240),
        # Llama 3.2 1B: grouped queries, its own head width, tied head
        (
            LLAMA,
            {
                "hidden_size": 2048,
                "intermediate_size": 8192,
                "num_hidden_layers": 16,
                "num_key_value_heads": 8,
                "head_dim": 64,
                "vocab_size": 128256,
                "tie_word_embeddings": True,
            },
            1_235_814_400,
        ),
    ],
)
def test_parameter_counts_are_the_published_ones(config, changes, published):
    assert parameters(config, **changes) == published


def test_gpt2_step_flops_worked_by_hand():
    # Weights in products: 12 layers x 12 h^2 (3 qkv, 1 output, 4 up, 4 down) and the tied head V h. Each costs 2
    # operations a token forward and 4 backward. Attention: 4 b s^2 h forward in each layer, 8 backward, no causal half.
    h, layers, batch, length = 768, 12, 3, 512
    weights = layers * 12 * h**2 + 50257 * h
    by_hand = 6 * weights * batch * length + layers * 12 * batch * length**2 * h
    graph = shape_of(GPT2, name="gpt2").graph(batch, length)
    total = graph.forward_flops.sum() + graph.backward_flops.sum()
    assert total == by_hand
    # The rule of thumb counts all N parameters, embeddings of positions and norms too: half a per cent off here.
    assert total - layers * 12 * batch * length**2 * h == pytest.approx(6 * 124_439_808 * batch * length, rel=0.01)


def test_llama_step_flops_worked_by_hand():
    # 32 layers of 4 h^2 + 3 h f, the head V h; the embedding is looked up, not multiplied.
    h, f, tokens = 4096, 11008, 2 * 1024
    weights = 32 * (4 * h**2 + 3 * h * f) + 32000 * h
    graph = shape_of(LLAMA, name="llama").graph(2, 1024)
    assert graph.forward_flops.sum() == 2 * weights * tokens + 32 * 4 * 2 * 1024**2 * h
    assert (graph.backward_flops == 2 * graph.forward_flops).all()


def test_only_active_experts_compute_and_all_hold_parameters():
    graph = shape_of(MIXTRAL, name="m").graph(1, 64)
    up, down = (graph.op_names.index(f"layer0.{name}") for name in ("experts_up", "experts_down"))
    weights = 4096 * 14336
    assert graph.forward_flops[up] == 2 * (64 * 2) * 2 * weights  # two experts a token, gate and up
    assert graph.forward_flops[down] == 2 * (64 * 2) * weights
    assert graph.parameter_bytes[up] + graph.parameter_bytes[down] == 2 * 8 * 3 * weights
    assert graph.activation_bytes[up] == 2 * 64 * 2 * 14336


def test_grouped_query_attention_shrinks_only_keys_and_values():
    full, grouped = (shape_of({**LLAMA, "num_key_value_heads": heads}, name="m").graph(1, 64) for heads in (32, 8))
    different = np.flatnonzero(full.forward_flops != grouped.forward_flops)
    assert {full.op_names[op].partition(".")[2] for op in different} == {"qkv"}
    # 4096 queries and 2 x 1024 keys and values instead of 3 x 4096
    assert grouped.forward_flops[different[0]] / full.forward_flops[different[0]] == 0.5


def test_a_sliding_window_bounds_what_a_query_sees():
    wide, narrow = (shape_of({**MISTRAL, "sliding_window": window}, name="m").graph(1, 512) for window in (None, 128))
    op = wide.op_names.index("layer5.attention")
    assert narrow.forward_flops[op] == wide.forward_flops[op] / 4


def test_a_tied_head_has_the_work_but_not_the_parameters():
    tied, own = (shape_of({**LLAMA, "tie_word_embeddings": tied}, name="m").graph(1, 8) for tied in (True, False))
    head = tied.op_names.index("lm_head")
    assert tied.forward_flops[head] == own.forward_flops[head] > 0
    assert (tied.parameter_bytes[head], own.parameter_bytes[head]) == (0, 2 * 4096 * 32000)


def test_residuals_run_around_attention_and_feed_forward():
    graph = shape_of(GPT2, name="m").graph(1, 8)
    edges = {(graph.op_names[a], graph.op_names[b]) for a, b in graph.edges}
    assert ("embedding", "layer0.attention_output") in edges
    assert ("layer0.attention_output", "layer0.mlp_down") in edges
    assert ("layer0.mlp_down", "layer1.attention_output") in edges


@given(length=st.integers(1, 256), batch=st.integers(1, 9), factor=st.integers(2, 5))
def test_work_is_linear_in_the_batch_and_more_than_linear_in_the_length(length, batch, factor):
    shape = shape_of({**GPT2, "n_layer": 2, "n_positions": 2048}, name="m")
    flops = shape.graph(batch, length).forward_flops.sum()
    assert shape.graph(factor * batch, length).forward_flops.sum() == factor * flops
    assert shape.graph(batch, factor * length).forward_flops.sum() > factor * flops


def test_the_default_sequence_is_the_longest_up_to_2048():
    assert shape_of(GPT2, name="m").default_sequence_length == 1024
    assert shape_of(LLAMA, name="m").default_sequence_length == 2048


def test_a_config_file_is_named_by_its_folder(tmp_path):
    path = tmp_path / "tiny" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps({**GPT2, "n_layer": 1, "torch_dtype": "float32", "n_inner": None}))
    graph = load_config(path)
    assert (graph.name, graph.samples_per_step) == ("tiny", 8)
    assert load_config(path, batch_size=2, sequence_length=16).activation_bytes[0] == 2 * 2 * 16 * 768


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (GPT2, {"model_type": "gtp2"}, r"model_type: unsupported model type; supported are .*gpt2, .* \(got 'gtp2'\)"),
        (GPT2, {"model_type": None}, "model_type: the key is missing"),
        (GPT2, {"model_type": ["gpt2"]}, "unsupported model type"),
        (GPT2, {"n_layer": None}, "n_layer: the key is missing"),
        (GPT2, {"n_layer": 0}, r"n_layer: must be a positive whole number \(got 0\)"),
        (GPT2, {"n_layer": 10**9}, r"n_layer: must be 10000 at most \(got 1000000000\)"),
        (GPT2, {"n_embd": 768.5}, "n_embd: must be a positive whole number"),
        (GPT2, {"n_head": True}, "n_head: must be a positive whole number"),
        (GPT2, {"n_head": 7}, "n_head: 7 heads do not divide n_embd 768"),
        (LLAMA, {"num_key_value_heads": 5}, "num_key_value_heads: 5 key-value heads do not divide 32 heads"),
        (LLAMA, {"tie_word_embeddings": "yes"}, "tie_word_embeddings: must be true or false"),
        (MIXTRAL, {"num_experts_per_tok": 9}, r"num_experts_per_tok: there are only 8 experts \(got 9\)"),
        (MIXTRAL, {"num_local_experts": None}, "num_local_experts: the key is missing"),
    ],
)
def test_an_impossible_config_is_refused(tmp_path, config, changes, message):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, **changes}))
    with pytest.raises(GraphError, match=message) as error:
        load_config(path)
    assert str(error.value).startswith(f"{path}: ")


def test_files_that_hold_no_config_are_refused(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputFileError, match="not valid JSON"):
        load_config(tmp_path / "config.json")
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(GraphError, match="is a JSON object"):
        load_config(tmp_path / "config.json")


def test_a_sequence_beyond_the_table_of_positions_is_refused():
    with pytest.raises(GraphError, match="has only 1024 positions"):
        shape_of(GPT2, name="m").graph(1, 1025)
    assert shape_of(LLAMA, name="m").graph(1, 8192).samples_per_step == 1  # rotary positions have no table
    with pytest.raises(GraphError, match="batch_size: must be at least 1"):
        shape_of(GPT2, name="m").graph(0, 8)
