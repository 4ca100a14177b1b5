"""Figures: valid to Plotly, with named axes, the numbers that were given, no point without a value, the same bytes each time."""

import json
import math
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.evaluation.cluster.cluster_figures import PERCENTILES
from meshwright.evaluation.metrics import METRICS
from meshwright.evaluation.plots import curves, policies, static, style
from meshwright.evaluation.plots.figure import Panel, axis, figure, line, shortened, shown
from meshwright.evaluation.plots.trade_off import policies_figure, undominated
from meshwright.simulation.cluster.state import Outcome

from .texts import HOSTILE, texts, traces, words


def row(policy, mean, kind="baseline", degrees=None):
    interval = None if mean is None else {"mean": mean, "low": mean - 0.01, "high": mean + 0.01}
    rate = mean or 0.0
    return {
        "policy": policy,
        "kind": kind,
        "blocking_rate": interval,
        "outcomes": {"accepted": 1 - rate, "no free block": 0.75 * rate, "no free device": 0.25 * rate},
        "degrees": degrees or {"2": 0.25, "8": 0.75},
        "shapes": {"2x1x1": 0.25, "2x2x2": 0.75},
        "completion_percentiles_s": [36.0 * p for p in PERCENTILES],
        "mean_completion_s": {"mean": 7200.0 * (1 - rate), "low": None, "high": None},
    }


def rate(mean):
    return {"mean": mean, "low": mean - 0.01, "high": mean + 0.01}


ROWS = [row("max", 0.264), row("mine", 0.063, "learned"), row("best-fixed@best-fit (fixed-8@best-fit)", 0.132)]
CURVE = [
    {"steps": 0, "validation_blocking_rate": 0.31, "training_blocking_rate": None},
    {"steps": 40_000, "validation_blocking_rate": 0.12, "training_blocking_rate": 0.2},
    {"steps": 80_000, "validation_blocking_rate": 0.14, "training_blocking_rate": 0.15},
]
BLOCKED, TIME = METRICS["blocking_rate"], replace(METRICS["mean_completion_s"], unit="h", scale=1 / 3600)
LOADS = {"mine": [(3600.0, rate(0.1)), (900.0, rate(0.3))], "max": [(3600.0, rate(0.2)), (900.0, rate(0.4))]}


def bars(rows):
    return policies.bars_figure(rows, BLOCKED, "blocked")


DRAWN = {
    "bars": lambda rows=ROWS: bars(rows),
    "reasons": lambda rows=ROWS: policies.reasons_figure(rows),
    "degrees": lambda rows=ROWS: policies.shares_figure(rows, "degrees", "degree (ranks)"),
    "shapes": lambda rows=ROWS: policies.shares_figure(rows, "shapes", "shape of the block"),
    "completion": lambda rows=ROWS: curves.completion_figure(rows),
    "trade-off": lambda rows=ROWS: policies_figure("trade", rows, TIME, BLOCKED),
    "load": lambda rows=ROWS: curves.load_figure(LOADS, {"mine": "learned", "max": "baseline"}),
    "learning": lambda rows=ROWS: curves.learning_curve_figure(CURVE, {"best baseline, min": 0.132}),
    "seeds": lambda rows=ROWS: curves.learning_figure({"seed-1": CURVE, "seed-2": CURVE}),
}
OF_ROWS = tuple(DRAWN)[:4]


def check(found):
    """Laws of every figure."""
    go.Figure(found)  # Plotly knows each key and value
    json.dumps(found, allow_nan=False)
    layout = found["layout"]
    for key in (key for key in layout if key.startswith("xaxis")):
        y = layout[key.replace("xaxis", "yaxis")]
        is_below = layout[key].get("matches") or any("matches" in one for one in layout.values() if isinstance(one, dict))
        assert layout[key]["title"]["text"] or is_below
        assert y["title"]["text"] or y["ticktext"] is not None
    for trace in found["data"]:
        lengths = {
            len(trace[key]) for key in ("x", "y", "base", "width", "text", "hovertext") if isinstance(trace.get(key), list)
        }
        assert trace["type"] == "heatmap" or len(lengths) == 1


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_is_valid_and_names_its_axes_and_is_drawn_the_same_with_another_style(name):
    import matplotlib

    before = dict(matplotlib.rcParams)
    result = DRAWN[name]()
    check(result)
    drawn = static.svg(result)
    assert dict(matplotlib.rcParams) == before
    with matplotlib.rc_context({"font.size": 31, "lines.linewidth": 9, "svg.hashsalt": "other", "axes.facecolor": "red"}):
        assert static.svg(DRAWN[name]()) == drawn
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()
    for title in (result["layout"][key]["title"]["text"] for key in ("xaxis", "yaxis")):
        assert not title or title in texts(drawn)


