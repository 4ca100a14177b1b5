"""Plain PyTorch, unlike Megatron-LM: unpadded vocabularies, and a GELU made of operators."""

import pytest

from meshwright.costs.work.activations.stage_activations import activation_bytes
from meshwright.costs.work.layer import head
from meshwright.costs.work.operations import Product, Sweep
from meshwright.costs.work.work import describe
from meshwright.evaluation.validation.step_times.published_step import gpt
from meshwright.evaluation.validation.step_times.validate import validate
from meshwright.jobs.readers.huggingface import shape_of
from meshwright.jobs.transformer import ModelConstants
from meshwright.plans.partition import Layout

TOKENS, HIDDEN, INNER = 4 * 256, 512, 2048
KEYS = {"micro_batch": 4, "global_batch": 4, "framework": "fsdp2", "zero": 3}


def model(vocabulary=50257, activation=None):
    return gpt(2, HIDDEN, 8, vocabulary, 256, has_dropout=False, constants=ModelConstants(activation=activation))


@pytest.mark.parametrize(("framework", "vocabulary", "at"), [("fsdp2", 50257, 2), ("fsdp2", 50304, 16), (None, 50257, 16)])
def test_only_fsdp2_has_rows_of_logits_that_nobody_padded(framework, vocabulary, at):
    made = head(model(vocabulary), Layout(**KEYS | {"framework": framework}), 256, has_own_table=False)
    products = [item for item in (*made.forward, *made.backward) if isinstance(item, Product)]
    assert len(products) == 3
    assert {product.row_bytes for product in products} == {at}


def test_a_gelu_of_operators_moves_and_keeps_more_worked_by_hand():
    by_operators, by_kernel = (describe(model(activation=so), Layout(**KEYS, compile=False), 256) for so in ("gelu_new", "gelu"))
    fused = describe(model(activation="gelu_new"), Layout(**KEYS, compile=True), 256)

    def moved(work):
        block = work.blocks["layer"]
        sweeps = [item for item in (*block.forward, *block.backward) if isinstance(item, Sweep) and "activation" in item.name]
        return [sweep.moved_bytes for sweep in sweeps]

    assert moved(by_operators) == [18 * 2 * TOKENS * INNER, 28 * 2 * TOKENS * INNER]
    assert moved(by_kernel) == moved(fused) == [2 * 2 * TOKENS * INNER, 3 * 2 * TOKENS * INNER]
    # Half of the input, one plus tanh, and tanh, of two bytes each, in both layers.
    assert activation_bytes(by_operators) - activation_bytes(by_kernel) == 2 * 3 * 2 * TOKENS * INNER
    assert activation_bytes(fused) == activation_bytes(by_kernel)


@pytest.mark.parametrize(("word", "so"), [("gelu_new", True), ("gelu_pytorch_tanh", False), (None, False)])
def test_a_configuration_says_which_gelu_it_takes(word, so):
    config = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 100, "n_positions": 32}
    shape = shape_of(config | ({} if word is None else {"activation_function": word}), name="tiny")
    assert shape.has_gelu_of_operators is so


def test_steps_that_were_timed_on_one_h200_are_met_and_nothing_was_fitted_on_them():
    results = [one for one in validate(["h200"]).predictions if one.predicted is not None]
    assert len(results) == 15
    assert sum(one.relative_error for one in results) / len(results) < 0.10
    assert sum(abs(one.allocated_bytes / one.row.allocated_bytes - 1) for one in results) / len(results) < 0.03
    assert sum(abs(one.memory_bytes / one.row.held_bytes - 1) for one in results) / len(results) < 0.03
    # Without a vocabulary that nobody padded and a GELU of operators (Llama, Qwen) the steps are nearer.
    others = [one for one in results if not one.row.name.startswith("gpt2")]
    assert sum(one.relative_error for one in others) / len(others) < 0.05
