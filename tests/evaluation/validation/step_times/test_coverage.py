"""Reported uncertainties against errors: the rules worked by hand, and the published families."""

import json
import math

import numpy as np
import pytest
from scipy.stats import binom

from meshwright.costs.training_step import uncertainty as doubts
from meshwright.costs.training_step.kernels import kernel_settings
from meshwright.costs.training_step.uncertainty import KNOWN_SOFTWARE, NORMAL_95, RUN_UNCERTAINTY, SOFTWARE, STEPS_UNDER
from meshwright.evaluation.validation.step_times import published_runs
from meshwright.evaluation.validation.step_times.coverage import (
    FAMILIES,
    HOST_FAMILY,
    RUNS_UNDER,
    OfFamily,
    Prediction,
    between_runs,
    coverage,
    left_out,
    spread,
    under_framework,
)
from meshwright.evaluation.validation.step_times.published_step_times import CALIBRATION_FAMILY
from meshwright.evaluation.validation.step_times.validate import SETTINGS, validate

MT_NLG = {
    # Smith et al., "Using DeepSpeed and Megatron to train Megatron-Turing NLG 530B", 2022, section 2.4: seconds of a step of
    # 1,920 sequences on so many hosts, and 126, 121 and 113 TFLOP/s of a GPU. Neither micro-batch nor recomputation stand there.
    280: 60.1,
    350: 50.2,
    420: 44.4,
}


def binomial_bounds(share, num_rows):
    """Between which shares of independent rows lie inside an interval that is to hold ``share`` of them, 95 times of 100."""
    low, high = (float(binom.ppf(tail, num_rows, share)) / num_rows for tail in (0.025, 0.975))
    return low, high


def independent_rows(rows):
    """How many independent rows those of one family count as, since they share software and cluster.

    Source:
        Kish, "Survey sampling", 1965: ``n / (1 + (n - 1) r)``, with the shared part of the variance as the correlation ``r``.
    """
    shared = math.fsum((row.uncertainty_terms.get(SOFTWARE, 0.0) / row.uncertainty) ** 2 for row in rows) / len(rows)
    return max(1, round(len(rows) / (1 + (len(rows) - 1) * shared)))


def mt_nlg(hosts, **layout_keys):
    model = {"layers": 105, "hidden": 20480, "heads": 128, "vocab": 51200, "sequence": 2048}
    cluster = {"device": "a100-80gb", "devices_per_host": 8, "num_devices": 8 * hosts, "nics_per_host": 8, "nic_gbit_per_s": 200}
    layout = {"tp": 8, "pp": 35, "dp": hosts // 35, "global_batch": 1920, "schedule": "1f1b", "virtual_stages": 1, "zero": 1}
    return {
        "id": f"mt-nlg-{hosts}",
        "family": "mt-nlg-2022",
        "model": model,
        "cluster": cluster,
        "layout": layout | {"micro_batch": None, "recompute": None} | layout_keys,
        "measured": {"step_time_s": MT_NLG[hosts]},
        "source": "Smith et al. 2022 (arXiv 2201.11990)",
    }


def of_rows(tmp_path, *rows):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps({"rows": rows}))
    return validate([path])


def test_coverage_worked_by_hand():
    # uncertainties of 5 % and errors of 0, 5, -10 and 20 %: z is 0, 1, -2 and 4, of which two are within 1 and 1.96
    rows = [Prediction(1.0, math.exp(error), {"kernels": 0.03, SOFTWARE: 0.04}) for error in (0.0, 0.0499, -0.1, 0.2)]
    result = coverage(rows)
    assert (result["mean_uncertainty"], result["inside_68"], result["inside_95"]) == (pytest.approx(0.05), 0.5, 0.5)
    assert result["largest_z"] == pytest.approx(4)
    assert result["rms_z"] == pytest.approx(math.sqrt((0 + 0.998**2 + 4 + 16) / 4))
    assert coverage([row.with_term(SOFTWARE, 0.4) for row in rows])["inside_95"] == 1
    assert rows[0].with_term("another", 0.4) == rows[0]


