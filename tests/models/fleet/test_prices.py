"""Scores by the price of a device-second, against the formula in plain Python."""

import dataclasses

import numpy as np
import pytest
import torch

from meshwright.envs.fleet.batch import FleetBatch
from meshwright.envs.fleet.fleet import fleet_of_menu
from meshwright.errors import ConfigError
from meshwright.models.fleet.network import IMPOSSIBLE, FleetActor
from meshwright.models.fleet.prices import num_direct, price_units
from meshwright.models.fleet.saved import player
from meshwright.models.settings import FleetNetworkSettings
from meshwright.planners.fleet.linear_prices import DEARER, ORDER, SHARPNESS, USUAL_JOBS, choose_by_prices, play_by_prices
from meshwright.planners.fleet.linear_scores import FIRST_WEIGHTS, START, choose_by_scores, linear_scorer
from meshwright.planners.fleet.rules import fleet_rule
from meshwright.settings import build_settings
from tests.draws import FACTOR
from tests.tiny_fleet import fleet_settings, tiny_fleet


@pytest.fixture(autouse=True)
def _no_gradients():
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return tiny_fleet(tmp_path_factory.mktemp("fleet"), load=1.5, candidate_features="analytic")


@pytest.fixture(scope="module")
def batch(fleet):
    """Episodes in which jobs wait."""
    made, rng = FleetBatch(fleet, 6), np.random.default_rng(0)
    for e in range(6):
        made.reset(e, np.random.default_rng(e))
    for _ in range(25):
        made.step(np.array([0 if mask[0] else rng.choice(np.flatnonzero(mask)) for mask in made.observations.action_mask]))
    return made


def seen_of(batch):
    return {name: torch.as_tensor(values.copy()) for name, values in batch.observations._asdict().items()}


def network(fleet, **changes):
    """A network with zero weights in the heads that training adds."""
    torch.manual_seed(0)
    made = FleetActor(FleetNetworkSettings(width=8, prices=True, **changes), fleet)
    for head in (made.score, made.pass_score, made.pause_score, made.prices.of_job):
        torch.nn.init.zeros_(head[-1].weight)
        torch.nn.init.zeros_(head[-1].bias)
    return made


def test_before_training_scores_are_those_of_the_formula(fleet, batch):
    problem, menu, state = fleet.problem, fleet.problem.menu, batch.state
    scores = network(fleet)(seen_of(batch))[0].detach().numpy()
    compared = 0
    for e in range(batch.num_episodes):
        price = (2 * state.num_waiting[e] + state.num_running[e]) / problem.num_devices
        works = {}
        for place in range(problem.visible_waiting):
            job = state.offered[e, place]
            if job >= 0:
                works[place] = np.log(state.num_steps[e, job] * menu.work_device_s[state.job_type[e, job]])
        for place, work in works.items():
            kind = state.job_type[e, state.offered[e, place]]
            entries = range(menu.first_entry[kind], menu.first_entry[kind + 1])
            cheapest = min(menu.step_s[entry].min() * (1 + price * menu.degree[entry]) for entry in entries)
            for number, one in enumerate(entries):
                for choice in range(len(problem.rule)):
                    action = 1 + (place * problem.entries_per_job + number) * len(problem.rule) + choice
                    if not state.can_act[e, action]:
                        assert scores[e, action] == IMPOSSIBLE
                        continue
                    d = problem.entry_degree[one]
                    step_s = menu.step_s[one, 0, state.part_index[e, 0, d, choice], state.spread_index[e, 0, d, choice]]
                    own = step_s * (1 + price * menu.degree[one])
                    expected = SHARPNESS * (DEARER + np.log(cheapest / own)) - ORDER * (work - min(works.values()))
                    assert scores[e, action] == pytest.approx(expected, abs=5e-3)
                    compared += 1
        assert scores[e, 0] == (0.0 if state.can_act[e, 0] else IMPOSSIBLE)
    assert compared > 30


