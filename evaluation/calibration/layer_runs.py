"""Whole passes of a GPT layer and of the zoo's convolutional networks in plain PyTorch, forward and backward, eager.

A layer is one rank's: heads and inner width divided by the tensor-parallel degree, no communication. Weights and activations
are bf16; the networks' weights are float32 under autocast, ``channels_last``, with the loss in the forward pass.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from .kernel_table import LayerItem, ModelItem
from .kernel_timing import CallTimer, PassTimes

DROPOUT = 0.1
IMAGE_SIZE, NUM_CLASSES = 224, 1000
TORCHVISION_NAMES = {"squeezenet": "squeezenet1_1"}
"""Where torchvision's name is not the zoo's."""


class GptLayer(nn.Module):
    """Pre-norm GPT layer with a joint product of queries, keys and values, and GELU between products four times as wide."""

    def __init__(self, item: LayerItem, *, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.heads = item.num_heads // item.tp
        self.head_dim = item.hidden // item.num_heads
        self.is_fused = item.attention == "fused"
        self.dropout = DROPOUT if item.has_dropout else 0.0
        width, inner = self.heads * self.head_dim, 4 * item.hidden // item.tp
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.first_norm, self.second_norm = nn.LayerNorm(item.hidden, **made), nn.LayerNorm(item.hidden, **made)
        self.qkv, self.output = nn.Linear(item.hidden, 3 * width, **made), nn.Linear(width, item.hidden, **made)
        self.up, self.down = nn.Linear(item.hidden, inner, **made), nn.Linear(inner, item.hidden, **made)
        s = item.sequence_length
        mask = torch.full((s, s), -math.inf, **made).triu(1)
        self.register_buffer("mask", None if self.is_fused else mask)

    def forward(self, x: Tensor) -> Tensor:
        """Return one pass; ``x`` and the result are ``(sequences, tokens, hidden)``."""
        x = x + self._dropped(self._attention(self.first_norm(x)))
        inner = functional.gelu(self.up(self.second_norm(x)))
        return x + self._dropped(self.down(inner))

    def _attention(self, x: Tensor) -> Tensor:
        b, s, _ = x.shape
        q, k, v = self.qkv(x).view(b, s, 3, self.heads, self.head_dim).permute(2, 0, 3, 1, 4)
        if self.is_fused:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                out = functional.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout, is_causal=True)
        else:
            scores = (q * self.head_dim**-0.5) @ k.mT + self.mask
            out = self._dropped(scores.softmax(-1)) @ v
        projected: Tensor = self.output(out.transpose(1, 2).reshape(b, s, -1))
        return projected

    def _dropped(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.dropout) if self.dropout else x


def layer_times(item: LayerItem, watch: CallTimer) -> PassTimes:
    """Return measured times of a layer's forward and backward pass, with gradients of its input and of its weights."""
    layer = GptLayer(item, device=watch.device)
    shape = (item.micro_batch, item.sequence_length, item.hidden)
    x = torch.randn(shape, device=watch.device, dtype=torch.bfloat16, requires_grad=True)
    gradient = torch.randn(shape, device=watch.device, dtype=torch.bfloat16)
    target = [x, *layer.parameters()]
    return watch.pass_times(lambda: layer(x), lambda out: torch.autograd.grad(out, target, gradient))


def why_no_models() -> str | None:
    """Return why the convolutional networks cannot be measured here; None where they can."""
    try:
        import torchvision  # noqa: F401
    except (ImportError, OSError, RuntimeError) as error:  # the latter where it was built for another torch
        return (
            f"torchvision cannot be imported: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no reason'}"
        )
    return None


def model_times(item: ModelItem, watch: CallTimer) -> PassTimes:
    """Return measured times of the forward and backward pass of a network of the zoo, by torchvision, with random weights."""
    import torchvision

    with watch.device:
        made: nn.Module = torchvision.models.get_model(
            TORCHVISION_NAMES.get(item.name, item.name), weights=None, num_classes=NUM_CLASSES
        )
    return network_times(made.to(memory_format=torch.channels_last), item.batch_size, watch)  # type: ignore[call-overload]


def network_times(made: nn.Module, batch_size: int, watch: CallTimer, *, image_size: int = IMAGE_SIZE) -> PassTimes:
    """Return measured times of the forward and backward pass of a module that classifies images."""
    images = torch.randn(batch_size, 3, image_size, image_size, device=watch.device).to(memory_format=torch.channels_last)
    targets = torch.randint(NUM_CLASSES, (batch_size,), device=watch.device)
    target = list(made.parameters())
    before, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, True

    def forward() -> Tensor:
        with torch.autocast(images.device.type, dtype=torch.bfloat16):
            return functional.cross_entropy(made(images), targets)

    try:
        return watch.pass_times(forward, lambda out: torch.autograd.grad(out, target))
    finally:
        torch.backends.cudnn.benchmark = before
