"""Times whole training steps on the GPU that torch sees, and writes them as rows of `meshwright dev validate step-times`.

The models are those of Hugging Face's transformers, sharded by PyTorch's FSDP2 over the one GPU. Weights in float32 are cast to
bf16 for each layer. Gradients are in float32 and clipped, the optimizer is fused AdamW. Batches are random tokens. Only PyTorch
and transformers are needed::

    python -m benchmarks.gpu.steps steps.json
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

WARM_UP_STEPS, TIMED_STEPS = 3, 5
GIB = 2.0**30


class BenchmarkedModel(NamedTuple):
    """Dimensions; ``family`` is transformers' own name of the architecture, ``kv_heads`` 0 where it has as many as ``heads``."""

    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    is_tied: bool


class StepRun(NamedTuple):
    """A step to time: sequences and tokens of each, whether layers are run again in the backward pass, and compiled."""

    model: str
    micro_batch: int
    sequence: int
    recompute: str = "none"
    compile: bool = False

    @property
    def name(self) -> str:
        """Of its row."""
        parts = (self.model, f"b{self.micro_batch}", f"s{self.sequence}", self.recompute, *["compiled"] * self.compile)
        return "-".join(parts)


MODELS = {
    "gpt2-medium": BenchmarkedModel("gpt2", 24, 1024, 16, 0, 4096, 50257, True),
    "gpt2-xl": BenchmarkedModel("gpt2", 48, 1600, 25, 0, 6400, 50257, True),
    "qwen2.5-0.5b": BenchmarkedModel("qwen2", 24, 896, 14, 2, 4864, 151936, True),
    "llama-3.2-1b": BenchmarkedModel("llama", 16, 2048, 32, 8, 8192, 128256, True),
    "llama-3.2-3b": BenchmarkedModel("llama", 28, 3072, 24, 8, 8192, 128256, True),
    "llama-7b": BenchmarkedModel("llama", 32, 4096, 32, 0, 11008, 32000, False),
}
"""As their configurations are published (openai-community/gpt2-medium and -xl, Qwen/Qwen2.5-0.5B, meta-llama/Llama-3.2-1B and
-3B, huggyllama/llama-7b)."""

RUNS = (
    StepRun("gpt2-medium", 16, 1024),
    StepRun("gpt2-xl", 8, 1024),
    StepRun("gpt2-xl", 16, 1024, "full"),
    StepRun("qwen2.5-0.5b", 8, 2048),
    StepRun("llama-3.2-1b", 8, 2048),
    StepRun("llama-3.2-1b", 2, 8192),
    StepRun("llama-3.2-1b", 4, 8192, "full"),
    StepRun("llama-3.2-1b", 1, 32768, "full"),
    StepRun("llama-3.2-3b", 2, 4096),
    StepRun("llama-3.2-3b", 4, 4096, "full"),
    StepRun("llama-7b", 2, 2048, "full"),
    StepRun("llama-7b", 4, 4096, "full"),
    StepRun("llama-3.2-1b", 8, 2048, "none", True),
    StepRun("llama-3.2-3b", 2, 4096, "none", True),
    StepRun("gpt2-xl", 8, 1024, "none", True),
)


def built(model: BenchmarkedModel, sequence: int) -> torch.nn.Module:
    """Return the network with random weights in float32, on the current device; attention by PyTorch's own kernel, no dropout."""
    from transformers import AutoConfig, AutoModelForCausalLM

    if model.family == "gpt2":
        sizes: dict[str, Any] = {
            "n_layer": model.layers, "n_embd": model.hidden, "n_head": model.heads, "n_inner": model.ffn, "n_positions": sequence
        }  # fmt: skip
        sizes |= dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    else:
        sizes = {
            "num_hidden_layers": model.layers, "hidden_size": model.hidden, "num_attention_heads": model.heads,
            "num_key_value_heads": model.kv_heads or model.heads, "intermediate_size": model.ffn,
            "max_position_embeddings": sequence,
        }  # fmt: skip
    config = AutoConfig.for_model(
        model.family, **sizes, vocab_size=model.vocab, tie_word_embeddings=model.is_tied, use_cache=False
    )
    return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)


