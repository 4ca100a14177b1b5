"""Figures: the same data gives the same bytes, every name and figure is there, nothing leaks into matplotlib's state."""

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.costs.model import CostSettings
from meshwright.evaluation import canvas, curves, gantt, palette, plots, step_chart
from meshwright.evaluation.metrics import PERCENTILES
from meshwright.jobs import load_graph
from meshwright.jobs.workload import Workload, WorkloadSettings
from meshwright.plans.partition import sip_ml_splits
from meshwright.simulation.dynamics import Outcome
from meshwright.simulation.records import EpisodeRecord
from meshwright.simulation.scenario import ScenarioSettings, assemble
from meshwright.simulation.timeline import simulate

HOSTILE = "</svg><script>x</script> & \"$\\frac{1}$ id='y' \x00 政策"


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
    "blocking": lambda rows=ROWS: plots.blocking_svg(rows),
    "reasons": lambda rows=ROWS: plots.reasons_svg(rows),
    "degrees": lambda rows=ROWS: plots.degrees_svg(rows),
    "shapes": lambda rows=ROWS: plots.shapes_svg(rows),
    "rules": lambda rows=ROWS: plots.rules_svg(rows),
}


def texts(svg):
    """Every text of a drawing, in drawing order; fails where the drawing is not well-formed XML."""
    return [element.text for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


# --- bars, histograms, learning curve ---


def test_the_same_data_gives_the_same_bytes_in_another_process_with_another_style(tmp_path):
    (tmp_path / "matplotlibrc").write_text("font.size: 31\nlines.linewidth: 9\nsvg.hashsalt: other\naxes.facecolor: red\n")
    code = (
        "from meshwright.evaluation import plots\n"
        f"rows, curve = {ROWS!r}, {CURVE!r}\n"
        "for name in ('blocking', 'reasons', 'degrees', 'shapes', 'rules'):\n"
        "    print(getattr(plots, name + '_svg')(rows), end='')\n"
        "print(plots.learning_curve_svg(curve, {'min': 0.2}), end='')\n"
    )
    command = [sys.executable, "-c", code]
    other = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True, encoding="utf-8").stdout
    assert other == "".join(draw() for draw in DRAWINGS.values()) + plots.learning_curve_svg(CURVE, {"min": 0.2})


def test_drawing_leaves_no_state_in_matplotlib():
    import matplotlib

    before = dict(matplotlib.rcParams)
    plots.blocking_svg(ROWS)
    assert dict(matplotlib.rcParams) == before
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


@pytest.mark.parametrize("name", DRAWINGS)
def test_the_policy_that_blocks_least_stands_first(name):
    found = [text for text in texts(DRAWINGS[name]()) if text in {r["policy"] for r in ROWS}]
    assert found == ["mine", "best-fixed@best-fit (fixed-8@best-fit)", "max"]


def test_every_blocking_rate_and_interval_is_printed_in_percent():
    found = texts(plots.blocking_svg(ROWS))
    assert {"6.3", "[5.3, 7.3]", "13.2", "[12.2, 14.2]", "26.4", "[25.4, 27.4]"} <= set(found)
    assert "blocking rate (% of jobs after warm-up)" in found


def test_learned_policies_alone_are_drawn_in_the_learned_colour():
    legend, learned = 1, 1
    assert plots.blocking_svg(ROWS).count(f"fill: {palette.LEARNED}") == legend + learned


def test_reasons_add_up_to_what_was_turned_away():
    # max: 0.75 x 26.4 = 19.8 and 0.25 x 26.4 = 6.6 percent
    found = texts(plots.reasons_svg(ROWS))
    assert {"19.8", "6.6", "26.4", "13.2", "6.3"} <= set(found)
    assert {reason.word for reason in palette.REASONS} <= set(found)


def test_every_reason_for_blocking_has_its_own_look():
    turned_away = set(Outcome) - {Outcome.ACCEPTED, Outcome.UNDECIDED, Outcome.WAITING, Outcome.RUNNING}
    assert {reason.outcome for reason in palette.reasons(has_queue=True)} == turned_away
    assert {reason.outcome for reason in palette.reasons(has_queue=False)} == turned_away - {Outcome.EXPIRED}
    assert len({reason.colour for reason in palette.REASONS}) == len({reason.marker for reason in palette.REASONS}) == 4


