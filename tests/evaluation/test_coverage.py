"""Told uncertainties against errors: the rule worked by hand, and the published families."""

import json
import math

import pytest

from meshwright.costs.layouts.doubts import RUN_UNCERTAINTY, SOFTWARE
from meshwright.evaluation.coverage import FAMILY_ERRORS, Coverage, Told, between_runs, left_out
from meshwright.evaluation.validate_step_times import SETTINGS, validate

MT_NLG = {
    # Smith et al., "Using DeepSpeed and Megatron to train Megatron-Turing NLG 530B", 2022, section 2.3: seconds of a step of
    # 1,920 sequences on so many hosts. Neither micro-batch nor recomputation stand there.
    280: 60.1,
    350: 50.2,
    420: 44.4,
}


def mt_nlg(hosts):
    model = {"layers": 105, "hidden": 20480, "heads": 128, "vocab": 51200, "sequence": 2048}
    cluster = {"device": "a100-80gb", "devices_per_host": 8, "num_devices": 8 * hosts, "nics_per_host": 8, "nic_gbit_per_s": 200}
    layout = {"tp": 8, "pp": 35, "dp": hosts // 35, "global_batch": 1920, "schedule": "1f1b", "virtual_stages": 1, "zero": 1}
    return {
        "id": f"mt-nlg-{hosts}",
        "family": "mt-nlg-2022",
        "model": model,
        "cluster": cluster,
        "layout": layout | {"micro_batch": None, "recompute": None},
        "measured": {"step_time_s": MT_NLG[hosts]},
        "source": "Smith et al. 2022 (arXiv 2201.11990)",
    }


def of_rows(tmp_path, *rows):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"rows": rows}))
    return validate([path])


def test_coverage_worked_by_hand():
    # uncertainties of 5 % and errors of 0, 5, -10 and 20 %: z is 0, 1, -2 and 4, of which two are within 1 and 1.96
    rows = [Told(1.0, math.exp(error), {"kernels": 0.03, SOFTWARE: 0.04}) for error in (0.0, 0.0499, -0.1, 0.2)]
    found = Coverage.of(rows)
    assert (found.mean_uncertainty, found.inside_68, found.inside_95) == (pytest.approx(0.05), 0.5, 0.5)
    assert found.largest_z == pytest.approx(4)
    assert found.rms_z == pytest.approx(math.sqrt((0 + 0.998**2 + 4 + 16) / 4))
    assert Coverage.of([row.with_runs(0.4) for row in rows]).inside_95 == 1


def test_what_runs_differ_by_worked_by_hand():
    # errors of 3 and 4 %: their root mean square is 3.54 %; Student's quantile of two degrees of freedom is 4.303
    assert between_runs([0.03, -0.04]) == pytest.approx(math.sqrt(12.5e-4) * 4.303 / 1.96, rel=1e-3)
    # one family more says more of how wide they spread, though its error is as large
    assert between_runs([0.05] * 6) < between_runs([0.05] * 5) < 0.05 * 1.4


def test_a_family_is_held_against_what_the_others_say():
    others = [error for name, error in FAMILY_ERRORS.items() if name != "llama3-2024"]
    assert left_out("llama3-2024") == between_runs(others) < RUN_UNCERTAINTY
    assert left_out("of nobody") == RUN_UNCERTAINTY


def test_a_family_that_nothing_is_from_lies_within_what_is_told_of_it(tmp_path):
    found = of_rows(tmp_path, *(mt_nlg(hosts) for hosts in MT_NLG))
    coverage = found.summary()["mt-nlg-2022"]["coverage"]
    assert coverage["inside_95"] == 1.0
    assert coverage == found.summary()["mt-nlg-2022"]["coverage_left_out"]
    row = found.to_data()["rows"][0]
    assert row["interval_95"][0] < row["reference"] < row["interval_95"][1]
    assert row["uncertainty"] == pytest.approx(math.hypot(*row["uncertainty_parts"].values()))


def test_what_a_source_leaves_open_widens_what_is_told_worked_by_hand(tmp_path):
    # Micro-batches of 1 with selective recomputation are the fastest that fit. Whole layers are recomputed in one other way,
    # and of micro-batches 2 is next to 1; that is recomputed as a whole, or it would not fit.
    plain = mt_nlg(280)
    values = (("selective", 1), ("full", 1), ("full", 2))
    spelled = [plain | {"layout": plain["layout"] | {"recompute": kind, "micro_batch": size}} for kind, size in values]
    open_, one, full, two = of_rows(tmp_path, plain, *spelled).found
    assert open_.chosen == {"micro_batch": 1, "recompute": "selective"}
    assert (open_.step_s, one.settings, full.settings) == (one.step_s, 0.0, 0.0)
    logs = [math.log(other.step_s / one.step_s) for other in (full, two)]
    assert open_.settings == pytest.approx(math.hypot(*logs))
    assert open_.doubts == one.doubts | {SETTINGS: open_.settings}


def test_an_interleaved_schedule_that_cannot_be_priced_leaves_half_its_bubble_open(tmp_path):
    # 105 layers over 32 stages: no number of chunks above one divides them
    plain = mt_nlg(280)
    layout = plain["layout"] | {"pp": 32, "dp": 8, "schedule": "interleaved", "virtual_stages": None, "micro_batch": 1}
    row = plain | {"layout": layout | {"recompute": "full"}, "cluster": plain["cluster"] | {"num_devices": 2048}}
    found = of_rows(tmp_path, row).found[0]
    half_s = found.predicted.breakdown_s["bubble"] / 2
    assert found.chosen == {"virtual_stages": 1}
    assert "priced as if not interleaved" in found.remark
    assert found.settings == pytest.approx(math.log(found.step_s / (found.step_s - half_s)))


@pytest.mark.reference
def test_told_intervals_hold_the_rows_of_each_published_family_as_the_others_would_tell_them(published_steps):
    summary = published_steps.summary()
    for family, error in FAMILY_ERRORS.items():
        assert summary[family]["mean_log_error"] == pytest.approx(error, abs=0.005)
        assert summary[family]["coverage_left_out"]["inside_95"] >= 0.9
        assert summary[family]["coverage_left_out"]["rms_z"] <= 1
    assert pytest.approx(RUN_UNCERTAINTY, abs=0.005) == between_runs(FAMILY_ERRORS.values())
