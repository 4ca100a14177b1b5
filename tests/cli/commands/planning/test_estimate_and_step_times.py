"""``meshwright estimate`` and ``meshwright validate step-times``: exit codes, JSON alone on standard output, one-line errors."""

import json

import pytest

from meshwright.cli import run_command_line

ESTIMATE = ["estimate", "--job", "zoo:gpt2-small", "--cluster", "preset:host-8", "--layout"]
ROW = {
    "id": "run-1",
    "family": "mine",
    "model": {"layers": 24, "hidden": 2048, "heads": 16, "vocab": 51200, "sequence": 1024},
    "cluster": {"device": "a100-80gb", "devices_per_host": 8, "num_devices": 8},
    "layout": {"tp": 2, "pp": 1, "dp": 4, "micro_batch": 2, "global_batch": 64},
    "measured": {"step_time_s": 100.0},
    "source": "somebody 2024",
}


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"rows": [ROW, ROW | {"id": "run-2", "cluster": {"device": "abacus", "num_devices": 8}}]}))
    return path


@pytest.fixture
def llama(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({
            "model_type": "llama",
            "hidden_size": 256,
            "intermediate_size": 512,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "vocab_size": 1024,
            "max_position_embeddings": 8192,
        })
    )  # fmt: skip
    return ["estimate", "--job", str(path), "--cluster", "preset:host-8", "--layout", "tp=2,dp=4,micro_batch=1,global_batch=32"]


def test_what_was_priced_stands_above_the_table_and_a_length_that_was_not_given_is_told(llama, capsys):
    # a layer: 4 x 256^2 of attention, 3 x 256 x 512 of the MLP, 2 x 256 of norms; 256 of the last norm, two tables of 1024 x 256
    parameters = 2 * (4 * 256**2 + 3 * 256 * 512 + 2 * 256) + 256 + 2 * 1024 * 256
    assert run_command_line(llama) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"32 sequences of 2048, tp=2 dp=4 mb=1, {parameters:,} parameters"
    assert lines[1].endswith("the model has 8,192 positions: --sequence-length 8192")
    for length in ("2048", "8192"):
        assert run_command_line([*llama, "--sequence-length", length]) == 0
        output = capsys.readouterr().out
        assert output.startswith(f"32 sequences of {length}, ")
        assert "by default, the model has" not in output


def test_an_estimate_is_a_table_and_json_and_each_row_of_explain_says_its_base_or_why_there_is_none(tmp_path, capsys):
    words = ["tp=2,dp=2,micro_batch=1,global_batch=2", "--explain", "--json", str(tmp_path / "estimate.json")]
    assert run_command_line([*ESTIMATE, *words]) == 0
    data, shown = json.loads((tmp_path / "estimate.json").read_text()), capsys.readouterr().out
    assert {figure["name"] for figure in data["figures"]} >= {"step_s", "mfu", "memory_bytes"}
    assert "mfu" in shown
    lines = [line.rstrip() for line in shown.splitlines() if line.strip().startswith(("vertical ", "flows ", "intra-inter "))]
    rows = {line.split()[1]: line for line in lines}
    assert {row["switch"] for row in data["switches"]} >= set(rows)
    assert rows["overlap_pp=true"].endswith("changes nothing: pp is 1")
    assert rows["overlap_dp=false"].endswith("estimated    the estimate")
    assert rows["contention=fair"].endswith("simulated    the same, simulated")
    assert rows["collectives=joint"].endswith("estimated    a ring")


def test_step_times_are_told_with_the_calibration_and_the_unsupported(rows, capsys):
    assert run_command_line(["dev", "validate", "step-times", str(rows)]) == 0
    output = capsys.readouterr().out
    assert "unsupported: run-2: no such device type: abacus" in output
    assert "Constants fitted on" in output
    assert "Rows inside predicted intervals" in output


def test_step_times_tell_what_was_taken_for_granted(tmp_path, capsys):
    cluster = {"device": "h200", "devices_per_host": 8, "num_devices": 16}
    spread = ROW | {"cluster": cluster, "layout": ROW["layout"] | {"dp": 8}}
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"rows": [spread, spread | {"id": "run-2"}]}))
    assert run_command_line(["dev", "validate", "step-times", str(path)]) == 0
    output = capsys.readouterr().out
    assert "note: cluster.nics_per_host is not printed: 8, one for each device as in a DGX (run-1, run-2)" in output
    assert "note: cluster.nic_gbit_per_s is not printed: 400, as in a DGX with h200 devices (run-1, run-2)" in output


def test_step_times_as_json_have_what_every_validation_has(rows, capsys):
    assert run_command_line(["dev", "validate", "step-times", str(rows), "--json", "-"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert {"item", "predicted", "reference", "relative_error"} <= set(data["rows"][0])
    assert data["summary"]["mine"]["unsupported"] == 1
    assert {"inside_68", "inside_95", "rms_z"} <= set(data["summary"]["mine"]["coverage_left_out"])
    assert data["calibration_set"]


def test_a_family_beyond_the_allowed_error_exits_1(rows):
    assert run_command_line(["dev", "validate", "step-times", str(rows), "--set", "max_mean_error=0.05"]) == 1
    assert run_command_line(["dev", "validate", "step-times", str(rows), "--set", "max_mean_error=2"]) == 0
    assert run_command_line(["dev", "validate", "step-times", str(rows), "--set", "max_mean_error=-1"]) == 2


def test_an_impossible_layout_exits_2_with_one_line(capsys):
    assert run_command_line([*ESTIMATE, "tp=8,micro_batch=1,global_batch=3"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