def sharded(network: Any, run: StepRun, device: torch.device) -> torch.nn.Module:
    """Return the layers wrapped as torchtitan does: recomputed, compiled, sharded, from the inner to the outer."""
    if run.recompute == "full":
        network.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    layers = network.transformer.h if hasattr(network, "transformer") else network.model.layers
    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    mesh = dist.device_mesh.init_device_mesh(device.type, (1,))
    for layer in layers:
        if run.compile:
            layer.compile()
        fully_shard(layer, mesh=mesh, mp_policy=precision)
    fully_shard(network, mesh=mesh, mp_policy=precision)
    network.train()
    return network


def timed(run: StepRun, device: torch.device, model: BenchmarkedModel) -> dict[str, float]:
    """Return the median seconds of a step, and peaks of memory in GiB as the allocator gave out and held it."""
    torch.manual_seed(0)
    with device:
        network = sharded(built(model, run.sequence), run, device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5, fused=device.type == "cuda")
    tokens = torch.randint(model.vocab, (run.micro_batch, run.sequence + 1), device=device)
    seconds: list[float] = []
    for number in range(WARM_UP_STEPS + TIMED_STEPS):
        if number == WARM_UP_STEPS and device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        _wait(device)
        began = time.perf_counter()
        logits = network(tokens[:, :-1]).logits
        loss = F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())
        del logits
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        _wait(device)
        seconds.append(time.perf_counter() - began)
    result = {"step_time_s": statistics.median(seconds[WARM_UP_STEPS:]), "slowest_step_s": max(seconds[WARM_UP_STEPS:])}
    if device.type == "cuda":
        result["allocated_gib"] = torch.cuda.max_memory_allocated() / GIB
        result["peak_memory_gib"] = torch.cuda.max_memory_reserved() / GIB
    return result


def row(run: StepRun, model: BenchmarkedModel, result: dict[str, float], device: str) -> dict[str, Any]:
    """Return a row as `meshwright dev validate step-times` reads it."""
    return {
        "id": run.name,
        "family": f"fsdp2-one-{device}",
        "model": {
            "layers": model.layers, "hidden": model.hidden, "heads": model.heads, "kv_heads": model.kv_heads or model.heads,
            "ffn": model.ffn, "vocab": model.vocab, "sequence": run.sequence, "gated": model.family != "gpt2",
            "tied_head": model.is_tied, "dropout": False, **({"activation": "gelu_new"} if model.family == "gpt2" else {}),
        },
        "cluster": {"device": device, "devices_per_host": 1, "host_link": "nvswitch", "num_devices": 1},
        "layout": {
            "tp": 1, "pp": 1, "dp": 1, "cp": 1, "micro_batch": run.micro_batch, "global_batch": run.micro_batch,
            "schedule": "1f1b", "recompute": run.recompute, "zero": 3, "precision": "bf16", "framework": "fsdp2",
            "compile": run.compile,
            "async_gradients": False, "fused_accumulation": False,
        },
        "measured": result,
        "source": "measured by meshwright, benchmarks/gpu/steps.py, 2026",
    }  # fmt: skip


@contextlib.contextmanager
def _one_process(device: torch.device) -> Iterator[None]:
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Time all runs, or those whose name holds ``--only``, and write after each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--device", default="h200", help="device type that the rows name")
    parser.add_argument("--only", default="")
    parser.add_argument("--small", action="store_true", help="models of two layers, on any device: to see that it runs")
    options = parser.parse_args()
    import transformers

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    about = {"torch": torch.__version__, "transformers": transformers.__version__, "cuda": torch.version.cuda}
    if device.type == "cuda":
        about["gpu"] = torch.cuda.get_device_name()
    rows, left_out = [], []
    with _one_process(device):
        for run in (one for one in RUNS if options.only in one.name):
            model = MODELS[run.model]
            if options.small:
                run = run._replace(micro_batch=1, sequence=64)
                model = model._replace(layers=2, hidden=64, heads=4, kv_heads=min(2, model.kv_heads), ffn=128, vocab=512)
            try:
                result = timed(run, device, model)
            except (RuntimeError, ImportError) as error:
                left_out.append({"id": run.name, "reason": str(error).splitlines()[0]})
                print(run.name, left_out[-1]["reason"], flush=True)
            else:
                rows.append(row(run, model, result, options.device))
                print(run.name, {key: round(value, 4) for key, value in result.items()}, flush=True)
            gc.collect()
            torch.compiler.reset()
            if device.type == "cuda":
                torch.cuda.empty_cache()
            options.out.write_text(json.dumps({"measured_with": about, "left_out": left_out, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
