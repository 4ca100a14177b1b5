"""Each score of a fleet's network reads the job, the entry and the hosts that its action means, and nothing that is not there."""

import numpy as np
import pytest
import torch

from meshwright.envs.fleet.batch import FleetBatch
from meshwright.envs.fleet.features import ENTRY, OFFER, RUNNING
from meshwright.envs.fleet.observation import observer
from meshwright.models.fleet.network import IMPOSSIBLE, FleetActor
from meshwright.simulation.fleet import dynamics
from meshwright.simulation.fleet.actions import start_number
from tests.tiny_fleet import tiny_fleet

from .test_fleet_network import network

DEADLINES = {"deadline": {"low": 1.2, "high": 4.0}, "objective": "blocking_rate"}
READINGS = [{}, {"logs": True}, {"prices": True}]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return tiny_fleet(tmp_path_factory.mktemp("fleet"), placements=["packed", "spread"], load=1.5, **DEADLINES)


@pytest.fixture(scope="module")
def building(tmp_path_factory):
    """Hosts are picked one by one."""
    return tiny_fleet(
        tmp_path_factory.mktemp("building"), placements=["construct"], load=1.5, candidate_features="none", **DEADLINES
    )


def one_by_one(fleet, picks=False, num=4):
    """Observations of some episodes, each played by itself up to its place, and their batches."""
    batches, seed = [], 0
    while len(batches) < num:
        batch, rng = FleetBatch(fleet, 1), np.random.default_rng(seed)
        batch.reset(0, np.random.default_rng(seed))
        while not batch.state.is_over[0] and not _is_there(batch.state, picks):
            batch.step(np.array([rng.choice(np.flatnonzero(batch.observations.action_mask[0]))]))
        batches += [] if batch.state.is_over[0] else [batch]
        seed += 1
    names = batches[0].observations._fields
    seen = {n: torch.as_tensor(np.concatenate([getattr(one.observations, n) for one in batches])) for n in names}
    return batches, seen


def _is_there(state, picks):
    if picks:
        return state.building[0] >= 0 and state.num_built[0] == 1 and state.num_running[0] > 1
    return state.building[0] < 0 and state.num_waiting[0] > 2 and state.num_running[0] > 1 and state.can_act[0].sum() > 6


def of_offers(fleet, per_action):
    """Values of the actions that start a job, by the place of the job, ``(b, v, entries x choices, ...)``."""
    count = fleet.problem.entries_per_job * len(fleet.problem.rule)
    starts = per_action[:, 1 : 1 + fleet.problem.num_offers * count]
    return starts.reshape(len(starts), fleet.problem.num_offers, count, *starts.shape[2:])