def test_no_two_of_the_first_32_graphs_look_alike():
    assert len({palette.graph_look(i) for i in range(32)}) == 32


@pytest.mark.parametrize("name", DRAWINGS)
@pytest.mark.parametrize("count", [0, 1, 2, 25])
def test_any_number_of_policies_is_drawn_and_named(name, count):
    rows = [
        row(f"cheapest-feasible@best-fit {i}", 0.03 * i, degrees={str(d): 1 / 60 for d in range(2, 122, 2)}) for i in range(count)
    ]
    assert {r["policy"] for r in rows} <= set(texts(DRAWINGS[name](rows)))


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_hostile_name_stays_text(name):
    found = texts(DRAWINGS[name]([row(HOSTILE, 0.5), *ROWS]))
    assert HOSTILE.replace("\x00", "?") in found


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_policy_that_places_no_job_is_drawn(name):
    assert "nobody" in texts(DRAWINGS[name]([row("nobody", 1.0, degrees={"1": 0.0})]))


def test_a_policy_without_a_figure_comes_last():
    found = texts(plots.blocking_svg([row("unknown", None), *ROWS]))
    assert found.index("unknown") > found.index("max")
    assert "none" in found


def test_a_very_long_name_is_cut_in_the_middle():
    found = texts(plots.blocking_svg([row("a" * 200 + "z" * 200, 0.5)]))
    cut = next(text for text in found if text.startswith("aaa"))
    assert len(cut) == plots.LONGEST_NAME
    assert cut.endswith("zzz")


def test_identifiers_of_two_drawings_differ():
    def identifiers(svg):
        return {element.get("id") for element in ElementTree.fromstring(svg).iter()} - {None}

    found = [identifiers(draw()) for draw in DRAWINGS.values()]
    assert all(found)
    assert sum(map(len, found)) == len(set.union(*found))


def test_a_learning_curve_labels_its_lines_and_references():
    found = texts(plots.learning_curve_svg(CURVE, {"best baseline, min": 0.132}))
    assert "best baseline, min: 13.2" in found
    assert "validation episodes: 14.0 at the end, best 12.0 (ring)" in found
    assert "in training: 15.0 at the end" in found
    assert "decisions (thousands)" in found


def test_units_of_the_learning_curve_follow_its_length():
    long = [{"steps": 3_000_000, "validation_blocking_rate": 0.1, "training_blocking_rate": None}]
    assert "decisions (millions)" in texts(plots.learning_curve_svg(long))
    assert "decisions (number)" in texts(plots.learning_curve_svg(CURVE[:1]))


def bound(name, mean):
    """A clairvoyant bound: a blocking rate and nothing else."""
    nothing = {"outcomes": {}, "degrees": {}, "shapes": {}, "rules": {}, "completion_percentiles_s": None}
    return row(name, mean, "reference") | nothing


def test_a_reference_is_drawn_as_what_it_is_and_only_where_it_has_figures():
    rows = [*ROWS, bound("linear-programme", 0.02)]
    assert texts(plots.blocking_svg(ROWS)).count("knows all arrivals beforehand: no policy") == 0
    assert texts(plots.blocking_svg(rows)).count("knows all arrivals beforehand: no policy") == 1
    assert f"stroke: {palette.REFERENCE}" in plots.blocking_svg(rows)
    for draw in (plots.reasons_svg, plots.degrees_svg, plots.shapes_svg, plots.rules_svg, curves.completion_svg):
        assert "linear-programme" not in " ".join(texts(draw(rows)))


def test_one_episode_has_no_whiskers():
    single = row("mine", 0.1) | {"blocking_rate": {"mean": 0.1, "low": None, "high": None}}
    found = texts(plots.blocking_svg([single]))
    assert "one episode" in found
    assert "10.0" in found


def test_jobs_that_run_at_the_end_are_a_reason_where_they_count_as_blocked():
    cut_off = row("max", 0.2)
    cut_off["outcomes"] = {"accepted": 0.8, "no free device": 0.15, palette.RUNNING.word: 0.05}
    assert palette.RUNNING.word in texts(plots.reasons_svg([cut_off]))
    assert palette.RUNNING.word not in texts(plots.reasons_svg(ROWS))
    assert "20.0" in texts(plots.reasons_svg([cut_off]))


