"""Layouts of several models on several clusters, drawn from a seed: the same in every run."""

import random
from functools import cache

from meshwright.clusters.cluster import load_cluster
from meshwright.costs.work.model_chunks import is_legal
from meshwright.errors import ConfigError
from meshwright.jobs.load import load_shape
from meshwright.jobs.readers.huggingface import shape_of
from meshwright.plans.partition import Layout
from meshwright.settings import build_settings

CLUSTERS = ("dgx-a100-8x8", "dgx-a100-8x8", "dgx-a100-8x8", "host-8", "clos-64-4to1", "ramp-4x4x2")

LLAMA = {
    "model_type": "llama",
    "hidden_size": 2048,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 5632,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
GEMMA = LLAMA | {"model_type": "gemma3_text", "num_hidden_layers": 12, "head_dim": 256, "sliding_window": 256}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "hidden_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "moe_intermediate_size": 512,
    "n_routed_experts": 8,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 3,
    "q_lora_rank": 384,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 2816}


@cache
def shapes():
    """Shape and tokens of a sequence by name: dense with and without a tied table, an encoder, experts."""
    gpt2, llama, bert = (load_shape(f"zoo:{name}")[0] for name in ("gpt2-small", "llama-7b", "bert-base"))
    return {
        "gpt2": (gpt2.model_copy(update={"num_layers": 8}), 1024),
        "llama-7b": (llama.model_copy(update={"num_layers": 8}), 2048),
        "bert": (bert.model_copy(update={"num_layers": 8}), 512),
        "config": (shape_of(LLAMA, name="config"), 1024),
        "experts": (shape_of(MIXTRAL, name="experts"), 1024),
    }


@cache
def mixed_shapes():
    """Layers of several kinds: local and global attention with norms behind, dense ones before those with latent attention."""
    lite = DEEPSEEK | {"model_type": "deepseek_v2", "q_lora_rank": None, "first_k_dense_replace": 1}
    return {
        "gemma": (shape_of(GEMMA, name="gemma"), 1024),
        "deepseek": (shape_of(DEEPSEEK, name="deepseek"), 1024),
        "lite": (shape_of(lite, name="lite"), 1024),
    }


@cache
def cluster(name):
    return load_cluster(f"preset:{name}")


def layouts(count, seed, known=None):
    """``(model, cluster, layout)``, each legal and no larger than the cluster."""
    rng, result, known = random.Random(seed), [], known or shapes()
    while len(result) < count:
        name, place = rng.choice(sorted(known)), rng.choice(CLUSTERS)
        tp, cp = rng.choice([1, 1, 2, 4, 8]), rng.choice([1, 1, 1, 2, 4])
        pp, dp = rng.choice([1, 1, 2, 4, 8]), rng.choice([1, 2, 4, 8])
        if tp * cp * pp * dp > cluster(place).num_devices:
            continue
        schedule = rng.choice(["1f1b", "gpipe", "interleaved", "zb-h1", "zb-2p"]) if pp > 1 else "1f1b"
        micro_batch = rng.choice([1, 2, 4])
        options = {
            "tp": tp,
            "cp": cp,
            "pp": pp,
            "dp": dp,
            "ep": rng.choice([1, 2, 4]) if known[name][0].num_experts > 1 else 1,
            "schedule": schedule,
            "virtual_stages": 2 if schedule == "interleaved" and pp <= 4 else 1,
            "micro_batch": micro_batch,
            "global_batch": micro_batch * dp * rng.choice([1, 2, 4] if pp == 1 else [pp, 2 * pp, pp // 2, pp + 1, 2 * pp + 1]),
            "sequence_parallel": rng.random() < 0.5,
            "recompute": rng.choice(["none", "none", "selective", "full"]),
            "zero": rng.choice([0, 0, 1, 2, 3]),
            "overlap_tp": rng.random() < 0.4,
            "overlap_pp": rng.random() < 0.5,
            "overlap_dp": rng.random() < 0.5,
            "context_parallel": rng.choice(["ring", "all-gather", "ulysses"]),
            "distributed_optimizer": rng.random() < 0.2,
            "attention": rng.choice(["fused", "fused", "unfused"]),
            "shard_group": rng.choice([None, None, 2]),
        }
        if pp > 1 and schedule == "1f1b" and options["overlap_pp"] and micro_batch < 4:
            options["schedule"] = "eager-1f1b"
        try:
            layout = build_settings(Layout, options)
        except ConfigError:
            continue
        if is_legal(known[name][0], layout, known[name][1]):
            result.append((name, place, layout))
    return result
