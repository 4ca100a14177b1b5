"""The kernels that `measure` measures: the items of every family, in the order of the file, without times.

The products are those that `costs.work.layer_parts` gives a transformer layer on one rank; tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...costs.work.elementwise import LOSS_BACKWARD_BYTES, LOSS_FORWARD_BYTES
from ...jobs.zoo.catalogue import zoo_batch_size
from .kernel_table import (
    FAMILIES,
    FusedAttentionItem,
    Item,
    LayerItem,
    LossItem,
    ModelItem,
    OptimizerItem,
    PaceItem,
    ProductItem,
    StreamItem,
)

HIDDEN = (1024, 1600, 2048, 2560, 4096, 5120, 6144, 8192, 12288)
TENSOR_PARALLEL = (1, 2, 4, 8)
TOKENS = (1024, 2048, 4096, 8192)
SQUARES = (256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384)
SKINNY_ROWS = (1, 8, 16, 32, 64, 128)
SKINNY = ((4096, 4096), (16384, 4096), (4096, 16384))
"""Columns and length of the sums."""

ODD = (
    *((tokens, vocabulary, hidden) for tokens in (2048, 8192) for vocabulary in (50257, 51200) for hidden in (1600, 4096)),
    (2048, 128_256, 4096),
    (1000, 1000, 1000),
    (1025, 1024, 1024),
    (2047, 2049, 2048),
    (2049, 2048, 2048),
    (4095, 4097, 4096),
    (4097, 4096, 4096),
    (4096, 4100, 4096),
    (3000, 4104, 1608),
    (8192, 1608, 1608),
)
"""Rows, columns, sums: vocabularies and sizes that no tile divides."""

HEAD_DIMS = (64, 80, 96, 128)
SEQUENCES = (512, 1024, 2048, 4096)
HEADS = {512: (64, 256), 1024: (32, 128), 2048: (16, 64), 4096: (8, 32)}
"""Heads times sequences of a micro-batch, by sequence length."""

STREAMS: dict[str, tuple[float, int]] = {
    "copy": (2, 1),
    "add": (3, 1),
    "gelu": (2, 1),
    "gelu gradient": (3, 1),
    "dropout": (2.5, 1),
    "dropout gradient": (2.5, 1),
    "norm": (2, 1),
    "norm gradient": (5, 2),
    "bias and gelu": (4, 2),
    "softmax": (2, 1),
    "softmax gradient": (3, 1),
}
"""How often each goes over a tensor of numbers of two bytes (a mask has half of that), and its launches. The gradient of a
norm reads gradient and input once for each of its two kernels, as `costs.work.layer_parts` counts it."""

STREAM_NUMBERS = tuple(2**power for power in (19, 21, 23, 25, 27, 29))
"""1 MiB to 1 GiB of two bytes each."""

LOSSES = ((2048, 50257), (8192, 50257), (2048, 51200), (8192, 51200), (2048, 128_256), (8192, 128_256))
PARAMETERS = ((1_000_000, 4), (10_000_000, 8), (100_000_000, 16), (400_000_000, 32), (1_000_000_000, 64))
"""Parameters, tensors."""

LAYERS = (
    (1024, 16, 1, 1, 1024),
    (1024, 16, 1, 8, 1024),
    (1600, 25, 1, 2, 1024),
    (1600, 25, 1, 8, 1024),
    (2048, 16, 1, 4, 2048),
    (2048, 32, 2, 4, 1024),
    (2560, 32, 1, 2, 2048),
    (2560, 32, 4, 4, 2048),
    (4096, 32, 1, 1, 2048),
    (4096, 32, 1, 4, 2048),
    (4096, 32, 2, 2, 4096),
    (4096, 32, 8, 4, 2048),
    (5120, 40, 1, 1, 4096),
    (5120, 40, 2, 2, 2048),
    (6144, 48, 1, 2, 2048),
    (6144, 64, 8, 4, 2048),
    (8192, 64, 1, 1, 2048),
    (8192, 64, 2, 1, 4096),
    (8192, 64, 4, 4, 2048),
    (8192, 64, 8, 1, 1024),
    (12288, 96, 1, 1, 2048),
    (12288, 96, 4, 2, 2048),
    (12288, 96, 8, 1, 4096),
    (12288, 96, 8, 4, 2048),
)
"""Hidden width, heads, tensor-parallel degree, sequences of a micro-batch, tokens of each."""

MODELS = ("alexnet", "vgg16", "resnet18", "resnet50", "squeezenet")
PACES = ("add", "add with its gradient's graph", "product", "norm")
PAIRED = ("layer", "model")
"""Families whose forward and backward item follow each other and are measured together."""

QUICK = {"product": 24, "attention_product": 4, "fused_attention": 6, "stream": 11, "loss": 4, "optimizer": 2, "layer": 10}


def grid(*, quick: bool = False) -> tuple[Item, ...]:
    """All items; with ``quick`` about as many of each family as `QUICK` says, spread over it."""
    items: tuple[Item, ...] = (
        *products(),
        *attention_products(),
        *fused_attention(),
        *streams(),
        *losses(),
        *optimizers(),
        *(PaceItem(family="gap", name=name) for name in ("in a graph", "in a stream")),
        *(PaceItem(family="host", name=name) for name in PACES),
        *layers(),
        *models(),
    )
    if not quick:
        return items
    kept: list[Item] = []
    for family in FAMILIES:
        own = [item for item in items if item.family == family]
        if family == "model":
            own = [item for item in own if item.name == "resnet18"]
        together = 2 if family in PAIRED else 1
        number = min(len(own), QUICK.get(family, len(own))) // together
        for place in range(number):
            first = together * ((2 * place + 1) * (len(own) // together) // (2 * number))
            kept += own[first : first + together]
    return tuple(kept)


def layer_products(hidden: int, tp: int, tokens: int) -> Iterator[ProductItem]:
    """The products of a GPT layer on one rank: each linear layer forward, for its input's and for its weight's gradient."""
    width, inner = hidden // tp, 4 * hidden // tp
    for name, n, k in (
        ("qkv", 3 * width, hidden),
        ("attention output", hidden, width),
        ("mlp up", inner, hidden),
        ("mlp down", hidden, inner),
    ):
        yield _product(name, tokens, n, k, transposed="second")
        yield _product(f"{name} input gradient", tokens, k, n)
        yield _product(f"{name} weight gradient", n, k, tokens, transposed="first", is_weight=True)


def products() -> Iterator[ProductItem]:
    """General products: squares, those of layers (two of three of each layer, in turn), skinny and odd ones; each once."""
    found: dict[tuple[int, int, int, str], ProductItem] = {}
    items = [_product("square", size, size, size) for size in SQUARES]
    for row, hidden in enumerate(HIDDEN):
        for column, tp in enumerate(TENSOR_PARALLEL):
            tokens = TOKENS[(row + column) % len(TOKENS)]
            of_layer = list(layer_products(hidden, tp, tokens))
            items += [item for place, item in enumerate(of_layer) if (place + row + column) % 3]
    items += [_product("skinny", m, n, k, transposed="second") for n, k in SKINNY for m in SKINNY_ROWS]
    items += [_product("odd", m, n, k, transposed="second") for m, n, k in ODD]
    for item in items:
        found.setdefault((item.m, item.n, item.k, item.transposed), item)
    yield from found.values()


def attention_products() -> Iterator[ProductItem]:
    """Scores, context and the gradient of the values."""
    for width in HEAD_DIMS:
        for s in SEQUENCES:
            for batch in HEADS[s]:
                shape = {"family": "attention_product", "batch": batch}
                yield ProductItem(name="scores", m=s, n=s, k=width, transposed="second", **shape)
                yield ProductItem(name="context", m=s, n=width, k=s, **shape)
                yield ProductItem(name="value gradient", m=s, n=width, k=s, transposed="first", **shape)


def fused_attention_item(batch: int, s: int, width: int, *, is_causal: bool, is_backward: bool) -> FusedAttentionItem:
    """Two products of ``s x s`` by ``width`` forward, five backward, half of each under a causal mask; reads or writes
    queries, keys, values and context once forward and twice backward (`costs.work.layer_parts`)."""
    flops = 4.0 * batch * width * s * s / (2 if is_causal else 1)
    moved = 2.0 * 4 * batch * s * width
    return FusedAttentionItem(
        family="fused_attention",
        name="attention gradient" if is_backward else "attention",
        batch=batch,
        sequence_length=s,
        head_dim=width,
        is_causal=is_causal,
        is_backward=is_backward,
        flops=2.5 * flops if is_backward else flops,
        moved_bytes=2 * moved if is_backward else moved,
    )


def fused_attention() -> Iterator[FusedAttentionItem]:
    """Causal ones of every head width, and ones that see all of two widths; up to 8,192 tokens."""
    for width in HEAD_DIMS:
        for s in (*SEQUENCES, 8192):
            for is_causal in (True, False) if width in (64, 128) else (True,):
                for is_backward in (False, True):
                    yield fused_attention_item(max(32, 131_072 // s), s, width, is_causal=is_causal, is_backward=is_backward)


def stream_item(name: str, numbers: int, columns: int) -> StreamItem:
    """A kernel of `STREAMS` over a number of values of two bytes each."""
    times, num_kernels = STREAMS[name]
    moved = 2.0 * times * numbers
    return StreamItem(family="stream", name=name, numbers=numbers, columns=columns, moved_bytes=moved, num_kernels=num_kernels)


def streams() -> Iterator[StreamItem]:
    """Each kernel at each size; rows of scores are 2,048 long, others 4,096."""
    for name in STREAMS:
        for numbers in STREAM_NUMBERS:
            yield stream_item(name, numbers, 2048 if name.startswith("softmax") else 4096)


def loss_item(operators: str, tokens: int, vocabulary: int, *, is_backward: bool) -> LossItem:
    """Bytes and launches as `costs.work.layer.head` counts them."""
    of_logit, launches = (LOSS_BACKWARD_BYTES, 4) if is_backward else (LOSS_FORWARD_BYTES, 12)
    return LossItem.model_validate(
        {
            "family": "loss",
            "name": "loss gradient" if is_backward else "loss",
            "operators": operators,
            "tokens": tokens,
            "vocabulary": vocabulary,
            "is_backward": is_backward,
            "moved_bytes": float(of_logit * tokens * vocabulary),
            "num_kernels": launches,
        }
    )


def losses() -> Iterator[LossItem]:
    """Every vocabulary by Megatron-LM's operators and by PyTorch's own, forward and backward."""
    for operators in ("megatron", "torch"):
        for tokens, vocabulary in LOSSES:
            for is_backward in (False, True):
                yield loss_item(operators, tokens, vocabulary, is_backward=is_backward)


def optimizers() -> Iterator[OptimizerItem]:
    """Updates with and without clipping."""
    for parameters, number in PARAMETERS:
        for clipped in (False, True):
            name = "clipping and adamw" if clipped else "adamw"
            yield OptimizerItem(family="optimizer", name=name, parameters=parameters, num_tensors=number, is_clipped=clipped)


def layers() -> Iterator[LayerItem]:
    """Every shape with fused attention and without; dropout in every second one. Forward and backward follow each other."""
    for place, (hidden, heads, tp, micro_batch, length) in enumerate(LAYERS):
        for attention in ("fused", "unfused"):
            for is_backward in (False, True):
                yield LayerItem.model_validate(
                    {
                        "family": "layer",
                        "name": "gpt layer",
                        "hidden": hidden,
                        "num_heads": heads,
                        "tp": tp,
                        "micro_batch": micro_batch,
                        "sequence_length": length,
                        "attention": attention,
                        "has_dropout": bool(place % 2),
                        "is_backward": is_backward,
                    }
                )


def models() -> Iterator[ModelItem]:
    """The convolutional networks of the zoo at their default batches."""
    for name in MODELS:
        for is_backward in (False, True):
            yield ModelItem(family="model", name=name, batch_size=zoo_batch_size(name), is_backward=is_backward)


def _product(name: str, m: int, n: int, k: int, *, transposed: str = "none", is_weight: bool = False) -> ProductItem:
    shape = {"m": m, "n": n, "k": k, "is_weight": is_weight, "transposed": transposed}
    return ProductItem.model_validate({"family": "product", "name": name, **shape})