def test_shapes_stand_in_the_order_of_the_decision_space():
    few = row("few", 0.3) | {"shapes": {"2x2x2": 1.0}}
    found = [text for text in texts(plots.shapes_svg([few, *ROWS])) if text in ("2x1x1", "2x2x2")]
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
    assert "no validation yet" in texts(plots.learning_curve_svg([]))


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


# --- occupancy ---


@pytest.fixture(scope="module")
def scenario(tmp_path_factory):
    described = WorkloadSettings.model_validate(
        {
            "graphs": ["zoo:squeezenet", "zoo:alexnet"],
            "steps": {"kind": "fixed", "num_steps": 10},
            "arrivals": {"kind": "fixed", "interarrival_s": 3600.0},
            "deadline": {"kind": "none"},
        }
    )
    settings = ScenarioSettings(cluster="preset:host-8", workload="unused", num_jobs=4, num_warmup_jobs=1, max_degree=4)
    cluster = load_cluster("preset:host-8")
    return assemble(settings, cluster, Workload.from_settings(described), cache=tmp_path_factory.mktemp("step_times"))


def episode(scenario, degrees, hours, outcome=Outcome.NO_BLOCK):
    """One arrival per hour; degree 0 is turned away, others run so many hours on the first block of their degree."""
    k = len(degrees)
    sizes = np.diff(scenario.space.start)
    blocks = [-1 if d == 0 else int(np.flatnonzero(sizes == d)[0]) for d in degrees]
    arrival_s = 3600.0 * np.arange(k)
    completion_s = np.array([np.nan if d == 0 else 3600.0 * h for d, h in zip(degrees, hours, strict=True)])
    return EpisodeRecord(
        arrival_s=arrival_s,
        graph_id=np.arange(k) % 2,
        num_steps=np.full(k, 10),
        allowed_s=np.full(k, np.inf),
        sequential_s=np.full(k, 7200.0),
        degree=np.array(degrees, np.int64),
        candidate=np.array(degrees, np.int64),
        block=np.array(blocks, np.int64),
        completion_s=completion_s,
        outcome=np.array([int(outcome if d == 0 else Outcome.ACCEPTED) for d in degrees], np.int64),
        start_s=np.where(np.isnan(completion_s), np.nan, arrival_s),
        finish_s=arrival_s + completion_s,
        **dict.fromkeys(["num_failures", "num_preemptions", "lost_work_s", "delay_s"], np.zeros(k)),
    )


def test_held_share_worked_by_hand(scenario):
    # 8 devices: 4 of them from 0 h to 1 h, none turned away at 1 h, 2 from 2 h to 2.5 h, 1 from 3 h to 5 h
    record = episode(scenario, [4, 0, 2, 1], [1, 0, 0.5, 2])
    moments, share = gantt.held_share(scenario, record)
    assert (moments / 3600).tolist() == [0, 1, 2, 2.5, 3, 5]
    assert share.tolist() == [0.5, 0, 0.25, 0, 0.125, 0]
    # from 1 h to 4 h: (2 x 0.5 h + 1 x 1 h) / (8 x 3 h)
    window = gantt.Window.of(record.arrival_s, 1, 3)
    assert (window.begin_s, window.end_s, window.num_jobs) == (3600.0, 4 * 3600.0, 3)
    assert gantt.mean_held_share(scenario, record, window) == pytest.approx(2 / 24)


def test_the_occupancy_tells_for_each_policy_what_was_turned_away(scenario):
    episodes = [("mine", episode(scenario, [4, 0, 2, 1], [1, 0, 0.5, 2])), (HOSTILE, episode(scenario, [4, 4, 4, 4], [1] * 4))]
    found = texts(gantt.occupancy_svg(scenario, episodes, first_job=0))
    assert "1 of 4 arrivals turned away, 19 % of device-time held" in found  # (4 + 1 + 1) / (8 x 4)
    assert "0 of 4 arrivals turned away, 50 % of device-time held" in found
    assert {"mine", HOSTILE.replace("\x00", "?"), "squeezenet", "alexnet", "time since the episode began (h)"} <= set(found)


