"""Element-wise work of a layer: bytes that it moves, in fused kernels or operator by operator of PyTorch.

Megatron-LM has a kernel for each norm, each residual and each activation, and torch.compile makes such kernels. Where nothing
fuses, every operator of PyTorch reads its operands and writes its result. Counts below are of those operators as in the
sources, each number of an operand read once and of a result written once. Numbers that are broadcast or reduced to one a row
are not counted. ``e`` is the bytes of a number, 4 those of the float32 in which norms, rotations and the loss are computed.

Source:
    pytorch/pytorch at 2.6, aten/src/ATen/native/layer_norm.cpp (``rms_norm``), tools/autograd/derivatives.yaml;
    pytorch/torchtitan, torchtitan/models/llama/model.py (``apply_rotary_emb``, ``FeedForward``) and train.py (the loss);
    huggingface/transformers, src/transformers/activations.py (``NewGELUActivation``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .operations import Sweep

if TYPE_CHECKING:
    from .layer_parts import LayerParts

LOSS_FORWARD_BYTES, LOSS_BACKWARD_BYTES = 38, 14
"""Bytes that Megatron-LM's vocabulary-parallel cross-entropy moves for each logit. Forward: to float32 (6), maximum (4), minus
maximum (8), exponential (8), sum (4), division (8). Backward: times the gradient (8), back to half precision (6).
"""

PLAIN_LOSS_FORWARD_BYTES, PLAIN_LOSS_BACKWARD_BYTES = 14, 22
"""The same of PyTorch's cross-entropy of logits that are brought to float32. Forward: to float32 (6), log-softmax (8).
Backward: the gradient of the picked ones into zeros (4), that of log-softmax from two (12), back to half precision (6).
"""

PLAIN_LOSS_NUMBERS, SPREAD_PLAIN_LOSS_NUMBERS = 12, 16
"""Bytes that it holds of each logit at its worst moment, when those in half precision are dropped. They are log-softmax, its
gradient and that of the logits, in float32. A loss over logits that are spread over tp also has the exponentials
(pytorch/pytorch, torch/distributed/tensor/parallel/loss.py, ``_nll_loss_and_log_softmax_backward``).
"""


def norm(parts: LayerParts, name: str, numbers: float | None = None, times: int = 1) -> tuple[Sweep, Sweep]:
    """Return some equal norms, forward and backward, of the residual stream or of as many numbers in all as are given.

    In one kernel it reads and writes once; backward it reads gradient and input, writes the gradient, and reads both for the
    weights. PyTorch has one for layer norm. Root-mean-square norm is operators. Forward: to float32 (e + 4), square (8), mean
    (4), times its root (8), back (4 + e), times the weights (2 e). Backward: those of the product with the weights (6 e), of
    the cast (e + 4), of the product with the root (20). Then of the mean and the square (28), their sum (12), and of the first
    cast (4 + e).
    """
    numbers = parts.tokens * parts.shape.hidden / parts.split if numbers is None else numbers
    e = parts.element_bytes
    if parts.layout.runs_operators and parts.shape.norm_vectors == 1:
        forward, backward = Sweep(name, (28.0 + 4 * e) * numbers, 6 * times), (68.0 + 8 * e) * numbers
        return forward, Sweep(f"{name} gradient", backward, 14 * times)
    return Sweep(name, 2 * e * numbers, times), Sweep(f"{name} gradient", 5 * e * numbers, 2 * times)


def activation(parts: LayerParts, numbers: float) -> tuple[Sweep, Sweep]:
    """Return the activation on its input (two inputs with a gate): reads them, writes one; backward reads and writes them too.

    Operator by operator a gated one is SiLU (2 e) and a product (3 e); backward twice the product's (6 e) and SiLU's (3 e).
    PyTorch has a kernel for GELU. Some models make it of operators, ``0.5 x (1 + tanh(c (x + 0.044715 x^3)))``. These are a
    power, four scalings or shifts and tanh (12 e), and a sum and a product (6 e). Backward they are two products (6 e), three
    scalings (6 e), tanh's (3 e), the power's (7 e), and two sums (6 e).
    """
    reads, e = parts.halves, parts.element_bytes
    if parts.layout.runs_operators and parts.shape.has_gelu_of_operators:
        return Sweep("activation", 18.0 * e * numbers, 8), Sweep("activation gradient", 28.0 * e * numbers, 11)
    if parts.layout.runs_operators and reads == 2:
        return Sweep("activation", 5.0 * e * numbers, 2), Sweep("activation gradient", 9.0 * e * numbers, 3)
    return Sweep("activation", (reads + 1.0) * e * numbers, 1), Sweep("activation gradient", (2.0 * reads + 1) * e * numbers, 1)


def rotary(parts: LayerParts) -> list[Sweep]:
    """Return the rotation of queries and keys by their positions, as long forward as backward; none where positions have a table.

    Fused it reads and writes once. Operator by operator: to float32 (e + 4), product of complex numbers (8), back (4 + e).
    What Megatron-LM's kernel takes is not counted, as little as before.
    """
    shape, e = parts.shape, parts.element_bytes
    is_of_megatron = parts.layout.compile is None and not parts.layout.runs_operators
    if is_of_megatron or shape.learned_positions or shape.is_encoder:
        return []
    numbers = parts.tokens * (parts.query_width + parts.key_width)
    moved = 16.0 + 2 * e if parts.layout.runs_operators else 2.0 * e
    return [Sweep("rotary", moved * numbers, 6 if parts.layout.runs_operators else 1)]