@pytest.mark.every(4)
@pytest.mark.parametrize("name", OF_ROWS)
@pytest.mark.parametrize("count", [0, 1, 12])
def test_any_number_of_policies_is_drawn_and_a_hostile_name_stays_text(name, count):
    many = [row(f"cheapest-feasible {i}", 0.03 * i, degrees={str(d): 1 / 30 for d in range(2, 62, 2)}) for i in range(count)]
    result = DRAWN[name]([row(HOSTILE, 0.9, degrees={"1": 0.0}), *many[:count]])
    check(result)
    assert not any("<script" in str(text) for text in (json.dumps(result),))
    assert any(HOSTILE.replace("\x00", "?")[:20] in text for text in words(result))
    texts(static.svg(result))  # well-formed


def test_a_point_without_a_figure_is_left_out_and_counted():
    made = line("mine", [0.0, 1.0, 2.0, 3.0], [1.0, math.nan, None, math.inf], ("#000000", "solid"), hovertext=list("abcd"))
    assert (made["x"], made["y"], made["hovertext"]) == ([0.0], [1.0], ["a"])
    assert made["name"] == "mine (3 without a figure)"


@pytest.mark.parametrize("shares_x", [False, True])
@given(heights=st.lists(st.floats(20, 500), min_size=1, max_size=5))
def test_panels_have_the_heights_that_they_ask_for_and_none_lies_on_another(heights, shares_x):
    panels = [Panel([], axis("x"), axis("y"), "title", height) for height in heights]
    layout = figure("", panels, shares_x=shares_x)["layout"]
    spans = [layout["yaxis" + (str(n + 1) if n else "")]["domain"] for n in range(len(heights))]
    for (low, high), height in zip(spans, heights, strict=True):
        assert (high - low) * layout["meta"]["inner"] == pytest.approx(height, abs=1e-6)
    assert all(above[0] > below[1] for above, below in pairwise(spans))


def test_every_figure_and_interval_is_drawn_and_printed_in_the_order_given():
    result = DRAWN["bars"]()
    assert result["layout"]["yaxis"]["ticktext"] == ["max", "mine", "best-fixed@best-fit<br>(fixed-8@best-fit)"]
    drawn = {
        at: length
        for trace in result["data"]
        if trace["type"] == "bar"
        for at, length in zip(trace["y"], trace["x"], strict=True)
    }
    assert [drawn[at] for at in range(3)] == pytest.approx([26.4, 6.3, 13.2])
    (of,) = (trace for trace in result["data"] if "error_x" in trace)
    assert [x - half for x, half in zip(of["x"], of["error_x"]["array"], strict=True)] == pytest.approx([25.4, 5.3, 12.2])
    assert [x + half for x, half in zip(of["x"], of["error_x"]["array"], strict=True)] == pytest.approx([27.4, 7.3, 14.2])
    written = "".join(words(result))
    assert all(text in written for text in ("6.3 [5.3, 7.3]", "13.2 [12.2, 14.2]", "26.4 [25.4, 27.4]"))
    assert [trace["name"] for trace in result["data"] if trace["marker"]["color"] == style.LEARNED] == ["learned policy"]


def test_a_policy_without_a_figure_has_no_bar_and_one_episode_has_no_whiskers():
    single = row("single", 0.1) | {"blocking_rate": {"mean": 0.1, "low": None, "high": None}}
    result = bars([row("unknown", None), single, *ROWS])
    assert [at for trace in result["data"] if trace["type"] == "bar" for at in trace["y"]] == [1, 2, 4, 3]
    assert {"\u2002none", "\u200210.0 one episode"} <= set(words(result))
    assert [len(trace["x"]) for trace in result["data"] if "error_x" in trace] == [3]


def test_reasons_add_up_to_what_was_turned_away():
    # max: 0.75 x 26.4 = 19.8 and 0.25 x 26.4 = 6.6 percent
    cut_off = row("cut", 0.2) | {"outcomes": {"accepted": 0.8, "no free device": 0.15, style.RUNNING.word: 0.05}}
    result = policies.reasons_figure([*ROWS, cut_off])
    sums = np.sum([trace["x"] for trace in result["data"] if trace["type"] == "bar"], axis=0)
    assert sums == pytest.approx([6.3, 13.2, 20.0, 26.4])
    assert {"19.8", "6.6", "\u200226.4", style.RUNNING.word} <= set(words(result))
    assert style.RUNNING.word not in words(DRAWN["reasons"]())


def test_shares_stand_in_the_order_of_the_decision_space_and_sum_to_all():
    few = row("few", 0.01) | {"shapes": {"2x2x2": 1.0}}
    result = policies.shares_figure([few, *ROWS], "shapes", "shape")
    assert result["layout"]["xaxis"]["ticktext"] == ["2x1x1", "2x2x2"]
    assert [sum(x or 0.0 for x in cells) for cells in result["data"][0]["z"]] == pytest.approx([100.0] * 4)