def test_what_runs_differ_by_worked_by_hand():
    # errors of 6 and 8 %, of which 3 % are told anyway: 36 / (9 + s^2) + 64 / (9 + s^2) = 2, so s^2 = 41
    assert between_runs([OfFamily(0.06, 0.03), OfFamily(-0.08, 0.03)]) == pytest.approx(math.sqrt(41) / 100)
    # what the other doubts explain alone is not told a second time
    assert between_runs([OfFamily(0.04, 0.10), OfFamily(-0.09, 0.10)]) == 0.0
    # two rows of 3 and 4 %: their root mean square is 3.54 %; Student's quantile of two degrees of freedom is 4.303
    assert spread(2, math.sqrt(12.5e-4)) == pytest.approx(math.sqrt(12.5e-4) * 4.303 / 1.96, rel=1e-3)
    # of ten rows 68 % are 4 to 10 with 95 %: 3 or fewer 1.6 %, 10 2.1 %, 9 or 10 12 %
    assert binomial_bounds(0.68, 10) == (0.4, 0.9)
    assert binomial_bounds(0.95, 10) == (0.8, 1.0)
    # nine sixteenths of the variance are shared: 4 / (1 + 3 x 9 / 16) = 1.5; of nothing shared all count
    alike = Prediction(1.0, 1.0, {"kernels": math.sqrt(7) / 100, SOFTWARE: 0.03})
    assert [independent_rows([alike] * number) for number in (4, 100)] == [1, 2]
    assert independent_rows([Prediction(1.0, 1.0, {KNOWN_SOFTWARE: 0.03})] * 4) == 4


def test_a_family_is_held_against_what_the_others_say():
    row = Prediction(1.0, 1.1, {"kernels": 0.1, SOFTWARE: RUN_UNCERTAINTY})
    others = [one for name, one in FAMILIES.items() if name != "llama3-2024"]
    assert left_out("llama3-2024", row).uncertainty_terms[SOFTWARE] == between_runs(others)
    assert left_out("of nobody", row) == row
    known = Prediction(1.0, 1.1, {KNOWN_SOFTWARE: 0.03})
    assert left_out("megatron-lm-2021", known) == known
    of_others = {KNOWN_SOFTWARE: under_framework([RUNS_UNDER["fsdp2"]["torchtitan-2024"]])}
    assert left_out("fsdp2-one-h200", known, "fsdp2").uncertainty_terms == of_others
    assert left_out("korthikanti-2022", known).uncertainty_terms == {
        KNOWN_SOFTWARE: spread(*RUNS_UNDER["megatron"]["megatron-lm-2021"])
    }


def test_the_tflops_of_mt_nlg_say_that_whole_layers_are_recomputed():
    # 96 B s l h^2 (1 + s / 6h + V / 16lh) counts four passes, one of them a second forward pass (Narayanan et al. 2021)
    flops = 96 * 1920 * 2048 * 105 * 20480**2 * (1 + 2048 / (6 * 20480) + 51200 / (16 * 105 * 20480))
    rates = [flops / (8 * hosts * seconds) / 1e12 for hosts, seconds in MT_NLG.items()]
    assert rates == pytest.approx([126, 121, 113], rel=5e-3)


def test_a_run_of_unknown_software_lies_where_it_is_told_of(tmp_path):
    result = of_rows(tmp_path, *(mt_nlg(hosts, micro_batch=1, recompute="full") for hosts in MT_NLG))
    summary = result.summary()["mt-nlg-2022"]
    assert summary["mean_log_error"] == pytest.approx(FAMILIES["mt-nlg-2022"].error, abs=0.005)
    low, high = binomial_bounds(0.95, len(MT_NLG))
    assert low <= summary["coverage"]["inside_95"] <= high
    # without it the other families leave nothing to tell: it is what shows how far another framework can be off
    assert summary["coverage_left_out"]["mean_uncertainty"] == pytest.approx(0.1, abs=0.001)
    row = result.to_data()["rows"][0]
    assert row["interval_95"][0] < row["reference"] < row["interval_95"][1]
    assert row["uncertainty"] == pytest.approx(math.hypot(*row["uncertainty_parts"].values()))


