"""Parts of the pages as laws: every device is drawn once, no two jobs look equal, words agree with figures, text is legible."""

import re
from itertools import combinations

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from meshwright.clusters import load_cluster
from meshwright.clusters.cluster import Cluster
from meshwright.evaluation.plots import style
from meshwright.live.decisions import DecisionInputs, FreeRun, JobRequest, Observation
from meshwright.live.state import ClusterState, HeldJob, devices_by_state
from meshwright.live.web.pages.decision_page import candidate_rows
from meshwright.live.web.pages.hosts import NUM_COLOURS, host_groups, marks
from meshwright.live.web.pages.rendering import STYLE, loaded
from meshwright.live.web.pages.step_times import HEIGHT, WIDTH, step_times

from ...draws import draws
from ..live_samples import CLUSTER, listings
from .page_samples import NOW

THREE = Cluster.from_data(yaml.safe_load(CLUSTER))

# --- hosts ---


@draws(60)
@given(state=listings())
def test_every_device_of_every_host_is_drawn_once_as_what_it_is(state):
    groups = host_groups(THREE, state, marks(state.jobs))
    hosts = [host for group in groups for host in group["hosts"]]
    assert [host["name"] for host in hosts] == list(THREE.host_names)
    counted = dict.fromkeys(("free", "held", "reserved", "drained", "down"), 0)
    for host in hosts:
        assert [run["first"] for run in host["runs"]] == np.cumsum([0, *(run["number"] for run in host["runs"][:-1])]).tolist()
        assert {part["job"].id for part in host["held"]} == {run["job"].id for run in host["runs"] if run["job"]}
        for run in host["runs"]:
            counted[run["kind"]] += run["number"]
    by_state = devices_by_state(state, THREE)
    assert (counted["free"], counted["held"], counted["reserved"]) == (by_state["free"], by_state["held"], by_state["reserved"])
    assert counted["drained"] + counted["down"] == by_state["closed"]
    assert [sum(host[key] for host in hosts) for key in ("num_free", "num_devices")] == [by_state["free"], 12]


@pytest.mark.parametrize(
    ("name", "num_groups", "title"),
    [
        ("clos-64-4to1", 4, "group 3"),
        ("dgx-a100-8x8", 1, ""),
        ("toy", 1, ""),
        ("torus-256", 4, "axis0 3"),
        ("ramp-4x4x4", 4, "group 3"),
        ("uneven-64", 7, "pod 1, leaf 6"),
    ],
)
def test_hosts_stand_where_their_network_has_them(name, num_groups, title):
    groups = host_groups(load_cluster(f"preset:{name}"), ClusterState(), {})
    assert (len(groups), groups[-1]["title"]) == (num_groups, title)


@draws(40)
@given(ids=st.lists(st.text(min_size=1, max_size=3), max_size=190, unique=True), gone=st.integers(0, 10))
def test_no_two_jobs_have_one_mark_and_those_that_came_first_keep_theirs(ids, gone):
    jobs = [HeldJob(id=name, devices={"a": (0,)}) for name in ids]
    result = marks(jobs)
    assert len({mark.text for mark in result.values()}) == len(jobs)
    assert all(0 <= mark.colour < NUM_COLOURS for mark in result.values())
    if len(jobs) <= 172:  # as many digits before and after
        fewer = marks(jobs[: len(jobs) - gone])
        assert all(result[name] == mark for name, mark in fewer.items())


# --- candidates ---


