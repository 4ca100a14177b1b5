import re
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputFileError
from meshwright.jobs import JobGraph, load_graph, zoo_graph, zoo_names
from meshwright.jobs.draw import draw_svg, svg
from meshwright.jobs.layers import layout

SVG = "{http://www.w3.org/2000/svg}"


def random_graph(num_ops, num_edges, seed):
    rng = np.random.default_rng(seed)
    pairs = np.array([(a, b) for a in range(num_ops) for b in range(a + 1, num_ops)]).reshape(-1, 2)
    edges = pairs[rng.permutation(len(pairs))[:num_edges]]
    ones = np.ones(num_ops)
    costs = (
        "forward_s",
        "backward_s",
        "forward_flops",
        "backward_flops",
        "activation_bytes",
        "parameter_bytes",
        "workspace_bytes",
    )
    names = tuple(f"op{i}" for i in range(num_ops))
    kinds = tuple(f"kind{i % 9}" for i in range(num_ops))
    return JobGraph(name="random", op_names=names, op_kinds=kinds, edges=edges, **dict.fromkeys(costs, ones))


def curve(source, target):
    """Points of the curve that is drawn between two rows: a cubic with level handles half-way."""
    t = np.linspace(0, 1, 21)[:, None]
    half = (source.bottom + target.y) / 2
    handles = np.array([(source.x, source.bottom), (source.x, half), (target.x, half), (target.x, target.y)])
    weights = np.hstack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    return weights @ handles


def inside_an_op(plan, points):
    boxes = np.array([(p.x - p.width / 2, p.y, p.x + p.width / 2, p.bottom) for p in plan.places if not p.is_lane])
    margin = 1e-6
    x, y = points[:, :1], points[:, 1:]
    is_inside = (boxes[:, 0] + margin < x) & (x < boxes[:, 2] - margin)
    return bool((is_inside & (boxes[:, 1] + margin < y) & (y < boxes[:, 3] - margin)).any())


def check(graph):
    plan = layout(graph, 120.0)
    ops = [place for place in plan.places if not place.is_lane]
    assert sorted(place.op for place in ops) == list(range(graph.num_ops))
    for a, b in graph.edges:
        place = {p.op: p for p in ops}
        assert place[a].row < place[b].row
    boxes = np.array([(p.x - p.width / 2, p.x + p.width / 2, p.y, p.bottom) for p in plan.places])
    left, right, top, bottom = boxes.T[:, :, None]
    overlap = (left < right.T - 1e-6) & (right - 1e-6 > left.T) & (top < bottom.T) & (bottom > top.T)
    assert overlap.sum() == len(boxes)  # each with itself only
    assert left.min() >= -1e-6
    assert right.max() <= plan.width + 1e-6
    assert bottom.max() <= plan.height
    for source, target, corners in plan.lines:
        if corners:
            ends = [(source.x, source.bottom), *corners, (target.x, target.y)]
            points = np.vstack([np.linspace(a, b, 50) for a, b in pairwise(ends)])
        else:
            points = curve(source, target)
        assert not inside_an_op(plan, points)
        assert points.min() >= 0
        assert (points <= (plan.width, plan.height)).all()
    for place in plan.places:
        if place.is_lane:
            assert not inside_an_op(plan, np.linspace((place.x, place.y), (place.x, place.bottom), 20))


@pytest.mark.parametrize("name", zoo_names())
def test_no_box_overlaps_another_and_no_line_crosses_a_box(name):
    check(zoo_graph(name))


@given(num_ops=st.integers(1, 30), num_edges=st.integers(0, 60), seed=st.integers(0, 10_000))
def test_the_same_holds_for_any_graph(num_ops, num_edges, seed):
    check(random_graph(num_ops, num_edges, seed))


@pytest.mark.reference
@pytest.mark.parametrize("model", ["gnmt", "inception_v3"])
def test_the_same_holds_for_measured_graphs(reference, model):
    check(load_graph(str(reference / "pipedream" / model)))


def test_every_edge_can_be_followed_through_the_lanes():
    graph = random_graph(20, 60, 1)
    plan = layout(graph, 120.0)
    found = set()
    for place in plan.places:
        if not place.is_lane:
            ahead = list(place.targets)
            while ahead:
                target = ahead.pop()
                if target.is_lane:
                    assert target.op == place.op
                    ahead += target.targets
                else:
                    found.add((place.op, target.op))
    assert found == set(map(tuple, graph.edges.tolist()))


def test_the_drawing_is_well_formed_and_names_every_op():
    graph = zoo_graph("resnet50")
    root = ElementTree.fromstring(svg(graph))
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert set(graph.op_names) <= set(texts)
    titles = [element.text for element in root.iter(f"{SVG}title")]
    assert len(titles) == graph.num_ops + 1
    assert any(text and text.startswith("175 ops, 190 edges, 101 ms a step on a100 (estimated)") for text in texts)
    assert "http" not in svg(graph).replace("http://www.w3.org/2000/svg", "")  # nothing is fetched


def test_labels_fit_into_their_boxes():
    # 10 px monospace letters are 6.02 px wide (DejaVu Sans Mono: 0.602 em).
    root = ElementTree.fromstring(svg(zoo_graph("llama-7b")))
    for group in root.iter(f"{SVG}g"):
        children = list(group)
        if children and children[0].tag == f"{SVG}title":
            width = float(children[1].get("width", "0"))
            label, share = (element.text or "" for element in group.findall(f"{SVG}text"))
            assert 13 + 6.02 * len(label) + 6.02 * len(share) + 5 <= width


def test_kinds_beyond_the_palette_share_grey():
    text = svg(random_graph(18, 20, 0))
    assert "other (4, 22.2 %)" in text  # 9 kinds of 2 ops each; 7 have a colour
    assert len(set(re.findall(r'height="12" fill="(#\w+)"', text))) == 8


def test_odd_names_are_escaped_and_long_ones_shortened():
    graph = random_graph(2, 1, 0)
    names = ('<a & "b">', "layer_" + "x" * 60)
    odd = JobGraph.from_data({**graph.to_data(), "op_names": list(names)})
    texts = [element.text for element in ElementTree.fromstring(svg(odd)).iter(f"{SVG}text")]
    assert '<a & "b"> kind0' in texts
    assert "layer_xxxxxxxx…xxxxxxxxxxxxxx" in texts


def test_an_untimed_graph_is_drawn_without_shares():
    data = random_graph(3, 2, 0).to_data()
    text = svg(JobGraph.from_data({**data, "forward_s": [0.0] * 3, "backward_s": [0.0] * 3}))
    assert "not timed" in text
    assert "%" not in text.replace('width="100%" height="100%"', "")


def test_only_svg_files_are_written(tmp_path):
    draw_svg(zoo_graph("alexnet"), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text() == svg(zoo_graph("alexnet"))
    with pytest.raises(InputFileError, match=r"must end in \.svg"):
        draw_svg(zoo_graph("alexnet"), tmp_path / "a.png")
