"""Small items of every family of measured kernels, and what a plain formula gives for each in float64."""

import math

import torch
from torch.nn import functional

from meshwright.evaluation.calibration.kernel_runs import DECAY, DROPOUT, EPSILON, MAX_NORM, RATE
from meshwright.evaluation.calibration.kernel_table import suite

SMALL = {
    "product": {"name": "product", "m": 130, "n": 72, "k": 200, "is_weight": False},
    "attention_product": {"m": 96, "n": 96, "k": 80, "batch": 3},
    "fused_attention": {"batch": 2, "sequence_length": 128, "head_dim": 64, "flops": 1.0, "moved_bytes": 1.0},
    "stream": {"numbers": 64 * 128, "columns": 128, "moved_bytes": 1.0},
    "loss": {"tokens": 32, "vocabulary": 1000, "moved_bytes": 1.0},
    "optimizer": {"parameters": 4096, "num_tensors": 1},
    "layer": {"hidden": 128, "num_heads": 4, "tp": 2, "micro_batch": 2, "sequence_length": 64, "has_dropout": False},
}
"""Sizes in place of the suite's, by family; bytes and operations are of no item of these sizes."""


def small(family):
    """Every kind of a family's items, so small that a formula computes it at once."""
    return tuple(dict.fromkeys(item.model_copy(update=SMALL.get(family)) for item in suite() if item.family == family))


def _gradients(formula, of, inputs, gradient):
    expected = [of[name].requires_grad_() for name in inputs.split()]
    result = torch.autograd.grad(formula(of), expected, gradient, allow_unused=True)
    return tuple(one for one in result if one is not None)


def _product(item, of):
    return (of["first"] @ of["second"],)


def _fused_attention(item, of):
    def attention(of):
        scores = of["q"] @ of["k"].mT / math.sqrt(of["q"].shape[-1])
        if item.is_causal:
            scores = scores + torch.full_like(scores, -math.inf).triu(1)
        return scores.softmax(-1) @ of["v"]

    return _gradients(attention, of, "q k v", of["gradient"]) if item.is_backward else (attention(of),)


def _stream(item, of):
    if item.name.startswith("dropout"):
        return ((of["y" if item.name.endswith("gradient") else "x"]) * of["mask"] / (1 - DROPOUT),)
    formulas = {
        "copy": lambda of: of["x"],
        "add": lambda of: of["x"] + of["y"],
        "gelu": lambda of: functional.gelu(of["x"]),
        "bias and gelu": lambda of: functional.gelu(of["x"] + of["bias"]),
        "norm": lambda of: functional.layer_norm(of["x"], [of["x"].shape[-1]], of["weight"], of["bias"]),
        "softmax": lambda of: of["x"].softmax(-1),
    }
    name = item.name.removesuffix(" gradient")
    return (formulas[name](of),) if name == item.name else _gradients(formulas[name], of, "x weight bias", of["y"])


def _loss(item, of):
    ones = torch.ones(item.tokens, dtype=torch.float64)
    loss = lambda of: functional.cross_entropy(of["logits"], of["targets"], reduction="none")  # noqa: E731
    return _gradients(loss, of, "logits", ones) if item.is_backward else (loss(of),)


def _optimizer(item, of):
    """The change: the first step of AdamW moves each number by the rate, against its gradient's sign, after the decay."""
    gradient = of["gradient"] * (min(1.0, MAX_NORM / float(of["gradient"].norm())) if item.is_clipped else 1.0)
    return (-of["master"] * RATE * DECAY - RATE * gradient / (gradient.abs() + EPSILON),)


FORMULAS = {
    "product": _product,
    "attention_product": _product,
    "fused_attention": _fused_attention,
    "stream": _stream,
    "loss": _loss,
    "optimizer": _optimizer,
}