def rows_of(*given):
    """Candidate rows of (degree, completion) on as many hosts of four devices, the first chosen."""
    made = []
    for number, (degree, completion_s) in enumerate(given):
        hosts = list(THREE.host_names[: -(-degree // 4)])
        made.append({"degree": degree, "completion_s": completion_s, "hosts": hosts, "is_chosen": number == 0})
    return made


def shown(rows, **options):
    """The explanation of each row that was not taken, on a cluster with ten of twelve devices free."""
    request = JobRequest(job="zoo:gpt2-small", **{key: options.pop(key) for key in ("deadline_s", "devices") if key in options})
    free = (FreeRun(10, 0.0), FreeRun(2, None))
    inputs = DecisionInputs(request=request, policy="p", digest="d", seq=0, now=NOW, free=free, **options)
    return candidate_rows(rows, inputs, THREE, {"a": [0, 1, 2, 3]})


def test_why_a_candidate_was_not_taken_is_said_as_far_as_its_figures_say():
    result = shown(rows_of((4, 100.0), (8, 50.0), (2, 200.0), (8, 150.0), (4, 100.2), (2, 80.0), (8, 100.0)))
    assert [row["why_not"] for row in result] == [
        "",
        "2 times as fast, on 4 devices more",
        "2 times as long, on 2 devices fewer",
        "1.5 times as long, on 4 devices more",
        "as fast, on as many devices: no worse by these figures, yet the policy preferred the other",
        "1.25 times as fast, on 2 devices fewer: no worse by these figures, yet the policy preferred the other",
        "as fast, on 4 devices more",
    ]
    assert shown(rows_of((4, 100.0), (2, 200.0)), deadline_s=150)[1]["why_not"] == "would miss the deadline by 50 s"
    assert shown(rows_of((4, 100.0), (2, 200.0)), devices=4)[1]["why_not"] == "the job asks for 4 devices"
    nowhere = {"degree": 8, "rule": "best-fit", "shape": None, "step_s": None, "completion_s": None, "is_offered": False}
    (row,) = shown([{**nowhere, "is_chosen": False}])
    assert (row["why_not"], row["where"], row["leaves"]) == ("no block of this size is free", "no free block", "")


def test_what_a_candidate_leaves_free_counts_devices_and_hosts_that_stay_whole():
    # Ten of twelve devices are free: hosts a and b wholly, two devices of c.
    assert [row["leaves"] for row in shown(rows_of((4, 1.0), (2, 2.0), (8, 1.0)))] == [
        "6 devices, 1 whole host",
        "8 devices, 1 whole host",
        "2 devices, 0 whole hosts",
    ]
    assert [row["num_held"] for row in shown(rows_of((4, 1.0), (2, 2.0)), whole_hosts=True)] == [4, 4]


# --- step times ---


@draws(60)
@given(
    seconds=st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=60),
    predicted_s=st.none() | st.floats(1e-6, 1e6),
    step=st.integers(1, 99),
)
def test_a_drawing_of_step_times_stays_on_its_sheet_and_tells_of_what_lies_above(seconds, predicted_s, step):
    drawn = step_times([Observation(step=step * number, step_s=one) for number, one in enumerate(seconds)], predicted_s)
    points = [tuple(map(float, point.split(","))) for point in (drawn["band"] + " " + drawn["line"]).split()]
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    assert drawn["predicted_y"] is None or 0 < drawn["predicted_y"] < HEIGHT
    assert (drawn["first"], drawn["last"]) == (0, step * (len(seconds) - 1))
    typical_s = max(float(np.median(seconds)), predicted_s or 0.0)
    assert (
        bool(drawn["above"]) or max(seconds) <= 3.2 * typical_s
    )  # twice, and up to half more, as the axis ends at a round number
    assert not drawn["above"] or max(seconds) > 2 * typical_s


def test_step_times_worked_by_hand():
    drawn = step_times([Observation(step=0, step_s=0.04), Observation(step=10, step_s=0.06)], 0.05)
    # 0.06 s and a twentieth more is 0.063 s, so the axis ends at 0.08 s; 0.04 s is half of it.
    assert (drawn["top"], drawn["middle"], drawn["line"]) == ("80 ms", "40 ms", "0.0,100.0 1000.0,50.0")
    assert drawn["predicted_y"] == pytest.approx(75)
    assert drawn["summary"] == "2 measured step times, 50 ms in the median; predicted were 50 ms: 1.00 times that was measured."
    assert step_times([], 0.05) is None


# --- the style ---


def variables(dark):
    """The colours of a scheme by name."""
    light, night = re.findall(r":root \{(.*?)\}", loaded(STYLE), re.DOTALL)
    return dict(re.findall(r"--([\w-]+): (#\w{6})", light + (night if dark else "")))


def contrast(one, other):
    """Of two colours. Source: W3C, "Web Content Accessibility Guidelines 2.2", relative luminance and contrast ratio."""

    def luminance(colour):
        parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        return float(np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722])

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_contrast_worked_by_hand():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)


@pytest.mark.parametrize("dark", [False, True])
def test_all_text_stands_out_from_its_ground(dark):
    colours = variables(dark)
    pairs = [("ink", "ground"), ("muted", "ground"), ("link", "ground"), ("ink", "tint"), ("muted", "tint"), ("link", "tint")]
    pairs += [("alarm-ink", "alarm-ground"), ("alarm-ink", "ground"), ("alarm-ink", "tint"), ("ground", "ink")]
    assert {
        pair: contrast(colours[pair[0]], colours[pair[1]]) for pair in pairs if contrast(colours[pair[0]], colours[pair[1]]) < 4.5
    } == {}
    marks_of = [("accent", "ground"), ("edge", "ground"), ("alarm", "alarm-ground")]  # no text: what a reader has to see
    assert [pair for pair in marks_of if contrast(colours[pair[0]], colours[pair[1]]) < 3] == []


def test_jobs_have_the_colours_of_the_figures_and_their_marks_can_be_read_on_them():
    css = loaded(STYLE)
    fills = dict(re.findall(r"\.c(\d) \{ fill: (#\w{6}); \}", css))
    strokes = dict(re.findall(r"\.s(\d) \{ stroke: (#\w{6}); \}", css))
    named = [style.BLUE, style.ORANGE, style.GREEN, style.PINK, style.SKY, style.VERMILION, style.YELLOW]
    assert [fills[str(number)] for number in range(NUM_COLOURS)] == named
    assert strokes == fills
    assert all(one != other for one, other in combinations(named, 2))
    for number, fill in fills.items():
        (ink,) = re.findall(rf"svg text\.on{number}\b[^{{]*\{{ fill: (#\w{{6}})", css)
        assert contrast(ink, fill) >= 4.5, number
