"""The bricks of a transformer layer: kernels and messages of its parts, forward and backward.

Legend: ``s`` tokens of a sequence, ``b`` sequences of a micro-batch, ``t`` tensor-parallel degree, ``h`` hidden width, ``e``
bytes of a number.
"""

from __future__ import annotations

from dataclasses import replace

from ...jobs.transformer import TransformerShape
from ...plans.frameworks.defaults import TRAITS
from ...plans.partition import Layout
from ..collectives.prices import Operation
from .adapters import adapter_parameters
from .attention_core import is_masked, seen_pairs, softmax
from .elementwise import activation, norm, rotary
from .experts import experts
from .latent_attention import latent_products, narrow_parameters, up_parameters
from .operations import FusedAttention, Item, Message, Pass, Product, Sweep
from .stage_work import BlockWeights

OVERLAP_CHUNKS = 4
"""Pieces into which overlapped tensor-parallel messages and their products are cut. Jiang et al., "MegaScale", 2024, section
3.2, cut into small chunks without naming their number; 4 is an assumption.
"""


class LayerParts:
    """The bricks of a layer: every method gives items, or forward and backward items."""

    def __init__(self, shape: TransformerShape, layout: Layout, sequence_length: int, *, is_head: bool = False) -> None:
        self.shape = shape
        # Linear attention has no scores to store.
        self.layout = layout.model_copy(update={"attention": "fused"}) if shape.window_form == "linear" else layout
        self.sequence_length = sequence_length
        self.element_bytes = layout.number_bytes
        self.tokens = layout.micro_batch * sequence_length // layout.cp
        self.split = layout.tp if layout.sequence_parallel else 1
        """Into how many parts the residual stream is cut by sequence."""
        self.query_width = shape.num_heads * shape.head_dim / layout.tp
        self.key_width = max(shape.num_key_value_heads, layout.tp) * shape.head_dim / layout.tp
        self.value_width = max(shape.num_key_value_heads, layout.tp) * shape.value_head_dim / layout.tp
        self.context_width = shape.num_heads * shape.value_head_dim / layout.tp
        self.joint_width = self.query_width + self.key_width + self.value_width
        self.halves = 2 if shape.is_gated else 1
        self.is_fp8 = layout.precision == "fp8" and not is_head
        self.casts_once = self.is_fp8 and layout.keeps_fp8
        self.traits = TRAITS[layout.framework]

    @property
    def weights(self) -> BlockWeights:
        """Parameters of one layer on this rank."""
        rank, each = self.layout.lora_rank, self.layout.frozen_parameter_bytes
        if rank is not None:
            return BlockWeights(
                dense_parameters=adapter_parameters(self._matrices, rank),
                frozen_bytes=each * self.dense_parameters,
                frozen_expert_bytes=each * self.expert_parameters,
                largest_weight=self.largest_weight,
            )
        dense, experts = self.dense_parameters, self.expert_parameters
        return BlockWeights(dense_parameters=dense, expert_parameters=experts, largest_weight=self.largest_weight)

    @property
    def _matrices(self) -> list[tuple[float, float]]:
        """Rows and columns on this rank of the matrices that may have adapters."""
        shape, t = self.shape, self.layout.tp
        width = (shape.shared_feed_forward or 0) if shape.num_experts > 1 else shape.feed_forward
        made = [(self.joint_width, shape.hidden), (shape.hidden, self.context_width)]
        return made + [(self.halves * width / t, shape.hidden), (shape.hidden, width / t)] * (width > 0)

    @property
    def dense_parameters(self) -> float:
        """Parameters of one layer on this rank, without experts."""
        shape, t = self.shape, self.layout.tp
        if shape.latent is not None:
            count = narrow_parameters(shape) + up_parameters(shape) / t + shape.hidden * self.context_width
        else:
            count = shape.hidden * (self.joint_width + self.query_width) + self.joint_width * shape.qkv_bias
        count += shape.hidden * shape.output_bias
        count += (shape.side_weights or 0) / t
        num_norms = 4 if shape.has_output_norms else 2
        count += shape.norm_vectors * (num_norms * shape.hidden + (2 * shape.head_dim if shape.has_head_norms else 0))
        if shape.num_experts > 1:
            count += (self.halves + 1) * shape.hidden * (shape.shared_feed_forward or 0) / t
            return count + shape.hidden * shape.num_experts
        count += (self.halves + 1) * shape.hidden * shape.feed_forward / t
        return count + (self.halves * shape.feed_forward / t + shape.hidden) * shape.mlp_bias

    @property
    def largest_weight(self) -> float:
        """Parameters of the largest weight of the layer on this rank."""
        shape = self.shape
        cut = self.layout.expert_tp if shape.num_experts > 1 else self.layout.tp
        inner = self.halves * shape.feed_forward / cut * max(1, shape.num_experts // self.layout.ep)
        return max(shape.hidden * inner, self.largest_joint_weight)

    @property
    def largest_joint_weight(self) -> float:
        """Parameters of the largest weight on this rank that makes queries, keys or values."""
        if self.shape.latent is None:
            return self.shape.hidden * self.joint_width
        return max(up_parameters(self.shape) / self.layout.tp, float(narrow_parameters(self.shape)))

    @property
    def expert_parameters(self) -> float:
        """Parameters of the experts on this rank."""
        shape = self.shape
        if shape.num_experts <= 1:
            return 0.0
        return shape.num_experts / self.layout.ep * (self.halves + 1) * shape.hidden * shape.feed_forward / self.layout.expert_tp

    def message(self, name: str, operation: Operation, num_concurrent: int = 0, *, is_weight: bool = False) -> Message:
        """Return a tensor-parallel message of all tokens' activations; what is gathered for products in fp8 may be so by then."""
        chunks = OVERLAP_CHUNKS if self.layout.overlap_tp and num_concurrent else 1
        width = 1 if self.casts_once and operation == "all_gather" else self.element_bytes
        return Message(name, operation, "tp", float(width * self.tokens * self.shape.hidden), num_concurrent, chunks, is_weight)

    def linear(self, name: str, m: int, n: int, k: int, batch: int = 1) -> Product:
        """Return the product of a linear layer, by fp8 in numbers of one byte, that both operands are turned into or are by then.

        Of several experts Transformer Engine casts each operand and launches each product by itself, PyTorch all products in one.

        Source:
            NVIDIA/TransformerEngine, transformer_engine/common/gemm/cublaslt_gemm.cu (``nvte_multi_stream_cublas_gemm``) and
            transformer_engine/pytorch/csrc/extensions/cast.cpp (``split_quantize``).
        """
        casts = 2 if self.is_fp8 and not self.casts_once else 0
        launches = (batch if self.traits.uses_transformer_engine else 1) * (2 if batch > 1 and self.casts_once else 1)
        return Product(name, m, n, k, batch, is_fp8=self.is_fp8, fp8_casts=casts, num_launches=launches)

    def cast(self, name: str, numbers: float, num_kernels: int = 1) -> list[Item]:
        """Return the cast of an operand to one-byte numbers for all its products; empty where the products cast it themselves.

        A kernel reads 16 bits and writes a byte twice, as the one product reads the number and as the other one, transposed.
        So MXFP8 does. Under delayed scaling norms and activations write bytes themselves. Under current scaling the maximum of
        what they did not write is read first, 2 bytes more.

        Source:
            NVIDIA/TransformerEngine, transformer_engine/common/transpose/cast_transpose.cu and
            transformer_engine/pytorch/csrc/extensions/normalization.cpp (``Impl``).
        """
        return [Sweep(f"{name} cast", 4.0 * numbers, num_kernels)] if self.casts_once else []

    def cast_linear(self, name: str, m: int, n: int, k: int) -> list[Item]:
        """Return the product of a linear layer, and before it what turns its input into numbers of one byte."""
        return [*self.cast(f"{name} input", m * k), self.linear(name, m, n, k)]

    def residual(self, name: str) -> tuple[Sweep, Sweep]:
        """Return bias, dropout (a mask of one byte each) and residual in one kernel; backward the mask alone and a sum of two."""
        part = self.tokens * self.shape.hidden / self.split
        drop = 1 if self.shape.has_dropout else 0
        forward = Sweep(name, (3 * self.element_bytes + drop) * part, 1)
        return forward, Sweep(f"{name} gradient", (3 * self.element_bytes + drop * (2 * self.element_bytes + 1)) * part, 1 + drop)

    def sum_bytes(self, parameters: float) -> float:
        """Return the bytes that adding one micro-batch's gradient to the sum moves, beyond what the product itself does.

        FSDP2 that reduces in passes sums nothing: it copies gradients into the buffer from which they are reduced.
        """
        if self.layout.fused_accumulation:
            return 0.0
        if self.layout.is_fsdp2 and self.layout.reduces_in_passes:
            return (self.layout.gradient_bytes + self.element_bytes) * parameters
        return (2.0 * self.layout.gradient_bytes + self.element_bytes) * parameters

    def weight_gradient(self, name: str, m: int, n: int, k: int, batch: int = 1) -> Product:
        """Return the product of a weight's gradient, which adds to the sum by itself if it may."""
        sum_bytes = self.layout.gradient_bytes if self.layout.fused_accumulation else 0
        made = self.linear(f"{name} weight gradient", m, n, k, batch)
        # Its operands were cast for the products before it.
        return replace(made, is_weight=True, sum_bytes=sum_bytes, num_launches=min(batch, made.num_launches))

    def gradients(self, name: str, m: int, n: int, k: int, *, bias: bool = False, batch: int = 1) -> list[Item]:
        """Return the gradients of the input and then of the weights of a linear layer of ``m`` tokens, without messages."""
        weights = batch * n * k
        made: list[Item] = [self.linear(f"{name} input gradient", m, k, n, batch), self.weight_gradient(name, n, k, m, batch)]
        if self.sum_bytes(weights):
            made.append(Sweep(f"{name} gradient sum", self.sum_bytes(weights), 1, is_weight=True))
        if bias:
            made.append(Sweep(f"{name} bias gradient", self.element_bytes * m * n * batch, 1, is_weight=True))
        return made

    def product_backward(
        self, name: str, m: int, n: float, k: float, *, is_column: bool, bias: bool = False, batch: int = 1
    ) -> list[Item]:
        """Return gradients of a linear layer of ``m`` tokens.

        A layer that is cut by columns sums the gradient of its input over tp, or scatters it by sequence. A layer that is cut
        by rows gathers the gradient of its output where that is cut by sequence. With ``async_gradients`` the sum overlaps
        with the product of the weight gradient. Under sequence parallelism the input is gathered again during the input
        gradient, and the scatter runs during the weight gradient.
        """
        layout = self.layout
        to_input, *to_weight = self.gradients(name, m, round(n), round(k), bias=bias, batch=batch)
        cast = self.cast(f"{name} gradient", m * n / (1 if is_column else self.split))
        if layout.tp == 1:
            return [*cast, to_input, *to_weight]
        asynchronous = layout.async_gradients or layout.overlap_tp
        if not is_column:
            if not layout.sequence_parallel:
                return [*cast, to_input, *to_weight]
            # The gathered gradient is wanted by both products; with overlap_tp it comes in pieces.
            gather = self.message(f"{name} output gradient", "all_gather", 1 if layout.overlap_tp else 0)
            return [*cast, gather, to_input, *to_weight]
        if not layout.sequence_parallel:
            sum_ = self.message(f"{name} input gradient", "all_reduce", len(to_weight) if asynchronous else 0)
            return [*cast, to_input, replace(sum_, chunks=1), *to_weight]
        again = self.message(f"{name} input again", "all_gather", 1 if asynchronous else 0)
        scatter = self.message(f"{name} input gradient", "reduce_scatter", len(to_weight) if asynchronous else 0)
        if layout.keeps_gathered:
            return [to_input, replace(scatter, chunks=1), *to_weight]
        return [*cast, replace(again, chunks=1), to_input, replace(scatter, chunks=1), *to_weight]

    def attention_core(self) -> Pass:
        """Return the scores, softmax, dropout and context, unfused."""
        heads, rows, columns = self._heads()
        scores = heads * rows * columns
        e = self.element_bytes
        items: list[Item] = [
            Product("scores", rows, columns, self.shape.head_dim, heads, is_attention=True),
            *self._indexed("indexer scores"),
            softmax(self.shape, self.element_bytes, heads, columns, scores)[0],
        ]
        if self.shape.has_dropout:
            items.append(Sweep("attention dropout", (2 * e + 1.0) * scores, 1))
        items.append(Product("context", rows, self.shape.value_head_dim, columns, heads, is_attention=True))
        return tuple(items)

    def _indexed(self, name: str) -> list[Item]:
        """Return an indexer's product over all pairs, where there is one."""
        heads, rows, columns = self._heads()
        width = round(heads / self.shape.num_heads * (self.shape.indexer_width or 0))
        return [Product(name, rows, columns, width, is_attention=True)] if width else []

    def attention(self) -> tuple[list[Item], list[Item]]:
        """Return the norm to output product, without the residual, forward and backward."""
        shape, tokens = self.shape, self.tokens
        joint, width = round(self.joint_width), round(self.context_width)
        copy = Sweep("context copy", 2.0 * self.element_bytes * tokens * width, 1)
        core_forward, core_backward = self._core()
        qkv, qkv_backward = self._joint() if shape.latent is None else latent_products(self)
        forward: list[Item] = [*qkv, *core_forward, copy]
        forward += self._scattered("attention output", self.cast_linear("attention output", tokens, shape.hidden, width))
        backward = self.product_backward("attention output", tokens, shape.hidden, width, is_column=False, bias=shape.output_bias)
        backward += [replace(copy, name="context gradient copy"), *core_backward]
        if self.layout.attention == "unfused":  # the gradients of the three are put side by side again
            backward.append(Sweep("joined gradient copy", 2.0 * self.element_bytes * tokens * joint, 1))
        return forward, [*backward, *qkv_backward]

    def side_columns(self, rows: int) -> int:
        """Return the columns of a product that count for the layer's side weights on this rank, a multiple of eight."""
        return 8 * round((self.shape.side_weights or 0) / (8 * rows * self.layout.tp))

    def _joint(self) -> tuple[list[Item], list[Item]]:
        """Return the queries, keys and values in one product, and the norms of heads."""
        shape, tokens = self.shape, self.tokens
        joint = max(1, round(self.joint_width) + self.side_columns(shape.hidden))
        # Megatron-LM adds the joint bias by a kernel of its own, PyTorch inside the product; others go with what follows theirs.
        is_apart = shape.qkv_bias and not self.traits.is_plain_pytorch
        bias = [Sweep("qkv bias", 2.0 * self.element_bytes * tokens * joint, 1)] if is_apart else []
        forward: list[Item] = [*self.gathered("qkv", [self.linear("qkv", tokens, joint, shape.hidden)]), *bias]
        backward = self.product_backward("qkv", tokens, joint, shape.hidden, is_column=True, bias=shape.qkv_bias)
        if shape.has_head_norms:
            norm_forward, norm_backward = norm(self, "head norms", tokens * (self.query_width + self.key_width), times=2)
            forward.append(norm_forward)
            backward.insert(0, norm_backward)
        turned = rotary(self)
        return [*forward, *turned], [*turned, *backward]

    def feed_forward(self) -> tuple[list[Item], list[Item]]:
        """Return up, activation, down, forward and backward; experts where there are any."""
        return experts(self) if self.shape.num_experts > 1 else self.dense("mlp", self.shape.feed_forward)

    def dense(self, name: str, width: int) -> tuple[list[Item], list[Item]]:
        """Return the products of a dense feed-forward layer of some inner width."""
        shape, tokens = self.shape, self.tokens
        inner = width / self.layout.tp
        wide = round(self.halves * inner)
        up, down = f"{name} up", f"{name} down"
        act, act_gradient = activation(self, tokens * inner)
        forward: list[Item] = [*self.gathered(up, [self.linear(up, tokens, wide, shape.hidden)]), act]
        forward += self._scattered(down, self.cast_linear(down, tokens, shape.hidden, round(inner)))
        backward = self.product_backward(down, tokens, shape.hidden, inner, is_column=False, bias=shape.mlp_bias)
        backward.append(act_gradient)
        backward += self.product_backward(up, tokens, wide, shape.hidden, is_column=True, bias=shape.mlp_bias)
        return forward, backward

    def in_turn(self, attention: tuple[list[Item], list[Item]], feed_forward: tuple[list[Item], list[Item]]) -> tuple[Pass, Pass]:
        """Return norm, attention, residual, norm, feed-forward, residual; norms before residuals where the model has them."""
        forward: list[Item] = []
        backward: list[Item] = []
        for name, (part_forward, part_backward) in (("attention", attention), ("mlp", feed_forward)):
            before, before_gradient = norm(self, f"{name} norm")
            residual, residual_gradient = self.residual(f"{name} residual")
            last, last_gradient = norm(self, f"{name} output norm")
            has_last = bool(self.shape.has_output_norms)
            forward += [before, *part_forward, *[last] * has_last, residual]
            backward[:0] = [residual_gradient, *[last_gradient] * has_last, *part_backward, before_gradient]
        return tuple(forward), tuple(backward)

    def joined(self, attention: tuple[list[Item], list[Item]], feed_forward: tuple[list[Item], list[Item]]) -> tuple[Pass, Pass]:
        """Return one norm, one gathered input and one summed output for both halves (Wang and Komatsuzaki, "GPT-J-6B", 2021)."""
        before, before_gradient = norm(self, "norm")
        residual, residual_gradient = self.residual("residual")
        forward, backward = attention
        there_mlp, back_mlp = feed_forward
        no_gather = [i for i in there_mlp if not (isinstance(i, Message) and i.axis == "tp" and i.operation == "all_gather")]
        no_scatter = [i for i in forward if not (isinstance(i, Message) and i.axis == "tp" and i.operation != "all_gather")]
        twice = {"mlp up input again", "mlp up input gradient", "mlp down output gradient"}
        back_mlp = [i for i in back_mlp if not (isinstance(i, Message) and i.name in twice - {"mlp down output gradient"})]
        backward = [i for i in backward if not (isinstance(i, Message) and i.name == "attention output output gradient")]
        return (before, *no_scatter, *no_gather, residual), (residual_gradient, *back_mlp, *backward, before_gradient)

    def gathered(self, name: str, products: list[Item]) -> list[Item]:
        """Return the products after the gathering of their input where that is cut by sequence."""
        cast = self.cast(f"{name} input", self.tokens * self.shape.hidden / self.split)
        if self.layout.tp == 1 or not self.layout.sequence_parallel:
            return [*cast, *products]
        return [*cast, self.message(f"{name} input", "all_gather", 1 if self.layout.overlap_tp else 0), *products]

    def _scattered(self, name: str, products: list[Item]) -> list[Item]:
        """Return the products before the sum of their output over tp; with overlap_tp the two run side by side in pieces."""
        if self.layout.tp == 1:
            return products
        operation: Operation = "reduce_scatter" if self.layout.sequence_parallel else "all_reduce"
        if self.layout.overlap_tp:
            return [self.message(name, operation, len(products)), *products]
        return [*products, self.message(name, operation)]

    def _heads(self) -> tuple[int, int, int]:
        """Return the heads of the micro-batch on this rank, queries of each, keys that each query sees."""
        layout, shape = self.layout, self.shape
        ulysses = layout.cp > 1 and layout.context_parallel == "ulysses"
        heads = max(1, round(layout.micro_batch * shape.num_heads / layout.tp / (layout.cp if ulysses else 1)))
        rows = self.sequence_length // (1 if ulysses else layout.cp)
        return heads, rows, self.sequence_length

    def _core(self) -> tuple[list[Item], list[Item]]:
        """Return everything between the two linear layers of attention, with the messages of context parallelism."""
        shape, layout, e = self.shape, self.layout, self.element_bytes
        heads, rows, columns = self._heads()
        if layout.attention == "unfused":
            scores = heads * rows * columns
            drop = [Sweep("attention dropout gradient", (2 * e + 1.0) * scores, 1)] if shape.has_dropout else []
            forward: list[Item] = list(self.attention_core())
            backward: list[Item] = [
                Product("value gradient", columns, shape.value_head_dim, rows, heads, is_attention=True),
                Product("probability gradient", rows, columns, shape.value_head_dim, heads, is_attention=True),
                *drop,
                softmax(self.shape, self.element_bytes, heads, columns, scores)[1],
                Product("query gradient", rows, shape.head_dim, columns, heads, is_attention=True),
                Product("key gradient", columns, shape.head_dim, rows, heads, is_attention=True),
                *self._indexed("indexer query gradient"),
                *self._indexed("indexer key gradient"),
            ]
        else:
            flops = 2.0 * heads * (shape.head_dim + shape.value_head_dim) * seen_pairs(shape, layout, rows, columns)
            flops += heads / shape.num_heads * (shape.indexer_width or 0) * rows * columns  # it scores half of all pairs
            width = e * self.tokens * (self.joint_width + self.context_width)
            length, head_dim = rows if is_masked(shape, layout) else min(rows, shape.window or rows), shape.head_dim
            forward = [FusedAttention("attention", flops, width, length=length, head_dim=head_dim)]
            # Five products backward against two forward: scores again, and the gradients of V, P, Q and K.
            gradient = FusedAttention(
                "attention gradient", 2.5 * flops, 2 * width, is_backward=True, length=length, head_dim=head_dim
            )
            backward = [gradient]
        return self._in_context(forward), self._in_context(backward, is_backward=True)

    def _in_context(self, items: list[Item], *, is_backward: bool = False) -> list[Item]:
        """Return attention with the messages of context parallelism before, during and after it."""
        layout, e, c = self.layout, self.element_bytes, self.layout.cp
        if c == 1:
            return items
        names = ("context gradient", "key and value gradient") if is_backward else ("key and value", "context")
        local = float(e * self.tokens)
        if layout.context_parallel == "ulysses":
            queries = local * self.joint_width
            context = local * self.context_width
            first, last = (context, queries) if is_backward else (queries, context)
            return [
                Message(names[0], "all_to_all", "cp", first),
                *items,
                Message(names[1], "all_to_all", "cp", last),
            ]
        block = local * (self.key_width + self.value_width)
        if layout.context_parallel == "all-gather":
            gather = Message("key and value", "all_gather", "cp", c * block)
            after = [Message(names[1], "reduce_scatter", "cp", c * block)] if is_backward else []
            return [gather, *items, *after]
        # Ring: each of c blocks of attention runs while the next keys and values come; backward their gradients go along.
        turns = (2 if is_backward else 1) * (c - 1) * block
        return [Message("ring of keys and values", "send_recv", "cp", turns, len(items)), *items]
