"""Laws of reading Ray: groups, what is held outside of them, parts of GPUs, and dead nodes."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import MeshwrightError
from meshwright.live.sources import ray

from ...draws import draws

RECORDED = (Path(__file__).parent / "data" / "ray-2.60.json").read_text()
"""From a real Ray 2.60 of a head and four nodes on one machine; one node was killed. Addresses and ids are replaced."""


def answer(gpus, groups, available=None):
    """``gpus`` of each node; of each group its state and bundles, ``(node, gpus)``; what each node has left."""
    nodes = [
        {"NodeID": f"id-{name}", "Alive": True, "NodeName": "10.0.0.1", "Resources": {"GPU": count}, "Labels": {"host": name}}
        for name, count in gpus.items()
    ]
    table = {
        name: {
            "placement_group_id": name,
            "name": "",
            "state": state,
            "bundles": {str(number): {"GPU": count} for number, (_, count) in enumerate(bundles)},
            "bundles_to_node_id": {str(number): node and f"id-{node}" for number, (node, _) in enumerate(bundles)},
        }
        for name, (state, bundles) in groups.items()
    }
    left = None if available is None else {f"id-{name}": {"GPU": count} for name, count in available.items()}
    return json.dumps({"nodes": nodes, "placement_groups": table} | ({} if left is None else {"available": left}))


def held(*words):
    return {job.id: dict(job.devices) for job in ray.read(answer(*words)).state.jobs}


def test_what_a_real_ray_lists():
    listing = ray.read(RECORDED)
    group, actor = listing.state.jobs  # another group waits for four GPUs of one node
    assert dict(group.devices) == {"gpu-03": (0,), "gpu-10": (0,)}
    assert (group.name, group.decision) == ("mw:3f2a", "3f2a")
    assert (actor.id, dict(actor.devices)) == ("unlisted/gpu-03", {"gpu-03": (1,)})
    hosts = {name: (host.condition, host.num_devices) for name, host in listing.state.hosts.items()}
    assert hosts == {
        "10.0.0.1": ("up", None),  # the head, which has no label
        "gpu-03": ("up", 2),
        "gpu-07": ("up", 1),
        "gpu-10": ("up", 2),
        "gpu-12": ("down", None),
    }
    assert listing.state.hosts["gpu-12"].reason == "health check failed due to missing too many heartbeats"
    assert listing.remarks == ("Ray reports how many GPUs of a node a group holds, not which: indices are assumed",)


def test_groups_hold_what_their_bundles_got():
    assert held({"a": 4}, {"g": ("CREATED", [("a", 1), ("a", 2)])}) == {"g": {"a": (0, 1, 2)}}
    assert held({"a": 4, "b": 4}, {"g": ("RESCHEDULING", [("a", 1), ("", 1), (None, 2)])}) == {"g": {"a": (0,)}}
    assert held({"a": 4}, {"g": ("REMOVED", [("a", 1)]), "h": ("PENDING", [("", 8)])}) == {}


def test_parts_of_gpus_and_what_runs_outside_of_groups_are_unlisted():
    assert held({"a": 4}, {"g": ("CREATED", [("a", 0.5), ("a", 1)])}) == {"g": {"a": (0,)}, "unlisted/a": {"a": (1,)}}
    assert held({"a": 4}, {"g": ("CREATED", [("a", 1)])}, {"a": 1.5}) == {"g": {"a": (0,)}, "unlisted/a": {"a": (1, 2)}}
    assert held({"a": 4, "b": 1}, {}, {"a": 4}) == {}  # what was not asked of b is not made up
    assert ray.read(answer({"a": 1}, {})).remarks == (
        "devices of tasks and actors outside of placement groups are not seen: the answer has no key available",
    )


@draws(40)
@given(sizes=st.lists(st.integers(0, 8), min_size=1, max_size=3), data=st.data())
def test_as_many_devices_are_held_of_each_host_as_are_not_left(sizes, data):
    gpus = {f"n{number}": size for number, size in enumerate(sizes)}
    left = {name: data.draw(st.integers(0, 2 * size)) / 2 for name, size in gpus.items()}
    groups = {}
    for name, size in gpus.items():
        count = data.draw(st.integers(0, int(size - left[name])))
        groups[f"g-{name}"] = ("CREATED", [(name, 1)] * count)
    result = held(gpus, groups, left)
    for name, size in gpus.items():
        devices = [index for job in result.values() for index in job.get(name, ())]
        assert sorted(devices) == list(range(len(devices)))  # the lowest ones, none twice
        assert len(devices) == -(-(size - left[name]) // 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON"),
        ("{}", "the key is missing"),
        ('{"nodes": [], "placement_groups": {}}', "nodes"),
        (answer({"a": 1}, {"g": ("CREATED", [("b", 1)])}), "on a node that is not listed"),
        (answer({"a": 1}, {"g": ("CREATED", [("a", 2)])}), "g holds 2 more devices than the host has"),
        (answer({"a": -1}, {}), "0 to 4,096 GPUs"),
        (answer({"a": 1e300}, {}), "0 to 4,096 GPUs"),
        (answer({"a": 1, "b": 1}, {}).replace('"host": "b"', '"host": "a"'), "two Ray nodes of one host"),
    ],
)
def test_what_is_no_answer_is_refused(text, message):
    with pytest.raises(MeshwrightError, match=message) as error:
        ray.read(text)
    assert "\n" not in str(error.value)


def test_a_node_that_came_back_under_its_name_is_up():
    data = json.loads(answer({"a": 2}, {}))
    data["nodes"].insert(0, {"NodeID": "old", "Alive": False, "NodeName": "10.0.0.1", "Labels": {"host": "a"}})
    assert ray.read(json.dumps(data)).state.hosts["a"].condition == "up"
