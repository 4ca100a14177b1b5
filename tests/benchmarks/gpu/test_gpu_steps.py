"""Steps that `benchmarks.gpu.steps` times are rows that `validate step-times` prices."""

import os
import subprocess
import sys

import pytest

from meshwright import files
from meshwright.evaluation.validation.step_times.published_step_times import read_rows


def test_every_run_is_a_row_that_is_read_whole(tmp_path):
    from benchmarks.gpu.steps import MODELS, RUNS, row  # half a second of PyTorch's, which no other test wants

    measured = {"step_time_s": 1.0, "slowest_step_s": 1.1, "allocated_gib": 1.0, "peak_memory_gib": 2.0}
    rows = [row(run, MODELS[run.model], measured, "h200") for run in RUNS]
    files.write_json(tmp_path / "steps.json", {"rows": rows})
    for made, run in zip(read_rows(tmp_path / "steps.json"), RUNS, strict=True):
        assert made.unsupported is None
        assert made.notes == ()
        assert (made.allocated_bytes, made.held_bytes) == (2**30, 2 * 2**30)
        assert (made.layout["recompute"], made.layout["compile"]) == (run.recompute, run.compile)


@pytest.mark.library
def test_a_small_model_of_transformers_is_timed_on_any_device(tmp_path):
    pytest.importorskip("transformers")
    command = [sys.executable, "-m", "benchmarks.gpu.steps", str(tmp_path / "steps.json"), "--small", "--only", "qwen"]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(["", *sys.path])}, timeout=300)
    (made,) = read_rows(tmp_path / "steps.json")
    assert made.unsupported is None
    assert made.measured_s > 0