def test_a_row_that_names_its_software_is_told_by_its_steps_and_predicted_as_before(tmp_path):
    plain = mt_nlg(280, micro_batch=1, recompute="full")
    any_, named, other = of_rows(tmp_path, plain, plain | {"software": "megatron-lm"}, plain | {"software": "mine"}).predictions
    assert any_.step_s == named.step_s == other.step_s
    assert any_.uncertainty_terms == other.uncertainty_terms
    assert named.uncertainty_terms[KNOWN_SOFTWARE] == kernel_settings("a100").steps_of["megatron-lm"]
    assert not {"kernels", SOFTWARE} & set(named.uncertainty_terms)


def test_what_a_source_leaves_open_widens_what_is_told_worked_by_hand(tmp_path):
    # Micro-batches of 1 with selective recomputation are the fastest that fit. Whole layers are recomputed in one other way,
    # and of micro-batches 2 is next to 1; that is recomputed as a whole, or it would not fit.
    plain = mt_nlg(280)
    values = (("selective", 1), ("full", 1), ("full", 2))
    spelled = [plain | {"layout": plain["layout"] | {"recompute": kind, "micro_batch": size}} for kind, size in values]
    open_, one, full, two = of_rows(tmp_path, plain, *spelled).predictions
    assert open_.choice == {"micro_batch": 1, "recompute": "selective"}
    assert (open_.step_s, one.settings, full.settings) == (one.step_s, 0.0, 0.0)
    logs = [math.log(other.step_s / one.step_s) for other in (full, two)]
    assert open_.settings == pytest.approx(math.hypot(*logs))
    assert open_.uncertainty_terms == one.uncertainty_terms | {SETTINGS: open_.settings}


def test_an_interleaved_schedule_that_cannot_be_priced_leaves_half_its_bubble_open(tmp_path):
    # 105 layers over 32 stages: no number of chunks above one divides them
    plain = mt_nlg(280)
    layout = plain["layout"] | {"pp": 32, "dp": 8, "schedule": "interleaved", "virtual_stages": None, "micro_batch": 1}
    row = plain | {"layout": layout | {"recompute": "full"}, "cluster": plain["cluster"] | {"num_devices": 2048}}
    result = of_rows(tmp_path, row).predictions[0]
    half_s = result.predicted.breakdown_s["bubble"] / 2
    assert result.choice == {"virtual_stages": 1}
    assert "priced as if not interleaved" in result.remark
    assert result.settings == pytest.approx(math.log(result.step_s / (result.step_s - half_s)))


@pytest.mark.reference
def test_told_intervals_match_the_errors_of_each_published_family(published_steps):
    summary = published_steps.summary()
    for family, rows in by_family(published_steps).items():
        for share, limit in ((0.68, 1.0), (0.95, 1.96)):
            low, high = binomial_bounds(share, independent_rows(rows))
            inside = sum(abs(row.z) <= limit for row in rows) / len(rows)
            assert low <= inside <= high, (family, share, inside)
    # Megatron-LM's steps are told by nine of Korthikanti et al., so that the sixteen of Narayanan et al. hold or break them
    known = [row for family, rows in by_family(published_steps).items() if family[1] and "2021" in family[0] for row in rows]
    assert (len(known), independent_rows(known)) == (16, 16)
    assert 0.5 <= coverage(known)["rms_z"] <= 1.25
    for family in FAMILIES.keys() & summary.keys():
        assert summary[family]["coverage_left_out"]["inside_95"] >= 0.9


@pytest.mark.reference
def test_what_is_told_of_runs_is_that_of_the_families(published_steps, reference, monkeypatch):
    result = {}
    monkeypatch.setattr(published_runs, "RUNS", ())
    by_tables = validate([reference / "published" / "step_times_h100.json"]).predictions
    others = [one for one in published_steps.predictions if one.row.family not in {row.row.family for row in by_tables}]
    for one in (*others, *by_tables):
        row = one.prediction
        if SOFTWARE in row.uncertainty_terms:
            result.setdefault(one.row.family, []).append((row.z * row.uncertainty, row.with_term(SOFTWARE, 0.0).uncertainty))
    for family, (error, doubt) in FAMILIES.items():
        if family in result:
            errors, doubts = zip(*result[family], strict=True)
            assert math.fsum(errors) / len(errors) == pytest.approx(error, abs=0.005)
            assert math.sqrt(math.fsum(one * one for one in doubts) / len(doubts)) == pytest.approx(doubt, abs=0.005)
    assert pytest.approx(RUN_UNCERTAINTY, abs=0.005) == between_runs(FAMILIES.values())
    known = kernel_settings("a100").steps_of["megatron-lm"]
    assert pytest.approx(known, abs=0.0005) == spread(*RUNS_UNDER["megatron"]["korthikanti-2022"])