def test_the_window_begins_after_the_warmup(scenario):
    record = episode(scenario, [0, 1, 1, 1], [0, 1, 1, 1])
    found = texts(gantt.occupancy_svg(scenario, [("mine", record)]))
    assert any(text.startswith("0 of 3 arrivals") for text in found)


def test_an_episode_without_an_accepted_job_is_drawn(scenario):
    record = episode(scenario, [0, 0, 0, 0], [0] * 4, Outcome.DEADLINE)
    found = texts(gantt.occupancy_svg(scenario, [("nobody", record)]))
    assert "3 of 3 arrivals turned away, 0 % of device-time held" in found


def test_a_window_past_the_end_shows_the_last_arrival(scenario):
    record = episode(scenario, [1, 1, 1, 1], [1] * 4)
    assert gantt.Window.of(record.arrival_s, 99, 40).jobs == slice(3, 4)
    assert gantt.Window.of(np.zeros(3), 0, 40).length_s > 0
    assert gantt.occupancy_svg(scenario, [("mine", record)], first_job=99) == gantt.occupancy_svg(
        scenario, [("mine", record)], first_job=3, num_jobs=1
    )


@given(st.sets(st.integers(0, 40), min_size=1))
def test_runs_of_devices_cover_each_device_once(devices):
    runs = gantt.consecutive(np.array(sorted(devices, reverse=True)))
    assert sorted(device for first, count in runs for device in range(first, first + count)) == sorted(devices)
    assert all(b[0] > a[0] + a[1] for a, b in pairwise(runs))


# --- one step ---


@pytest.fixture(scope="module")
def job():
    cluster = load_cluster("preset:host-8")
    return cluster, load_graph("zoo:squeezenet", device=cluster.device_types[0])


def step_of(job, degree, **costs):
    cluster, graph = job
    return simulate(graph, cluster, sip_ml_splits(graph, degree, 1e-6), np.arange(degree), CostSettings(**costs))


@pytest.mark.parametrize("degree", [1, 4])
def test_the_compute_lanes_hold_exactly_what_each_rank_computes(job, degree):
    timeline = step_of(job, degree)
    lanes = step_chart.lanes(timeline)
    for rank in range(degree):
        busy_s = sum(bar.end_s - bar.begin_s for bar in lanes[2 * rank])
        assert busy_s == pytest.approx(timeline.compute_busy_s[rank])
        assert {bar.colour for bar in lanes[2 * rank]} == {palette.COMPUTE_FORWARD, palette.COMPUTE_BACKWARD}


@pytest.mark.parametrize("contention", ["serialised", "independent"])
def test_an_all_reduce_is_drawn_on_every_rank_that_takes_part(job, contention):
    lanes = step_chart.lanes(step_of(job, 4, contention=contention))
    reduces = [[bar[:2] for bar in lanes[2 * rank + 1] if bar.colour == palette.ALL_REDUCE] for rank in range(4)]
    widest = set(map(tuple, reduces[0]))
    assert widest
    assert all(set(found) <= widest for found in reduces)
    assert set(reduces[3])


def test_joining_short_neighbours_moves_no_border(job):
    timeline = step_of(job, 4)
    fine, coarse = step_chart.lanes(timeline), step_chart.lanes(timeline, shortest_s=timeline.step_s / 100)
    assert sum(map(len, coarse)) < sum(map(len, fine))
    for before, after in zip(fine, coarse, strict=True):
        assert {bar.begin_s for bar in after} <= {bar.begin_s for bar in before}
        assert {bar.end_s for bar in after} <= {bar.end_s for bar in before}


def test_the_step_tells_job_ranks_time_and_communication(job):
    timeline = step_of(job, 4)
    svg = step_chart.step_svg(timeline, job[1], device_names=["h0/0", "h0/1"])
    found = texts(svg)
    share = f"{100 * timeline.communication_share:.0f} % of it communication"
    assert f"squeezenet on 4 ranks: {timeline.step_s * 1e3:.4g} ms a step, {share}" in found
    assert {"rank 0  h0/0", "rank 1  h0/1", "rank 2", "rank 3", "all-reduce of gradients"} <= set(found)
    assert svg == step_chart.step_svg(timeline, job[1], device_names=["h0/0", "h0/1"])
