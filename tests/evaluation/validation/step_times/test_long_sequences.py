"""A 405B model at 32,768 to 262,144 tokens, as torchtitan measured it: rows that nothing was fitted on."""

import json

import pytest

from meshwright.costs.training_step.kernels import kernel_model
from meshwright.costs.training_step.step_time import Pricer
from meshwright.evaluation.validation.step_times.published_step_times import read_rows
from meshwright.evaluation.validation.step_times.validate import known_software, predict

# pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, table 6: Llama 3.1 405B on 512 H100 (tp = pp = 8), 1F1B, fp8,
# AsyncTP, full recomputation, 8 sequences of a replica; tokens per second and device, and GiB that the fullest rank reserved.
TABLE_6 = {32768: (8, 1, 76, 75.3), 65536: (4, 2, 47, 75.9), 131072: (2, 4, 31, 77.1), 262144: (1, 8, 16, 84.9)}


MODEL = {"layers": 126, "hidden": 16384, "heads": 128, "kv_heads": 8, "ffn": 53248, "vocab": 128256, "gated": True}
CLUSTER = {"devices_per_host": 8, "host_link": "nvswitch", "nics_per_host": 8, "nic_gbit_per_s": 400}


def read(tmp_path, *rows):
    """Published rows of the 405B model."""
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"schema": {}, "rows": rows}))
    return read_rows(path)


def rows(tmp_path):
    made = [
        {
            "id": f"torchtitan-405B-512-cp{cp}-{length}",
            "family": "torchtitan-2024",
            "source": "pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, table 6",
            "model": MODEL | {"sequence": length},
            "cluster": CLUSTER | {"device": "h100-sxm-96gb", "num_devices": 512},
            "layout": {
                **{"tp": 8, "pp": 8, "dp": dp, "cp": cp, "micro_batch": None, "global_batch": 8 * dp, "zero": 3},
                **{"recompute": "full", "overlap_dp": True, "precision": "bf16", "sequence_parallel": True},
            },
            "measured": {"step_time_s": 8 * dp * length / (512 * tokens_per_s)},
        }
        for length, (dp, cp, tokens_per_s, _) in TABLE_6.items()
    ]
    return read(tmp_path, *made)


def test_steps_of_long_sequences_are_as_published(tmp_path):
    results = [predict(row) for row in rows(tmp_path)]
    errors = [one.step_s / one.row.measured_s - 1 for one in results]
    assert errors == pytest.approx([0.005, -0.104, -0.048, -0.135], abs=0.002)  # as predictions.md tells
    assert max(map(abs, errors)) < 0.15


def test_memory_of_long_sequences_is_below_the_device(tmp_path):
    gib = [predict(row).memory_bytes / 2**30 for row in rows(tmp_path)]
    assert gib == pytest.approx([67.3] * 4, abs=0.1)  # printed, see above: 75.3 to 84.9
    assert all(ours < printed for ours, (_, _, _, printed) in zip(gib, TABLE_6.values(), strict=True))


def test_a_step_of_long_sequences_on_16384_devices_is_as_published_with_tuned_attention(tmp_path):
    # Llama 3, arXiv 2407.21783, table 4, third row: 380 TFLOP/s a device. 6 FLOP a token and parameter but the embedding,
    # 6 x layers x hidden x length of causal attention, as the first two rows of that table are read.
    tokens, parameters = 128 * 131072, 405.85e9 - 128256 * 16384
    flops = tokens * (6 * parameters + 6 * 126 * 16384 * 131072)
    row = {
        "id": "llama3-405B-16384-131072",
        "family": "llama3-2024",
        "source": "Llama 3, arXiv 2407.21783, table 4",
        "model": MODEL | {"sequence": 131072},
        "cluster": CLUSTER | {"device": "h100-sxm-80gb", "num_devices": 16384},
        "layout": {
            **{"tp": 8, "cp": 16, "pp": 16, "dp": 8, "micro_batch": 1, "global_batch": 128, "schedule": "interleaved"},
            **{"virtual_stages": None, "sequence_parallel": True, "recompute": "none", "zero": 2, "overlap_dp": True},
            **{"overlap_tp": None, "overlap_pp": None},
        },
        "measured": {"step_time_s": flops / (16384 * 380e12)},
    }
    (long,) = read(tmp_path, row)
    tuned = Pricer(long.device, long.wires, kernels=kernel_model(long.device, "h100-tuned", known_software(long)))
    plain, result = (
        predict(long, {(long.device, long.wires, known_software(long)): one} if one else {}) for one in (None, tuned)
    )
    assert long.measured_s == pytest.approx(10.90, abs=0.01)
    errors = [one.step_s / long.measured_s - 1 for one in (plain, result)]
    assert errors == pytest.approx([0.385, -0.091], abs=0.003)  # attention of plain PyTorch; tuned
    assert max(abs(one.prediction.z) for one in (plain, result)) < 2