@pytest.mark.parametrize("reading", READINGS)
def test_jobs_on_offer_take_their_scores_along(fleet, reading):
    order = torch.tensor([2, 0, 3, 1])
    _, seen = one_by_one(fleet)
    moved = dict(seen) | {name: seen[name][:, order] for name in ("offers", "offer_type")}
    for name in ("action_mask", "candidates"):
        moved[name] = seen[name].clone()
        moved[name][:, 1:] = of_offers(fleet, seen[name])[:, order].flatten(1, 2)
    made = network(fleet, **reading)
    (scores, values), (others, others_values) = made(seen), made(moved)
    torch.testing.assert_close(others[:, 0], scores[:, 0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(of_offers(fleet, others), of_offers(fleet, scores)[:, order], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(others_values, values, rtol=1e-4, atol=1e-4)


def test_refusals_go_with_the_job_on_offer(tmp_path):
    order = torch.tensor([2, 0, 3, 1])
    refusing = tiny_fleet(tmp_path, placements=["packed", "spread"], load=1.5, may_refuse=True, **DEADLINES)
    _, seen = one_by_one(refusing)
    seen["action_mask"][:, refusing.problem.first_refusal :] = 1
    moved = dict(seen) | {name: seen[name][:, order] for name in ("offers", "offer_type")}
    made = network(refusing)
    scores, others = (made(one)[0][:, refusing.problem.first_refusal :] for one in (seen, moved))
    torch.testing.assert_close(others, scores[:, order], rtol=1e-4, atol=1e-4)
    assert (scores.max(dim=1).values - scores.min(dim=1).values).min() > 1e-4
    never = FleetActor(made.settings, refusing, refuses=False)
    assert (never(seen)[0][:, refusing.problem.first_refusal :] == IMPOSSIBLE).all()


def test_leaves_take_the_scores_of_their_hosts_along(building):
    _, seen = one_by_one(building, picks=True)
    hosts, trunks = torch.tensor([2, 3, 0, 1]), torch.tensor([1, 0])
    seen["action_mask"][:, :4] = 1
    moved = dict(seen) | {
        "hosts": seen["hosts"][:, hosts],
        "host_of": seen["host_of"][:, :, hosts],
        "trunks": seen["trunks"][:, trunks],
        "trunk_of": seen["trunk_of"][:, :, trunks],
    }
    made = network(building)
    scores, others = made(seen)[0], made(moved)[0]
    torch.testing.assert_close(others[:, :4], scores[:, hosts], rtol=1e-4, atol=1e-4)
    assert (others[:, 4:] == IMPOSSIBLE).all()
    assert (scores[:, :4].max(dim=1).values - scores[:, :4].min(dim=1).values).max() > 1e-3


def test_loads_of_trunks_reach_the_hosts_below_them_by_messages_only(building):
    """The loads of two trunks are exchanged above equal hosts: pooled features stay as they were."""
    _, seen = one_by_one(building, picks=True)
    one, other = (dict(seen) | {"trunks": seen["trunks"].clone(), "action_mask": seen["action_mask"].clone()} for _ in range(2))
    for now, loads in ((one, [0.9, 0.1]), (other, [0.1, 0.9])):
        now["trunks"][:, :, :2] = 0.5  # else the two differ in more
        now["trunks"][:, :, 2] = now["trunks"][:, :, 3] = torch.tensor(loads)
        now["trunks"][:, :, 4] = 0.0
        now["hosts"] = seen["hosts"][:, :1].expand_as(seen["hosts"])
        now["host_of"], now["trunk_of"] = torch.zeros_like(seen["host_of"]), torch.zeros_like(seen["trunk_of"])
        now["action_mask"][:, :4] = 1
    hearing, blind = network(building), network(building, messages=False)
    torch.testing.assert_close(blind(one)[0], blind(other)[0])
    first, second = hearing(one)[0][:, :4], hearing(other)[0][:, :4]
    torch.testing.assert_close(first[:, [0, 2]], first[:, [1, 3]], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(second, first[:, [2, 3, 0, 1]], rtol=1e-4, atol=1e-4)
    assert (first - second).abs().min() > 1e-4


def test_what_a_candidate_shows_changes_its_own_score_alone(fleet):
    _, seen = one_by_one(fleet)
    made = network(fleet)
    scores = made(seen)[0]
    for row, action in torch.nonzero(seen["action_mask"][:, 1:]).tolist()[::5]:
        changed = dict(seen) | {"candidates": seen["candidates"].clone()}
        changed["candidates"][row, action + 1] += 0.1
        differs = made(changed)[0] != scores
        assert differs[row, action + 1]
        assert differs.sum() == 1


@pytest.mark.parametrize("reading", READINGS)
def test_what_is_not_there_changes_nothing(fleet, building, reading):
    for now, picks in ((fleet, False), (building, True)):
        _, seen = one_by_one(now, picks)
        noise = torch.Generator().manual_seed(1)
        changed = {name: values.clone() for name, values in seen.items()}
        for name, there in (("running", seen["running"][:, :, -1] > 0), ("offers", seen["offers"][:, :, 0] > 0)):
            drawn = torch.rand(seen[name].shape, generator=noise)
            drawn[:, :, -1 if name == "running" else 0] = 0.0
            if name == "offers":
                drawn[:, :, [1, 13]] = 0.0  # is running, is being placed
            changed[name][~there] = drawn[~there]
            changed[f"{name.removesuffix('s')}_type"][~there] = 1
            assert not there.all()
        made = network(now, **reading)
        for were, are in zip(made(seen), made(changed), strict=True):
            torch.testing.assert_close(are, were)


def test_an_action_starts_the_job_and_the_entry_whose_features_its_score_reads(fleet):
    batches, seen = one_by_one(fleet, num=2)
    problem, features, menu = fleet.problem, observer(fleet).entry, network(fleet).menu
    tried = 0
    for e, batch in enumerate(batches):
        before = batch.arrays()
        for place in range(problem.num_offers):
            job = int(before["offered"][0, place])
            for number in range(problem.entries_per_job):
                action = start_number(problem, place, number, 1)
                if job < 0 or not before["can_act"][0, action]:
                    continue
                batch.restore(before)
                batch.step(np.array([action]))
                entry, kind = int(batch.state.entry[0, job]), int(seen["offer_type"][e, place])
                assert batch.state.num_hosts[0].max() > 0
                assert batch.state.start_s[0, job] == before["now_s"][0]
                assert kind == batch.state.job_type[0, job]
                np.testing.assert_array_equal(menu.entry[kind, number].numpy(), features[entry])
                assert menu.entry[kind, number, ENTRY.index("devices")] > 0
                tried += 1
        batch.restore(before)
    assert tried > 10


def test_a_host_that_is_picked_is_one_of_the_jobs_hosts_and_is_shown_as_such(building):
    for batch in one_by_one(building, picks=True)[0]:
        state, seen = batch.state, batch.observations
        job, built = int(state.offered[0, state.building[0]]), int(state.built[0, 0])
        assert seen.hosts[0, :, 4].nonzero()[0].tolist() == [built]
        assert seen.offers[0, :, OFFER.index("is being placed")].nonzero()[0].tolist() == [state.building[0]]
        expected = [built]
        while state.building[0] >= 0:
            expected.append(int(np.flatnonzero(state.can_act[0])[-1]))
            dynamics.decide(building.problem, state, 0, expected[-1])  # and no time passes
        batch.observe()
        assert len(set(expected)) == len(expected)
        row = state.running[0].tolist().index(job)
        assert sorted(np.flatnonzero(seen.host_of[0, row])) == sorted(expected)


def test_rows_of_running_jobs_stay_together_when_others_leave(fleet):
    for batch in one_by_one(fleet)[0]:
        state, seen = batch.state, batch.observations
        left = 0
        while not state.is_over[0]:
            for i in range(state.num_running[0]):
                job = state.running[0, i]
                place = state.place[0, job]
                assert seen.running_type[0, i] == state.job_type[0, job]
                assert set(np.flatnonzero(seen.host_of[0, i])) == set(state.hosts[0, place, : state.num_hosts[0, place]])
                assert seen.running[0, i, RUNNING.index("progress")] == pytest.approx(
                    min(1.0, state.done_steps[0, job] / state.num_steps[0, job])
                )
                np.testing.assert_allclose(seen.trunk_of[0, i], np.minimum(1.0, state.trunk_share[0, place]), rtol=1e-6)
            assert not seen.host_of[0, state.num_running[0] :].any()
            before = state.num_running[0]
            batch.step(np.array([np.flatnonzero(seen.action_mask[0])[-1]]))
            left += state.num_running[0] < before
        assert left > 0


def test_with_logarithms_one_running_job_more_is_as_plain_among_many_as_its_share_of_them(fleet):
    """Of 16 and of 17 running jobs, ``x / (1 + x)`` differs by 0.004; their logarithms, over 4, by 0.015."""
    made = network(fleet, logs=True)
    sixteen, seventeen = (made._read(torch.tensor([jobs / (1.0 + jobs)]))[1].item() for jobs in (16.0, 17.0))
    assert seventeen - sixteen == pytest.approx(np.log(17 / 16) / 4, rel=1e-3)
