"""Pictures of clusters: well-formed, complete, self-contained."""

from xml.etree import ElementTree

import numpy as np
import pytest

from meshwright.clusters import Cluster, load_cluster, preset_names
from meshwright.clusters.draw import FREE, PALETTE, draw_svg
from meshwright.clusters.scenes import scene
from meshwright.errors import ClusterError

SVG = "{http://www.w3.org/2000/svg}"


def others():
    square = (np.arange(1, 17.0) * 3).reshape(4, 4).tolist()
    torus = {"kind": "torus", "devices_per_host": 1, "link_bandwidth_gbytes_per_s": 50, "link_latency_us": 1}
    clos = load_cluster("preset:clos-256-4to1").to_data()["topology"]
    rows = [[f"h{i}", "G", f"P{i // 40}", f"S{i // 3}"] for i in range(60)]
    trace = {key: clos[key] for key in clos if key.startswith(("devices", "intra", "nic"))} | {"kind": "trace", "hosts_at": rows}
    trace |= {f"{tier}_uplink_{what}": 1 for tier in ("leaf", "pod") for what in ("gbytes_per_s", "latency_us")}
    topologies = [
        {"kind": "matrix", "bandwidth_gbytes_per_s": square, "latency_us": square},
        {"kind": "matrix", "bandwidth_gbytes_per_s": [[1]], "latency_us": [[1]]},
        *({**torus, "shape": shape} for shape in ([5], [3, 4], [2, 3, 4], [2, 2, 2, 2])),
        {"kind": "single-host", "num_devices": 20, "fabric": "bus", "bandwidth_gbytes_per_s": 1, "latency_us": 1},
        clos | {"num_hosts": 60},
        clos | {"num_hosts": 9, "wiring": "rail"},
        trace,
    ]
    return [Cluster.from_data({"name": "any", "device": "h100", "topology": topology}) for topology in topologies]


CLUSTERS = [load_cluster(f"preset:{name}") for name in preset_names()] + others()


def squares(text):
    """The squares of devices: those that carry a title."""
    return [r for r in ElementTree.fromstring(text).iter(f"{SVG}rect") if r.find(f"{SVG}title") is not None]


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda c: f"{c.name}-{c.topology.kind}-{c.num_devices}")
def test_each_device_is_drawn_once_inside_the_picture_and_apart_from_the_others(cluster):
    text = draw_svg(cluster)
    titles = [r.find(f"{SVG}title").text for r in squares(text)]
    assert titles == [f"{cluster.device_name(i)} ({cluster.device_types[0].name})" for i in range(cluster.num_devices)]
    found = scene(cluster)
    assert (found.places >= 0).all()
    assert (found.places + found.cell <= np.array(found.size)).all()
    for i, place in enumerate(found.places):
        apart = np.abs(found.places - place).max(axis=1) >= found.cell
        assert apart.sum() == cluster.num_devices - 1, f"device {i} overlaps another"


@pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda c: f"{c.name}-{c.topology.kind}-{c.num_devices}")
def test_a_picture_needs_nothing_from_outside(cluster):
    text = draw_svg(cluster)
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert text.count("http") == 1, "only the name space"
    assert not {"script", "image", "use", "foreignObject"} & {element.tag.removeprefix(SVG) for element in root.iter()}


def test_occupancy_colours_devices_by_job_and_names_the_jobs():
    cluster = load_cluster("preset:host-8")
    text = draw_svg(cluster, occupancy=[0, 0, -1, -1, 1, 9, 9, -1], labels=["bert & <co>", "vgg\x00"])
    fills = [r.get("fill") for r in squares(text)]
    # Colours repeat after eight jobs: 9 has the colour of 1, told apart by its number.
    assert fills == [PALETTE[0], PALETTE[0], FREE, FREE, PALETTE[1], PALETTE[1], PALETTE[1], FREE]
    shown = [element.text for element in ElementTree.fromstring(text).iter(f"{SVG}text")]
    assert {"bert & <co>", "vgg?", "job 9", "free"} <= set(shown)


def test_occupancy_of_another_cluster_is_refused():
    with pytest.raises(ClusterError, match=r"occupancy: has shape \(3,\) for 8 devices"):
        draw_svg(load_cluster("preset:host-8"), occupancy=[0, 1, 2])


def test_device_types_are_coloured_apart_and_named():
    data = load_cluster("preset:clos-64-4to1").to_data() | {"device_overrides": {"l0-h0": "v100"}}
    text = draw_svg(Cluster.from_data(data))
    fills = [r.get("fill") for r in squares(text)]
    assert fills == [PALETTE[0]] * 8 + [PALETTE[1]] * 56
    assert "56 a100" in text
    assert "8 v100" in text