VTRAIN = pytest.param("vtrain-h2048", marks=pytest.mark.xfail(strict=True, reason="34 % of Megatron-DeepSpeed's on single hosts"))


@pytest.fixture(scope="module")
def under_frameworks(published_steps):
    """Rows of the families of `RUNS_UNDER`: name or cell, logarithm of measured over predicted, and the host's share."""
    result = {}
    for one in (*published_steps.predictions, *validate(["h200"]).predictions):
        family, layout = one.row.family, one.row.layout
        cell = (layout["tp"], layout["micro_batch"]) if family.startswith("vtrain") else one.row.name
        row = cell, math.log(one.row.measured_s / one.step_s), one.predicted.breakdown_s["host"] / one.step_s
        for name, runs in RUNS_UNDER.items():
            if family in runs and layout.get("precision") != "fp8" and (name == "fsdp2" or layout.get("zero") != 3):
                result.setdefault((name, family), []).append(row)
    return result


@pytest.mark.reference
def test_what_is_told_under_a_framework_is_that_of_its_families(under_frameworks):
    for name, runs in RUNS_UNDER.items():
        assert under_framework(runs.values()) == pytest.approx(STEPS_UNDER[name], abs=0.0006)
        for family, (num_rows, rms_error) in runs.items():
            cells, errors, _ = zip(*under_frameworks[name, family], strict=True)
            assert math.sqrt(math.fsum(error * error for error in errors) / len(errors)) == pytest.approx(rms_error, abs=0.0006)
            assert num_rows == len(set(cells))
    # of the host by the rows that it holds up, without the family that its constants are fitted on
    held = []
    for (name, family), rows in under_frameworks.items():
        for cell in {cell for cell, *_ in rows} if family != "fsdp2-one-h200" else ():
            error, share = np.mean([row[1:] for row in rows if row[0] == cell], axis=0).tolist()
            held += [OfFamily(error / share, STEPS_UNDER[name] / share)] * (share >= 0.1)
    assert (len(held), between_runs(held)) == (9, pytest.approx(doubts.HOST_UNCERTAINTY, abs=0.005))


@pytest.mark.reference
@pytest.mark.parametrize("family", [*RUNS_UNDER["fsdp2"], *list(RUNS_UNDER["megatron"])[:-1], VTRAIN])
def test_a_family_that_is_left_out_lies_where_the_others_of_its_framework_say(under_frameworks, family):
    (name,) = (name for name, runs in RUNS_UNDER.items() if family in runs)
    reported = under_framework(run for other, run in RUNS_UNDER[name].items() if other != family)
    rows = under_frameworks[name, family]
    host = 0.0 if family == HOST_FAMILY else doubts.HOST_UNCERTAINTY
    inside = [abs(error) <= NORMAL_95 * math.hypot(reported, host * share) for _, error, share in rows]
    assert sum(inside) / len(rows) >= 0.88


def by_family(found):
    """Rows that are no calibration, by family and whether their software is known.

    The rows of one degree and micro-batch of vTrain's table err equally, so that they count as one.
    """
    families = {}
    for one in found.predictions:
        if not one.row.family.endswith(CALIBRATION_FAMILY):
            layout = one.row.layout
            cell = (layout["tp"], layout["micro_batch"]) if one.row.family.startswith("vtrain") else one.row.name
            reported = families.setdefault((one.row.family, KNOWN_SOFTWARE in one.uncertainty_terms), {})
            reported.setdefault(cell, []).append(one.prediction)
    return {family: [middle(rows) for rows in cells.values()] for family, cells in families.items()}


def middle(rows):
    """The row of some whose error is the middle one."""
    return sorted(rows, key=lambda row: row.z)[len(rows) // 2]