def test_a_higher_price_makes_smaller_parts_better(fleet, batch):
    seen, made = seen_of(batch), network(fleet)
    cheap = made(seen)[0]
    made.prices.of_job[-1].bias[0] = 2.0
    dear = made(seen)[0]
    degree = torch.as_tensor(fleet.problem.menu.degree)
    moved = 0
    for e in range(batch.num_episodes):
        first = (cheap[e, 1:].argmax() // len(fleet.problem.rule)).item()
        place, _ = divmod(first, fleet.problem.entries_per_job)
        if batch.state.offered[e, place] < 0 or cheap[e, 1:].max() < IMPOSSIBLE / 2:
            continue
        begin = fleet.problem.menu.first_entry[batch.state.job_type[e, batch.state.offered[e, place]]]
        count = fleet.problem.entries_per_job * len(fleet.problem.rule)
        of_job = slice(1 + place * count, 1 + (place + 1) * count)
        were, are = (
            degree[begin + scores[e, of_job].argmax().item() // len(fleet.problem.rule)].item() for scores in (cheap, dear)
        )
        assert are <= were
        moved += are < were
    assert moved > 0


def test_running_jobs_are_compared_with_going_on(tmp_path):
    """A resize that saves less than it costs scores below passing."""
    fleet = tiny_fleet(tmp_path, load=0.5, elastic={"every_s": 30.0, "restart_s": 1e5, "storage_gbytes_per_s": 10.0})
    batch = FleetBatch(fleet, 1)
    batch.reset(0, np.random.default_rng(1))
    made, seen = network(fleet), 0
    for _ in range(200):
        if batch.state.is_over[0]:
            break
        scores = made(seen_of(batch))[0][0].detach().numpy()
        if batch.state.in_round[0]:
            count = fleet.problem.entries_per_job * len(fleet.problem.rule)
            first = 1 + fleet.problem.visible_waiting * count
            again = scores[first : fleet.problem.first_pause]
            assert (again < 0).all()
            seen += int((again > IMPOSSIBLE / 2).sum())
        batch.step(np.array([scores.argmax()]))
    assert seen > 20


ROUNDS = {"every_s": 30.0, "restart_s": 20.0, "storage_gbytes_per_s": 10.0}


@pytest.mark.parametrize(("elastic", "relative"), [(None, False), (ROUNDS, False), (None, True)])
def test_by_direct_weights_alone_it_is_the_compiled_rule(tmp_path, elastic, relative):
    """Features are rounded to single precision, so the rule's action may be one whose score differs by rounding."""
    fleet = tiny_fleet(tmp_path, load=1.5, candidate_features="analytic", elastic=elastic)
    batch, made, rng = FleetBatch(fleet, 1), network(fleet, relative=relative), np.random.default_rng(2)
    kinds, alike = set(), []
    for episode in range(4 if relative or FACTOR > 1 else 2):
        weights = rng.normal(0, 0.4, (3, num_direct(relative=relative)))
        made.prices.set_direct(weights)
        batch.reset(0, np.random.default_rng(episode))
        for _ in range(120):
            if batch.state.is_over[0]:
                break
            scores = made(seen_of(batch))[0][0].detach().numpy()
            action = choose_by_prices(fleet.problem, batch.state, 0, weights, made.menu.units)
            assert scores[action] >= scores.max() - 0.02
            alike.append(scores.argmax() == action)
            kinds.add("pass" if action == 0 else "pause" if action >= fleet.problem.first_pause else "start")
            batch.step(np.array([action]))
    assert {"pass", "start"} <= kinds
    assert np.mean(alike) > 0.98


def test_relative_units_are_what_is_usual_on_a_fleet(fleet):
    problem, step_s = fleet.problem, fleet.best_step_s
    units = price_units(fleet, relative=True)
    kind, _, num_steps, duration_s = fleet._draw(np.random.default_rng(0), 20_000)
    work = num_steps * problem.menu.work_device_s[kind]
    assert units.work_device_s == pytest.approx(work.mean())
    assert units.time_s == pytest.approx(duration_s.mean())
    most = []
    for row, least in zip(step_s, problem.menu.work_device_s, strict=True):
        most.append(max(d for d, one in zip(problem.degrees, row, strict=True) if d * one <= 2 * least))
    logs = [np.log(most[one]) for one in kind]
    assert units.devices == pytest.approx(USUAL_JOBS * np.exp(np.mean(logs)))
    held = [num * min(zip(row, problem.degrees * row, strict=True))[1] for num, row in zip(num_steps, step_s[kind], strict=True)]
    assert 2**units.pressure == pytest.approx(1.5 * np.mean(held) / work.mean())


def test_relative_prices_play_the_same_where_all_steps_take_longer(tmp_path):
    """In a world that is half as fast, with half as many arrivals, every decision is the same and takes twice as long."""
    fleet = tiny_fleet(tmp_path, load=1.5, sharing="none")
    table = fleet.menu.table
    slow_table = table._replace(step_s=2.0 * table.step_s, work_device_s=2.0 * table.work_device_s)
    duration = {"median_s": 600.0, "sigma": 1.0, "most_s": 6000.0}
    choice = fleet_settings(tmp_path, load=1.5, sharing="none", duration=duration)
    slow = fleet_of_menu(choice, fleet.cluster, dataclasses.replace(fleet.menu, table=slow_table))
    weights = np.random.default_rng(3).normal(0, 0.4, (3, num_direct(relative=True)))
    ends = []
    for one in (fleet, slow):
        batch = FleetBatch(one, 1, observes=False)
        batch.reset(0, np.random.default_rng(1))
        play_by_prices(one.problem, batch.state, 0, weights, price_units(one, relative=True), 10_000)
        assert batch.state.is_over[0]
        ends.append(batch.state.finish_s[0].copy())
    np.testing.assert_allclose(ends[1], 2.0 * ends[0], rtol=1e-9)


def test_a_network_made_from_searched_scores_decides_as_the_compiled_rule_before_it_learns(fleet):
    torch.manual_seed(0)
    made, rng = FleetActor(FleetNetworkSettings(width=8, linear=True), fleet).eval(), np.random.default_rng(4)
    weights = FIRST_WEIGHTS[: len(START)] + rng.normal(0, 0.3, len(START))
    made.linear.set_direct(weights)
    scorer = linear_scorer(fleet.problem, fleet_rule("fifo", fleet.problem), weights, fleet.mean_duration_s)
    pick, batch, num_decisions = player(made), FleetBatch(fleet, 5), 0
    for e in range(5):
        batch.reset(e, np.random.default_rng(e))
    while not batch.state.is_over.all():
        actions = pick(batch)
        for e in np.flatnonzero(~batch.state.is_over):
            assert actions[e] == choose_by_scores(fleet.problem, batch.state, e, scorer)
            num_decisions += 1
        batch.step(actions)
    assert num_decisions >= 150


def test_relative_is_about_prices():
    with pytest.raises(ConfigError, match=r"relative: is about prices"):
        build_settings(FleetNetworkSettings, {"relative": True})
