"""``meshwright validate collectives`` and ``meshwright calibrate collectives``: output, exit status, refusals."""

import json
import os

import pytest

from meshwright.cli import run_command_line
from meshwright.costs.collectives.libraries import tables

ROWS = "".join(
    f"all_reduce,half,{n},{2**k},{(0.004 + 0.001 * n + 2 * (n - 1) / n * 2 ** (k + 1) / 200e6) * (1.1 if k % 2 else 1):.6f}\n"
    for n in (2, 4, 8)
    for k in range(8, 20)
)


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("op_name,nccl_dtype,num_gpus,message_size,latency\n" + ROWS)
    return path


def test_errors_of_sizes_and_groups_are_told(table, tmp_path, capsys):
    out = tmp_path / "out.json"
    assert run_command_line(["dev", "validate", "collectives", str(table), "--json", str(out)]) == 0
    output = capsys.readouterr().out
    for words in ("Message sizes left out", "Group sizes left out", "alpha-beta line", "log-log interpolation", "18 sizes"):
        assert words in output
    data = json.loads(out.read_text())
    assert {"predicted", "reference", "relative_error", "family", "item"} <= data["rows"][0].keys()
    for family, summary in data["summary"].items():
        errors = [row["relative_error"] for row in data["rows"] if row["family"] == family]
        assert summary["mean_relative_error"] == pytest.approx(sum(errors) / len(errors))
        assert summary["max_relative_error"] == max(errors)
        assert summary["items"] == len(errors)
    first = data["rows"][0]
    assert first["relative_error"] == pytest.approx(abs(first["predicted"] / first["reference"] - 1))


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ((), 0),
        (("--set", "max_mean_error=0.01"), 1),
        (("--set", "max_mean_error=0.2"), 0),
        (("--set", "max_mean_group_error=0.0001"), 1),
        (("--set", "max_mean_error=0.2", "--set", "max_mean_group_error=0.2"), 0),
    ],
)
def test_only_an_error_beyond_what_is_allowed_exits_with_1(table, capsys, options, status):
    assert run_command_line(["dev", "validate", "collectives", str(table), *options]) == status
    assert (": mean error " in capsys.readouterr().out) == bool(status)


def test_calibrated_tables_are_written_whole_and_can_be_chosen(table, tmp_path, capsys):
    out = tmp_path / "mine.yaml"
    words = ["dev", "calibrate", "collectives", str(table), "--out", str(out), "--set", "device=a100", "--set"]
    assert run_command_line([*words, "name=mine"]) == 0
    assert f"written: {out}" in capsys.readouterr().out.replace("\n", "")
    assert len(tables.load(str(out)).curves) == 3
    assert sorted(os.listdir(tmp_path)) == ["mine.yaml", "table.csv"]
    assert run_command_line([*words, "half=true", "--json", "-"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["file"], data["tables"]) == (str(out), 3)


def test_a_written_table_prices_an_estimate(tmp_path, capsys):
    rows = ["op_name,nccl_dtype,num_gpus,message_size,latency", *(f"all_reduce,half,8,{2**k},500" for k in (10, 20, 30))]
    (tmp_path / "slow.csv").write_text("\n".join(rows))
    out = tmp_path / "slow.yaml"
    calibrate = ["dev", "calibrate", "collectives", str(tmp_path / "slow.csv"), "--out", str(out), "--set", "device=a100"]
    assert run_command_line(calibrate) == 0
    capsys.readouterr()
    request = ["estimate", "--job", "zoo:gpt2-small", "--cluster", "preset:host-8", "--layout"]
    request.append("dp=8,micro_batch=1,global_batch=8,overlap_dp=false")
    assert run_command_line([*request, "--set", f"collectives_table={out}", "--json", "-"]) == 0
    output = {part["name"]: part["seconds"] for part in json.loads(capsys.readouterr().out)["breakdown"]}
    assert output["gradient sync"] >= 0.5  # one all-reduce takes half a second by the table
    assert run_command_line([*request, "--set", "collectives=ring", "--set", f"collectives_table={out}"]) == 2
    assert "a collectives_table wants collectives: measured" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dev", "validate", "collectives", "absent.csv"), "no such file"),
        (("dev", "validate", "collectives", "TABLE", "--set", "max_mean_error=-1"), "--set: max_mean_error: must be "),
        (("dev", "validate", "collectives", "TABLE", "--set", "max_mean_error=nan"), "--set: max_mean_error: must be "),
        (("dev", "calibrate", "collectives", "TABLE"), "--device: the files do not say which devices"),
        (
            ("dev", "calibrate", "collectives", "TABLE", "--set", "device=a100", "--out", "no/such/x.yaml"),
            "--out: no such folder",
        ),
        (("dev", "calibrate", "collectives", "TABLE", "--set", "operation=allreduc"), "--set operation: unknown collective"),
    ],
)
def test_bad_input_is_told_in_one_line_and_exits_with_2(table, refused, arguments, message):
    assert message in refused(*(table if part == "TABLE" else part for part in arguments))
