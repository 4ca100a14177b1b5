"""Small valid inputs of every form, from which cases are made."""

import json
from functools import cache
from pathlib import Path

import numpy as np

from meshwright.clusters.cluster import Cluster
from meshwright.jobs.job import Job
from meshwright.jobs.readers.huggingface import shape_of
from meshwright.jobs.readers.pipedream import load_profile
from meshwright.plans import Figure, Layout, OpSplits, layout_plan, op_placement_plan, op_split_plan, place

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"


def valid(name: str) -> str:
    """A valid input from the folder of this module."""
    return (Path(__file__).parent / "valid" / name).read_text()


def written(path: Path, text: str) -> Path:
    """The path of a file that holds a text to the letter, halves of surrogate pairs too."""
    path.write_text(text, newline="", errors="surrogatepass")
    return path


SIZES = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 128,
}
"""Keys that most families of models have."""

TRANSFORMERS = (
    {"model_type": "gpt2", "n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 128, "vocab_size": 1000, "n_inner": None},
    {
        "model_type": "mixtral",
        **SIZES,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 256,
        "sliding_window": 128,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "tie_word_embeddings": False,
        "attention_bias": False,
    },
    {"model_type": "bert", **SIZES, "type_vocab_size": 2},
    {"model_type": "gpt_neox", **SIZES, "use_parallel_residual": True},
    {
        "model_type": "gemma3_text",
        **SIZES,
        "num_hidden_layers": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "sliding_window": 16,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    },
    {
        "model_type": "deepseek_v3",
        **SIZES,
        "num_hidden_layers": 4,
        "moe_intermediate_size": 32,
        "q_lora_rank": 24,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
    },
)

DEVICE = """{name: small, peak_tflops_per_s: 312.0, memory_gib: 79.35, memory_bandwidth_gbytes_per_s: 2039.0,
  compute_efficiency: 0.6, memory_efficiency: 0.8, kernel_launch_us: 5.0}"""

HOSTS = """devices_per_host: 2, intra_host_bandwidth_gbytes_per_s: 300.0, intra_host_latency_us: 0.6, nics_per_host: 2,
  nic_bandwidth_gbytes_per_s: 25.0, nic_latency_us: 1.35"""

PAIR = """name: pair
device: a100
topology: {kind: single-host, num_devices: 2, fabric: switch, bandwidth_gbytes_per_s: 100.0, latency_us: 1.0}
"""

CLUSTERS = (
    PAIR,
    f"""name: own
device: {DEVICE}
device_overrides: {{gpu-1: v100}}
host_names: [gpu-0, gpu-1]
topology: {{kind: torus, shape: [2, 2], devices_per_host: 2, link_bandwidth_gbytes_per_s: 50.0, link_latency_us: 1.0}}
""",
    f"""name: leaves
device: h100
topology: {{kind: clos, num_hosts: 4, {HOSTS}, hosts_per_leaf: 2, wiring: rail, num_spines: 2, oversubscription: 2.0,
  spine_latency_us: 0.5}}
""",
    """name: light
device: a100
topology: {kind: ramp, num_groups: 2, num_racks: 2, servers_per_rack: 2, node_bandwidth_gbytes_per_s: 1600.0,
  propagation_ns: 50.0, io_ns: 100.0}
""",
    """name: measured
device: a100
topology: {kind: matrix, devices_per_host: 2, bandwidth_gbytes_per_s: [[0.0, 100.0], [90.0, 0.0]], latency_us: [[0, 1], [1.5, 0]]}
""",
    f"""name: traced
device: a100
topology: {{kind: trace, {HOSTS}, hosts_at: [[h1, C1, P1, A1], [h2, C1, P1, A2], [h3, C1, P2, A1]],
  leaf_uplink_gbytes_per_s: 100.0, leaf_uplink_latency_us: 0.5, pod_uplink_gbytes_per_s: 100.0, pod_uplink_latency_us: 0.5}}
""",
)

MATRIX = "0,100.0,25\n100.0,0,25\n25,25,0\n"


@cache
def pair() -> Cluster:
    """Two A100 in a host."""
    from meshwright import settings, yaml12
    from meshwright.clusters.settings import ClusterSettings

    return Cluster.from_settings(settings.build_settings(ClusterSettings, yaml12.parse(PAIR)[0]))


@cache
def graphs() -> tuple[str, ...]:
    """Saved job graphs as JSON: one measured, one of a transformer."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.txt"
        path.write_text(valid("graph.txt"))
        measured = load_profile(path)
    estimated = shape_of(TRANSFORMERS[0], name="tiny").graph(4).timed_on(pair().device_types[0])
    return tuple(json.dumps(graph.to_data()) for graph in (measured, estimated))


@cache
def plans() -> tuple[str, ...]:
    """Plans as JSON: op splits, a layout of a transformer, data parallelism over a pipeline, one by hand, an old one."""
    from meshwright.jobs.graph import JobGraph

    measured, estimated = (JobGraph.from_data(json.loads(text)) for text in graphs())
    figures = (
        Figure(name="step_s", value=0.034, unit="s", provenance="estimated"),
        Figure(name="mfu", value=0.4, unit="1", provenance="measured"),
    )
    both = place(pair(), [1, 0])
    splits = op_split_plan(Job(measured, 100, deadline_s=60.0), pair(), OpSplits(np.array([1, 2, 2])), both, predicted=figures)
    shape = shape_of(TRANSFORMERS[0], name="tiny")
    tensors = layout_plan(
        Job(estimated, 100), pair(), Layout(tp=2, micro_batch=2, global_batch=4), both, shape=shape, predicted=figures, why="so"
    )
    stages = layout_plan(Job(measured, 100), pair(), Layout(pp=2, micro_batch=1, global_batch=4), both)
    ops = op_placement_plan(
        Job(measured, 100), pair(), np.array([0, 0, 1]), np.arange(6)[[0, 1, 2, 5, 4, 3]], "throughput", optimizer="adam"
    )
    made = [json.dumps(plan.model_dump(mode="json", exclude_none=True)) for plan in (splits, tensors, stages, ops)]
    ranks = [{"rank": rank, "host": "gpu-01.local", "local_rank": rank, "device": rank} for rank in (0, 1)]
    by_hand = {"schema_version": 2, "job": {"name": "mine"}, "ranks": ranks}
    return (*made, json.dumps(by_hand), json.dumps({**by_hand, "schema_version": 1}))


LAYOUTS = (
    "tp=2,micro_batch=1,global_batch=4",
    "dp=2,micro_batch=2,global_batch=8,zero=1,overlap_dp=true",
    "pp=2,micro_batch=1,global_batch=4,schedule=interleaved,virtual_stages=2,recompute=full",
    "cp=2,micro_batch=1,global_batch=4,context_parallel=ulysses,shard_group=2,zero=3,precision=fp16,attention=unfused",
)
