"""Figures: the same data gives the same bytes, every name and figure is there, nothing leaks into matplotlib's state."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.evaluation.cluster.cluster_figures import PERCENTILES
from meshwright.evaluation.plots import charts, curves, style
from meshwright.evaluation.plots import svg as canvas
from meshwright.simulation.cluster.dynamics import Outcome

from .texts import HOSTILE, texts


def row(policy, mean, kind="baseline", degrees=None):
    interval = None if mean is None else {"mean": mean, "low": mean - 0.01, "high": mean + 0.01}
    rate = mean or 0.0
    outcomes = {"accepted": 1 - rate, "no free block": 0.75 * rate, "no free device": 0.25 * rate}
    return {
        "policy": policy,
        "kind": kind,
        "blocking_rate": interval,
        "outcomes": outcomes,
        "degrees": degrees or {"2": 0.25, "8": 0.75},
        "shapes": {"2x1x1": 0.25, "2x2x2": 0.75},
        "rules": {"first-fit": 1.0},
        "completion_percentiles_s": [36.0 * p for p in PERCENTILES],
    }


ROWS = [row("max", 0.264), row("mine", 0.063, "learned"), row("best-fixed@best-fit (fixed-8@best-fit)", 0.132)]


CURVE = [
    {"steps": 0, "validation_blocking_rate": 0.31, "training_blocking_rate": None},
    {"steps": 40_000, "validation_blocking_rate": 0.12, "training_blocking_rate": 0.2},
    {"steps": 80_000, "validation_blocking_rate": 0.14, "training_blocking_rate": 0.15},
]


DRAWINGS = {
    "blocking": lambda rows=ROWS: charts.blocking_svg(rows),
    "reasons": lambda rows=ROWS: charts.reasons_svg(rows),
    "degrees": lambda rows=ROWS: charts.degrees_svg(rows),
    "shapes": lambda rows=ROWS: charts.shapes_svg(rows),
    "rules": lambda rows=ROWS: charts.rules_svg(rows),
}


@pytest.fixture(scope="module")
def drawn():
    return {name: draw() for name, draw in DRAWINGS.items()}


# --- bars, histograms, learning curve ---


def test_the_same_data_gives_the_same_bytes_with_another_style(drawn):
    import matplotlib

    with matplotlib.rc_context({"font.size": 31, "lines.linewidth": 9, "svg.hashsalt": "other", "axes.facecolor": "red"}):
        again = [getattr(charts, f"{name}_svg")(ROWS) for name in ("blocking", "reasons", "degrees", "shapes", "rules")]
    assert again == list(drawn.values())


@pytest.mark.slow
def test_the_same_data_gives_the_same_bytes_in_another_process_with_another_style(tmp_path, drawn):
    (tmp_path / "matplotlibrc").write_text("font.size: 31\nlines.linewidth: 9\nsvg.hashsalt: other\naxes.facecolor: red\n")
    code = (
        "from meshwright.evaluation.plots import charts as plots\n"
        f"rows, curve = {ROWS!r}, {CURVE!r}\n"
        "for name in ('blocking', 'reasons', 'degrees', 'shapes', 'rules'):\n"
        "    print(getattr(plots, name + '_svg')(rows), end='')\n"
        "print(plots.learning_curve_svg(curve, {'min': 0.2}), end='')\n"
    )
    command = [sys.executable, "-c", code]
    other = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    assert other == "".join(drawn.values()) + charts.learning_curve_svg(CURVE, {"min": 0.2})


def test_drawing_leaves_no_state_in_matplotlib():
    import matplotlib

    before = dict(matplotlib.rcParams)
    charts.blocking_svg(ROWS)
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_policy_that_blocks_least_stands_first(drawn, name):
    found = [text for text in texts(drawn[name]) if text in {r["policy"] for r in ROWS}]
    assert found == ["mine", "best-fixed@best-fit (fixed-8@best-fit)", "max"]


def test_every_blocking_rate_and_interval_is_printed_in_percent(drawn):
    found = texts(drawn["blocking"])
    assert {"6.3", "[5.3, 7.3]", "13.2", "[12.2, 14.2]", "26.4", "[25.4, 27.4]"} <= set(found)
    assert "blocking rate (% of jobs after warm-up)" in found


def test_learned_policies_alone_are_drawn_in_the_learned_colour(drawn):
    legend, learned = 1, 1
    assert drawn["blocking"].count(f"fill: {style.LEARNED}") == legend + learned


def test_reasons_add_up_to_what_was_turned_away(drawn):
    # max: 0.75 x 26.4 = 19.8 and 0.25 x 26.4 = 6.6 percent
    found = texts(drawn["reasons"])
    assert {"19.8", "6.6", "26.4", "13.2", "6.3"} <= set(found)
    assert {reason.word for reason in style.REASONS} <= set(found)


def test_every_reason_for_blocking_has_its_own_look():
    turned_away = set(Outcome) - {Outcome.ACCEPTED, Outcome.UNDECIDED, Outcome.WAITING, Outcome.RUNNING}
    assert {reason.outcome for reason in style.reasons(has_queue=True)} == turned_away
    assert {reason.outcome for reason in style.reasons(has_queue=False)} == turned_away - {Outcome.EXPIRED}
    assert len({reason.colour for reason in style.REASONS}) == len({reason.marker for reason in style.REASONS}) == 4


def test_no_two_of_the_first_32_graphs_look_alike():
    assert len({style.graph_look(i) for i in range(32)}) == 32


@pytest.mark.every(4)
@pytest.mark.parametrize("name", DRAWINGS)
@pytest.mark.parametrize("count", [0, 1, 12])
def test_any_number_of_policies_is_drawn_and_named(name, count):
    rows = [
        row(f"cheapest-feasible@best-fit {i}", 0.03 * i, degrees={str(d): 1 / 30 for d in range(2, 62, 2)}) for i in range(count)
    ]
    assert {r["policy"] for r in rows} <= set(texts(DRAWINGS[name](rows)))


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_policy_that_places_no_job_is_drawn_and_its_hostile_name_stays_text(name):
    assert HOSTILE.replace("\x00", "?") in texts(DRAWINGS[name]([row(HOSTILE, 1.0, degrees={"1": 0.0})]))


def test_a_policy_without_a_figure_comes_last():
    found = texts(charts.blocking_svg([row("unknown", None), *ROWS]))
    assert found.index("unknown") > found.index("max")
    assert "none" in found


def test_a_very_long_name_is_cut_in_the_middle():
    found = texts(charts.blocking_svg([row("a" * 200 + "z" * 200, 0.5)]))
    cut = next(text for text in found if text.startswith("aaa"))
    assert len(cut) == charts.LONGEST_NAME
    assert cut.endswith("zzz")


def test_identifiers_of_two_drawings_differ(drawn):
    def identifiers(svg):
        return {element.get("id") for element in ElementTree.fromstring(svg).iter()} - {None}

    found = [identifiers(drawing) for drawing in drawn.values()]
    assert all(found)
    assert sum(map(len, found)) == len(set.union(*found))


def test_a_learning_curve_labels_its_lines_and_references():
    found = texts(charts.learning_curve_svg(CURVE, {"best baseline, min": 0.132}))
    assert "best baseline, min: 13.2" in found
    assert "validation episodes: 14.0 at the end, best 12.0 (ring)" in found
    assert "in training: 15.0 at the end" in found
    assert "decisions (thousands)" in found


def test_units_of_the_learning_curve_follow_its_length():
    long = [{"steps": 3_000_000, "validation_blocking_rate": 0.1, "training_blocking_rate": None}]
    assert "decisions (millions)" in texts(charts.learning_curve_svg(long))
    assert "decisions (number)" in texts(charts.learning_curve_svg(CURVE[:1]))


def bound(name, mean):
    """A clairvoyant bound: a blocking rate and nothing else."""
    nothing = {"outcomes": {}, "degrees": {}, "shapes": {}, "rules": {}, "completion_percentiles_s": None}
    return row(name, mean, "reference") | nothing


def test_a_reference_is_drawn_as_what_it_is_and_only_where_it_has_figures(drawn):
    rows = [*ROWS, bound("linear-programme", 0.02)]
    with_bound = charts.blocking_svg(rows)
    assert texts(drawn["blocking"]).count("knows all arrivals beforehand: no policy") == 0
    assert texts(with_bound).count("knows all arrivals beforehand: no policy") == 1
    assert f"stroke: {style.REFERENCE}" in with_bound
    for draw in (charts.reasons_svg, charts.degrees_svg, charts.shapes_svg, charts.rules_svg, curves.completion_svg):
        assert "linear-programme" not in " ".join(texts(draw(rows)))


def test_one_episode_has_no_whiskers():
    single = row("mine", 0.1) | {"blocking_rate": {"mean": 0.1, "low": None, "high": None}}
    found = texts(charts.blocking_svg([single]))
    assert "one episode" in found
    assert "10.0" in found


def test_jobs_that_run_at_the_end_are_a_reason_where_they_count_as_blocked(drawn):
    cut_off = row("max", 0.2)
    cut_off["outcomes"] = {"accepted": 0.8, "no free device": 0.15, style.RUNNING.word: 0.05}
    found = texts(charts.reasons_svg([cut_off]))
    assert {style.RUNNING.word, "20.0"} <= set(found)
    assert style.RUNNING.word not in texts(drawn["reasons"])


def test_shapes_stand_in_the_order_of_the_decision_space():
    few = row("few", 0.3) | {"shapes": {"2x2x2": 1.0}}
    found = [text for text in texts(charts.shapes_svg([few, *ROWS])) if text in ("2x1x1", "2x2x2")]
    assert found == ["2x1x1", "2x2x2"]


def test_completion_times_tell_the_median_of_each_policy():
    # percentile p takes 36 p seconds, so half take 1,800 s = 0.50 h
    found = texts(curves.completion_svg(ROWS))
    assert {"mine: half within 0.50 h", "max: half within 0.50 h"} <= set(found)
    many = [row(f"policy {i}", 0.01 * i) for i in range(20)]
    assert len([text for text in texts(curves.completion_svg(many)) if "half within" in text]) == curves.MOST_CURVES


def test_a_load_curve_tells_where_each_policy_ends():
    def rate(mean):
        return {"mean": mean, "low": mean - 0.01, "high": mean + 0.01}

    # 3,600 s between arrivals is one an hour, 900 s four
    of = {"mine": [(3600.0, rate(0.1)), (900.0, rate(0.3))], "max": [(3600.0, rate(0.2)), (900.0, rate(0.4))]}
    kinds = {"mine": "learned", "max": "baseline"}
    found = texts(curves.load_svg(of, kinds))
    assert {"mine: 30.0", "max: 40.0", "arrivals per hour"} <= set(found)
    assert curves.load_svg(of, kinds) == curves.load_svg({name: list(reversed(of[name])) for name in of}, kinds)


def test_training_seeds_are_told_with_their_mean_and_spread():
    worse = [point | {"validation_blocking_rate": point["validation_blocking_rate"] + 0.02} for point in CURVE]
    found = texts(curves.learning_svg({"seed-1": CURVE, "seed-2": worse}))
    # best 12.0 and 14.0: mean 13.0, standard deviation sqrt(2)
    assert {"seed-1: best 12.0", "seed-2: best 14.0", "mean of 2 runs: best of each 13.0 ± 1.4"} <= set(found)
    unvalidated = [{"steps": 0, "validation_blocking_rate": None}]
    assert "seed-1: best 12.0" in texts(curves.learning_svg({"seed-1": CURVE, "seed-2": unvalidated}))


def test_an_empty_learning_curve_says_so():
    assert "no validation yet" in texts(charts.learning_curve_svg([]))


@given(st.lists(st.floats(0, 300), max_size=12), st.floats(1, 40))
def test_spread_labels_keep_their_order_and_distance(wanted, gap):
    places = canvas.spread(wanted, gap, 0, 300)
    assert all(-1e-9 <= place <= 300 + 1e-9 for place in places)
    ordered = [place for _, place in sorted(zip(wanted, places, strict=True))]
    room = min(gap, 300 / max(1, len(wanted) - 1))
    assert all(b - a >= room - 1e-9 for a, b in pairwise(ordered))


def test_labels_with_room_stay_where_they_are_wanted():
    assert canvas.spread([50.0, 10.0], 20, 0, 100) == [50.0, 10.0]


@given(st.text(max_size=80), st.integers(3, 40))
def test_shortened_text_is_never_longer_than_allowed(text, length):
    assert len(canvas.shortened(text, length)) <= length
    assert canvas.shortened(text, length) == text or len(text) > length
