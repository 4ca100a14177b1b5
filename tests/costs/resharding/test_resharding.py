"""Resharding: tiles and unit tasks by hand, bounds, and laws of all orders."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.resharding.crossings import Ways, crossing
from meshwright.costs.resharding.prices import broadcast_chain_s, least_s
from meshwright.costs.resharding.sender_order import chosen_senders, makespan_s
from meshwright.costs.resharding.tiles import Replica, UnitTask, scattered, unit_tasks
from meshwright.errors import PlanError
from meshwright.evaluation.validation.strategies.resharding import on_mesh

from ...draws import draws

CUTS = ["R R", "S0 R", "R S0", "S1 R", "R S1", "S0 S1", "S1 S0", "S01 R", "R S01"]
WAYS = Ways(lambda size: size, lambda size: 0.0, lambda size, ranks, beside: 0.0)
meshes = st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 2, 4]), st.sampled_from(CUTS))


def tensor(hosts, devices, cuts, first_host=0, shape=(16, 16)):
    return on_mesh(shape, 1, (hosts, devices), cuts, first_host)


def sizes(tasks):
    return [task.task_bytes for task in tasks]


def test_a_cut_of_columns_that_becomes_one_of_rows_worked_by_hand():
    # each half of the columns meets each half of the rows: four tasks of 8 x 8 bytes, two to each host and two from each
    source, target = tensor(2, 1, "R S0"), tensor(2, 1, "S0 R", 2)
    tasks = unit_tasks(source, target)
    assert [(task.task_bytes, task.sender_hosts, task.receiver_hosts) for task in tasks] == [
        (64, (0,), (2,)),
        (64, (1,), (2,)),
        (64, (0,), (3,)),
        (64, (1,), (3,)),
    ]
    assert least_s(tasks, sizes(tasks)) == pytest.approx(128)
    # in the given order 0-64, 64-128, 64-128, 128-192; the other way round both cards are always busy
    assert crossing(source, target, WAYS, order="none").seconds == 192
    assert crossing(source, target, WAYS, order="order").seconds == 128


@given(meshes, meshes, st.integers(0, 10))
@draws(40)
def test_no_order_is_below_the_bound_and_each_search_is_no_worse_than_the_one_before(one, other, seed):
    source, target = tensor(*one), tensor(*other, 2)
    tasks = unit_tasks(source, target)
    bound_s, lasts_s = least_s(tasks, sizes(tasks)), sizes(tasks)
    first, by_size, ordered = (
        makespan_s(tasks, lasts_s, chosen_senders(tasks, lasts_s, name, least_s=bound_s, seed=seed))
        for name in ("none", "size", "order")
    )
    sent_s = crossing(source, target, WAYS, "send-recv").seconds
    assert bound_s <= ordered * (1 + 1e-9)
    assert ordered <= min(first, by_size, sent_s) * (1 + 1e-9)


@given(meshes, meshes)
@draws(40)
def test_tasks_bring_every_device_what_it_wants_once(one, other):
    source, target = tensor(*one), tensor(*other)
    received = dict.fromkeys(target.devices, 0.0)
    for task in unit_tasks(source, target):
        for device in task.receivers:
            received[device] += task.task_bytes
    for ((top, bottom), (left, right)), devices in target.replicas().items():
        assert [received[device] for device in devices] == [(bottom - top) * (right - left)] * len(devices)
    shares = sum((bottom - top) * (right - left) for _, ((top, bottom), (left, right)) in scattered(target))
    assert shares == sum(
        (tile[0][1] - tile[0][0]) * (tile[1][1] - tile[1][0]) * len({device.host for device in there})
        for tile, there in target.replicas().items()
    )


@given(meshes)
@draws(20)
def test_what_lies_right_already_costs_nothing(mesh):
    assert unit_tasks(tensor(*mesh), tensor(*mesh), is_same_mesh=True) == ()
    assert least_s((), ()) == 0.0


@given(meshes, meshes)
@draws(20)
def test_names_of_hosts_change_nothing(one, other):
    tasks = unit_tasks(tensor(*one), tensor(*other))
    renamed = [
        UnitTask(
            task.task_bytes,
            tuple(Replica(7 - device.host, device.place) for device in task.senders),
            tuple(Replica(9 - device.host, device.place) for device in task.receivers),
        )
        for task in tasks
    ]
    lasts_s = sizes(tasks)
    assert least_s(renamed, lasts_s) == pytest.approx(least_s(tasks, lasts_s), rel=1e-9)
    ours, theirs = (makespan_s(every, lasts_s, chosen_senders(every, lasts_s, "order")) for every in (tasks, renamed))
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_chunks_of_a_chain_worked_by_hand():
    # two hosts of two devices: 2 hops beside the chunks; 8 s of data and 1 s a hop: k = sqrt(2 x 8 / 1) = 4, 6 x (1 + 2) = 18
    assert broadcast_chain_s(8.0, [0, 0, 1, 1], lambda size: 1.0 + size) == 18.0
    assert broadcast_chain_s(8.0, [0, 0, 1, 1], lambda size: size) == 8.0


def test_what_does_not_go_together_is_told():
    with pytest.raises(PlanError, match="not the same tensor"):
        unit_tasks(tensor(1, 1, "R R"), tensor(1, 1, "R R", shape=(8, 8)))
    with pytest.raises(PlanError, match="no such choice"):
        crossing(tensor(1, 1, "R R"), tensor(1, 1, "R R", 1), WAYS, order="luck")