def test_every_reason_for_blocking_and_graph_has_its_own_look():
    turned_away = set(Outcome) - {Outcome.ACCEPTED, Outcome.UNDECIDED, Outcome.WAITING, Outcome.RUNNING}
    assert {reason.outcome for reason in style.reasons(has_queue=True)} == turned_away
    assert len({reason.colour for reason in style.REASONS}) == len({reason.symbol for reason in style.REASONS}) == 4
    assert len({style.graph_look(i) for i in range(32)}) == 32


def test_a_learning_curve_says_where_it_ends_and_what_it_is_compared_with():
    result = words(DRAWN["learning"]())
    assert {"best baseline, min: 13.2", "validation episodes: 14.0 at the end, best 12.0 (ring)"} <= set(result)
    assert {"in training: 15.0 at the end", "decisions (thousands)"} <= set(result)
    long = [{"steps": 3_000_000, "validation_blocking_rate": 0.1, "training_blocking_rate": None}]
    assert "decisions (millions)" in words(curves.learning_curve_figure(long))
    assert {"decisions (number)", "no validation yet"} <= set(words(curves.learning_curve_figure([])))


def test_curves_hold_the_numbers_that_were_given():
    (mine,) = traces(DRAWN["completion"](), "mine: half within 0.50 h")  # percentile p takes 36 p seconds
    assert mine["x"] == pytest.approx([p / 100 for p in PERCENTILES])
    assert mine["y"] == list(PERCENTILES)
    many = [row(f"policy {i}", 0.01 * i) for i in range(20)]
    assert len(curves.completion_figure(many)["data"]) == curves.MOST_CURVES
    # 3,600 s between arrivals is one an hour, 900 s four
    (mine,) = traces(DRAWN["load"](), "mine: 30.0")
    assert (mine["x"], mine["y"]) == ([1.0, 4.0], pytest.approx([10.0, 30.0]))
    assert DRAWN["load"]()["data"][0]["y"] == pytest.approx([9.0, 29.0, 31.0, 11.0])  # there and back


def test_training_seeds_are_shown_with_their_mean_and_spread():
    worse = [point | {"validation_blocking_rate": point["validation_blocking_rate"] + 0.02} for point in CURVE]
    result = words(curves.learning_figure({"seed-1": CURVE, "seed-2": worse}))
    # best 12.0 and 14.0: mean 13.0, standard deviation sqrt(2)
    assert {"seed-1: best 12.0", "seed-2: best 14.0", "mean of 2 runs: best of each 13.0 ± 1.4"} <= set(result)
    unvalidated = [{"steps": 0, "validation_blocking_rate": None}]
    assert "seed-1: best 12.0" in words(curves.learning_figure({"seed-1": CURVE, "seed-2": unvalidated}))


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12), st.tuples(st.booleans(), st.booleans())
)
def test_what_is_off_the_front_is_beaten_and_what_is_on_it_is_not(points, more):
    front = undominated(points, more)

    def beats(one, other):
        pairs = [(b, a) if is_more else (a, b) for a, b, is_more in zip(one, other, more, strict=True)]
        return all(a <= b for a, b in pairs) and one != other

    for number, point in enumerate(points):
        assert (number in front) != any(beats(points[other], point) for other in front)


def policy(name, kind, blocked, hours):
    ends = ("mean", "low", "high")
    return {"policy": name, "kind": kind} | {
        "blocking_rate": dict.fromkeys(ends, blocked),
        "mean_completion_s": dict.fromkeys(ends, 3600.0 * hours),
    }


def test_policies_stand_where_their_figures_say_and_the_front_joins_the_best():
    # d is as good as a in jobs blocked and slower; b is beaten by a and drawn below the learned policy that it plays like.
    rows = [policy("c", "baseline", 0.1, 2), policy("a", "learned", 0.2, 1), policy("d", "baseline", 0.2, 1.5)]
    result = policies_figure("trade", [*rows, policy("b", "baseline", 0.2, 1)], TIME, BLOCKED)
    front, *kinds = (trace for trace in result["data"] if trace["name"])
    assert (front["name"], front["x"], front["y"]) == ("Pareto front", [1.0, 2.0], [20.0, 10.0])
    assert [trace["name"] for trace in kinds] == ["baseline", "learned policy"]
    assert kinds[0]["x"] == [2.0, 1.5, 1.0]
    assert policies_figure("trade", rows[:1], TIME, BLOCKED) is None


@given(st.text(max_size=80), st.integers(3, 40))
def test_shortened_text_is_never_longer_than_allowed(text, length):
    assert len(shortened(text, length)) <= length
    assert shortened(text, length) == text or len(text) > length
    assert "<" not in shown(text)
