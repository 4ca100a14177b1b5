"""Resharding: tiles and unit tasks by hand, bounds, and laws of all orders."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.resharding.prices import ALGORITHMS, LOAD_BALANCES, Card, broadcast_s, lower_bound_s, resharding_s
from meshwright.costs.resharding.sender_order import chosen_senders, makespan_s
from meshwright.costs.resharding.tiles import MeshTensor, Replica, UnitTask, cuts_of, scattered, unit_tasks
from meshwright.errors import PlanError

from ...draws import draws

CARD = Card(1.0)
CUTS = ["R R", "S0 R", "R S0", "S1 R", "R S1", "S0 S1", "S1 S0", "S01 R", "R S01"]
meshes = st.tuples(st.sampled_from([1, 2]), st.sampled_from([1, 2, 4]), st.sampled_from(CUTS))


def tensor(hosts, devices, cuts):
    return MeshTensor((16, 16), 1, hosts, devices, cuts_of(cuts))


def test_a_cut_of_columns_that_becomes_one_of_rows_worked_by_hand():
    # each half of the columns meets each half of the rows: four tasks of 8 x 8 bytes, two to each host and two from each
    source, target = tensor(2, 1, "R S0"), tensor(2, 1, "S0 R")
    tasks = unit_tasks(source, target)
    assert [(task.task_bytes, task.sender_hosts, task.receiver_hosts) for task in tasks] == [
        (64, (0,), (0,)),
        (64, (1,), (0,)),
        (64, (0,), (1,)),
        (64, (1,), (1,)),
    ]
    assert lower_bound_s(tasks, CARD) == pytest.approx(128)
    # in the given order 0-64, 64-128, 64-128, 128-192; the other way round both cards are always busy
    assert resharding_s(source, target, CARD, load_balance="none") == 192
    assert resharding_s(source, target, CARD, load_balance="order") == 128


@given(meshes, meshes, st.integers(0, 10))
@draws(40)
def test_no_order_is_below_the_bound_and_each_search_is_no_worse_than_the_one_before(one, other, seed):
    source, target = tensor(*one), tensor(*other)
    least_s = lower_bound_s(unit_tasks(source, target), CARD)
    first, by_size, ordered = (resharding_s(source, target, CARD, load_balance=name, seed=seed) for name in LOAD_BALANCES)
    sent_s = resharding_s(source, target, CARD, "send-recv")
    assert least_s <= ordered * (1 + 1e-9)
    assert ordered <= min(first, by_size, sent_s) * (1 + 1e-9)


@given(meshes, meshes)
@draws(40)
def test_tasks_bring_every_device_what_it_wants_once(one, other):
    source, target = tensor(*one), tensor(*other)
    received = dict.fromkeys(target.devices, 0.0)
    for task in unit_tasks(source, target):
        for device in task.receivers:
            received[device] += task.task_bytes
    for device, got in received.items():
        (top, bottom), (left, right) = target.tile(device)
        assert got == (bottom - top) * (right - left)
    shares = sum((bottom - top) * (right - left) for _, ((top, bottom), (left, right)) in scattered(target))
    assert shares == sum(
        (tile[0][1] - tile[0][0]) * (tile[1][1] - tile[1][0]) * len({device.host for device in there})
        for tile, there in target.replicas().items()
    )


@given(meshes)
@draws(20)
def test_what_lies_right_already_costs_nothing(mesh):
    assert unit_tasks(tensor(*mesh), tensor(*mesh), is_same_mesh=True) == ()
    assert lower_bound_s((), CARD) == 0.0


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
    assert lower_bound_s(renamed, CARD) == pytest.approx(lower_bound_s(tasks, CARD), rel=1e-9)
    lasts_s = [task.task_bytes for task in tasks]
    ours, theirs = (makespan_s(every, lasts_s, chosen_senders(every, lasts_s, "order")) for every in (tasks, renamed))
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_chunks_of_a_chain_worked_by_hand():
    # two hosts of two devices: 2 hops beside the chunks; 8 s of data and 1 s a hop: k = sqrt(2 x 8 / 1) = 4, 6 x (1 + 2) = 18
    task = UnitTask(8.0, (Replica(0, 0),), tuple(Replica(host, place) for host in range(2) for place in range(2)))
    assert broadcast_s(task, Card(1.0, 1.0)) == 18.0
    assert broadcast_s(task, Card(1.0)) == 8.0


def test_what_does_not_go_together_is_told():
    with pytest.raises(PlanError, match="no such cut"):
        tensor(2, 2, "S2 R")
    with pytest.raises(PlanError, match="cuts one dimension at most"):
        tensor(2, 2, "S0 S0")
    with pytest.raises(PlanError, match="not cut evenly"):
        MeshTensor((3, 4), 1, 2, 1, ("S0", "R"))
    with pytest.raises(PlanError, match="not the same tensor"):
        unit_tasks(tensor(1, 1, "R R"), MeshTensor((8, 8), 1, 1, 1, ("R", "R")))
    with pytest.raises(PlanError, match="no such algorithm"):
        resharding_s(tensor(1, 1, "R R"), tensor(1, 1, "R R"), CARD, "ring")
    with pytest.raises(PlanError, match="no such choice"):
        resharding_s(tensor(1, 1, "R R"), tensor(1, 1, "R R"), CARD, load_balance="luck")
    assert ALGORITHMS == ("send-recv", "all-gather", "broadcast")
