"""The parts of a table of steps, and what the fit counts."""

import json

import pytest

from meshwright.costs.training_step.kernels import kernel_settings
from meshwright.errors import InputFileError
from meshwright.evaluation.calibration.fit_a100 import (
    FITTED,
    LAYER_TIMES,
    Residual,
    _pairs,
    _part_residuals,
    _parts,
    _rows,
    calibrate,
)
from meshwright.evaluation.validation.step_times.published_step_times import VTRAIN_COLUMNS

LAYER_S = {(1, 2): 0.003, (1, 4): 0.005, (2, 2): 0.002}
HEAD_S = {(1, 2): 0.010, (1, 4): 0.019, (2, 2): 0.004}


def seconds(tp, micro, num, layers):
    """A step as the table has it: sums of parts, and 0.4 ms a layer and 2 ms once."""
    return num * (layers * LAYER_S[tp, micro] + HEAD_S[tp, micro]) + 0.0004 * layers + 0.002


@pytest.fixture
def table(tmp_path):
    lines = [",".join(VTRAIN_COLUMNS)]
    for tp, micro in LAYER_S:
        for num in (1, 2, 4):
            for layers in (12, 24):
                time_ms = 1e3 * seconds(tp, micro, num, layers)
                lines.append(f"{tp},{num * micro},{micro},1024,16,{layers},1024,{tp},1,1,{time_ms!r}")
    lines.append("2,16,4,2048,16,24,1024,1,1,2,1.0")  # of another hidden size: no part of the calibration set
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_parts_of_a_table_are_those_that_it_is_made_of(table):
    rows = _rows([table])
    assert len(rows) == 18
    measured = [Residual(row.name, row.measured_s, row.measured_s) for row, _ in rows]
    result = {one.item: one.fitted for one in _part_residuals(_parts(rows), measured)}
    for (tp, micro), layer_s in LAYER_S.items():
        assert result[f"layer, tp {tp}, micro-batch {micro}"] == pytest.approx(layer_s)
        assert result[f"embedding and head, tp {tp}, micro-batch {micro}"] == pytest.approx(HEAD_S[tp, micro])
    assert len(result) == 6


def test_pairs_differ_in_the_number_of_micro_batches_alone(table):
    rows = _rows([table])
    pairs = _pairs(rows)
    assert len(pairs) == 12  # 1 and 2, 2 and 4 micro-batches, of three parts and two depths
    for one, other in pairs:
        (_, few), (_, many) = rows[one], rows[other]
        assert many.layout == few.layout.model_copy(update={"global_batch": 2 * few.layout.global_batch})
        assert many.shape == few.shape


def test_files_that_lack_a_half_of_the_calibration_set_are_refused(table, tmp_path):
    layers = tmp_path / "layers.json"
    layers.write_text(json.dumps({"korthikanti_table4_per_layer_22B": {"rows": [{"experiment": "baseline"}]}}))
    with pytest.raises(InputFileError, match="no JSON with the layer times"):
        calibrate([table])
    with pytest.raises(InputFileError, match="not the table of layer times"):
        calibrate([table, layers])


def test_a_table_of_which_no_parts_follow_is_refused(tmp_path):
    """No row without a pipeline, no pair, and twice as many micro-batches in less than half the time."""
    layers, table = tmp_path / "layers.json", tmp_path / "table.csv"
    rows = [{"experiment": name, "fwd_ms": 7.7, "bwd_ms": 11.9} for name, *_ in LAYER_TIMES]
    layers.write_text(json.dumps({"korthikanti_table4_per_layer_22B": {"rows": rows}}))
    one = "{pp},{batch},1,1024,16,4,1024,1,1,{pp},{ms}\n"
    for made, message in (
        ([(8, 2, 40.0)], "the table has 0 of the former"),
        ([(8, 1, 40.0)], "the table has 1 of the former"),
        ([(8, 1, 40.0), (16, 1, 90.0)], "the table's times contradict each other, or are too few"),
    ):
        text = "".join(one.format(batch=batch, pp=pp, ms=ms) for batch, pp, ms in made)
        table.write_text(",".join(VTRAIN_COLUMNS) + "\n" + text)
        with pytest.raises(InputFileError, match=message):
            calibrate([layers, table])


@pytest.mark.slow
@pytest.mark.reference
def test_the_shipped_constants_are_those_that_the_calibration_set_gives(reference):
    result = calibrate([reference / "published" / name for name in ("step_times.json", "vtrain_single_node.csv")])
    shipped = kernel_settings("a100").model_dump()
    for name in FITTED:
        assert getattr(result.constants, name) == pytest.approx(shipped[name], rel=2e-3), name
    assert {name: len(rows) for name, rows in result.fitted.items()} == {"layer times": 10, "parts": 32, "rows": 720}
    for other in ("v100", "any"):
        assert {name: kernel_settings(other).model_dump()[name] for name in FITTED} == {name: shipped[name] for name in FITTED}
