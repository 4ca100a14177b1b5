"""The rollout planner: it never sees the future, earns what it says, and does better than the policy that it plays on with."""

import dataclasses

import numpy as np
import pytest

from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.job_partitioning import play_episode
from meshwright.errors import PolicyError
from meshwright.planners.linear import FEATURES, LinearScorer, LinearWeights
from meshwright.planners.rollout import Ladder, Rollout
from meshwright.planners.rollout_kernel import block_of_base, earnings
from meshwright.simulation.cluster.decision import decision

from .test_linear import rule


def rollout(scenario, base=None, **options):
    return Rollout("rollout", scenario, base or Ladder((4,), "best-fit"), **{"horizon": 6, "num_futures": 4, **options})


def begun(scenario, arrivals):
    episodes = scenario.new_episodes(1)
    scenario.reset(episodes, 0, arrivals)
    return episodes


def drawn(scenario, seed):
    return scenario.sample(np.random.default_rng(seed), scenario.settings.num_jobs + 1)


def played(scenario, chooser, arrivals, num_jobs, seed=0):
    """The blocks taken by a policy in the first jobs of an episode, -1 where a job is turned away."""
    episodes = begun(scenario, arrivals)
    chooser.reset(seed)
    for _ in range(num_jobs):
        scenario.decide(episodes, 0, chooser.choose(decision(scenario, episodes, 0), {}))
    return episodes.block[0, :num_jobs].tolist()


def changed_after(arrivals, num_jobs, scenario, seed):
    """The same jobs at first, then others, at other times."""
    other = drawn(scenario, seed)
    gaps = np.diff(arrivals.arrival_s)
    gaps[num_jobs - 1 :] = 7.0 * np.diff(other.arrival_s)[num_jobs - 1 :]
    first = np.arange(len(arrivals.graph_id)) < num_jobs
    return dataclasses.replace(
        arrivals,
        arrival_s=np.concatenate([[0.0], np.cumsum(gaps)]),
        graph_id=np.where(first, arrivals.graph_id, other.graph_id),
        num_steps=np.where(first, arrivals.num_steps, other.num_steps),
        deadline_fraction=np.where(first, arrivals.deadline_fraction, 0.5 * other.deadline_fraction),
    )


@pytest.mark.parametrize("seed", range(3))
def test_the_true_future_changes_no_choice(crowded, seed):
    chooser = rollout(crowded)
    arrivals = drawn(crowded, seed)
    other = changed_after(arrivals, 15, crowded, seed + 50)
    assert not np.array_equal(arrivals.arrival_s, other.arrival_s)
    assert played(crowded, chooser, arrivals, 15) == played(crowded, chooser, other, 15)


def test_the_planner_draws_other_jobs_than_the_episode_of_its_seed(crowded):
    chooser = rollout(crowded)
    chooser.reset(3)
    assert not np.isin(np.diff(drawn(crowded, 3).arrival_s), chooser._gap_s).any()


def test_equal_seeds_make_equal_choices(crowded):
    arrivals = drawn(crowded, 0)
    chooser = rollout(crowded)
    first = played(crowded, chooser, arrivals, 30, seed=5)
    assert played(crowded, chooser, arrivals, 30, seed=5) == first
    assert played(crowded, rollout(crowded), arrivals, 30, seed=5) == first
    assert any(played(crowded, chooser, arrivals, 30, seed=seed) != first for seed in range(6, 12))


@pytest.mark.parametrize("degree", [1, 4])
def test_without_a_horizon_the_immediate_reward_alone_counts(crowded, degree):
    # One is earned by placing a job, anywhere: as the base policy does, and where it does not, in the first way there is.
    chooser, base = rollout(crowded, Ladder((degree,), "best-fit"), horizon=0), rule(f"fixed-{degree}@best-fit", crowded)
    episodes = begun(crowded, drawn(crowded, 0))
    num_others = 0
    while episodes.job[0] < crowded.settings.num_jobs:
        current = decision(crowded, episodes, 0)
        choice, own = chooser.choose(current, {}), base.choose(current, {})
        offered = np.flatnonzero(current.can_place)[1:]
        assert choice == (own if own > 0 else offered[0] if len(offered) else 0)
        num_others += own == 0 and len(offered) > 0
        crowded.decide(episodes, 0, choice)
    assert num_others > 0


@pytest.mark.parametrize("name", ["fixed-4@best-fit", "ladder-4-2-8@fastest", "max", "min@best-fit", "scorer"])
def test_the_kernel_earns_what_the_policy_itself_would(crowded, name):
    bare, _, placement = name.partition("@")
    degrees = {"fixed-4": (4,), "ladder-4-2-8": (4, 2, 8), "max": (8, 6, 4, 2, 1), "min": (1, 2, 4, 6, 8)}
    weights = LinearWeights(np.random.default_rng(3).normal(size=len(FEATURES)), ("first-fit", "best-fit"))
    base = weights if name == "scorer" else Ladder(degrees[bare], placement or "first-fit")
    policy = LinearScorer("", weights, crowded) if name == "scorer" else rule(name, crowded)
    chooser = rollout(crowded, base, horizon=12, num_futures=3)
    chooser.reset(0)
    episodes = begun(crowded, drawn(crowded, 1))
    for _ in range(10):
        crowded.decide(episodes, 0, rule("min", crowded).choose(decision(crowded, episodes, 0), {}))
    current = decision(crowded, episodes, 0)
    candidates = np.flatnonzero(current.can_place)
    assert len(candidates) > 2
    state = chooser._current(current, current.occupancy)
    chooser._draw(current)
    block = np.where(candidates > 0, current.block[candidates], -1)
    result = np.full((len(candidates), 3), np.nan)
    futures, row = chooser._futures, 0
    own = block_of_base(chooser._problem, futures, chooser._base, state)
    assert own == current.block[policy.choose(current, {})]
    earnings(chooser._problem, futures, chooser._base, state, block, current.completion_s[candidates], 0, 3, result)
    for s in range(3):
        for c, candidate in enumerate(candidates.tolist()):
            # The same future behind the episode's own past, in an episode of its own.
            past = int(episodes.job[0])
            mine = episodes._replace(**{key: value.copy() for key, value in episodes._asdict().items()})
            for key in ("arrival_s", "graph_id", "num_steps", "allowed_s"):
                getattr(mine, key)[0, past : past + 14] = getattr(futures, key)[s]
            earned = crowded.decide(mine, row, candidate)
            for _ in range(12):
                earned += crowded.decide(mine, row, policy.choose(decision(crowded, mine, 0), {}))
            assert result[c, s] == earned


def test_a_job_is_turned_away_where_nothing_fits(crowded):
    episodes = begun(crowded, drawn(crowded, 0))
    current = decision(crowded, episodes, 0)
    nothing = np.arange(len(current.can_place)) == 0
    assert rollout(crowded).choose(dataclasses.replace(current, can_place=nothing), {}) == 0


@pytest.mark.parametrize("base", [(4, 2, 1), (1, 2, 4)])
def test_the_toy_is_played_better_than_by_the_base_policy(base):
    toy = load_benchmark("preset:toy").build()
    policies = [
        rule(f"ladder-{'-'.join(map(str, base))}", toy),
        rollout(toy, Ladder(base, "first-fit"), horizon=12, num_futures=8),
    ]
    rates = [np.mean([play_episode(policy, toy, seed).blocking_rate() for seed in (0, 1, 2)]) for policy in policies]
    assert rates[1] < rates[0] - 0.02


def test_near_the_end_of_an_episode_no_job_is_foreseen_beyond_it(crowded):
    chooser = rollout(crowded, horizon=1000)
    episodes = begun(crowded, drawn(crowded, 0))
    foreseen = []
    while episodes.job[0] < crowded.settings.num_jobs:
        current = decision(crowded, episodes, 0)
        foreseen.append(chooser._current(current, current.occupancy).num_decisions)
        crowded.decide(episodes, 0, 0)
    assert foreseen == list(range(39, -1, -1))


@pytest.mark.reference
def test_the_published_benchmark_is_played_better_than_by_its_best_fixed_degree(reference):
    changes = ["scenario.num_jobs=60"]
    scenario = load_benchmark("pacml-compat-A", changes=changes).build(graphs_dir=reference / "pipedream")
    chooser = rollout(scenario, Ladder((4,), "best-fit"), horizon=20, num_futures=8)
    rates = [play_episode(chooser, scenario, seed).blocking_rate() for seed in (0, 1)]
    other = [play_episode(rule("fixed-4@best-fit", scenario), scenario, seed).blocking_rate() for seed in (0, 1)]
    assert np.mean(rates) < np.mean(other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"queue_capacity": 2}, r"queue_capacity: a rollout planner knows no queue \(got 2\)"),
        ({"failures": {"mean_time_between_failures_h": 50.0}}, "a rollout planner knows no failures and no preemption"),
        ({"preemption": {"rate_per_job_h": 0.1}}, "a rollout planner knows no failures and no preemption"),
    ],
)
def test_where_jobs_wait_or_are_interrupted_it_is_refused(crowded_benchmark, change, message):
    other = crowded_benchmark.scenario.model_validate({**crowded_benchmark.scenario.model_dump(), **change})
    with pytest.raises(PolicyError, match=message):
        rollout(crowded_benchmark.model_copy(update={"scenario": other}).build())


def test_a_base_policy_that_does_not_fit_is_refused(toy, crowded):
    with pytest.raises(PolicyError, match=r"rollout: is no placement rule .* \(got 'best-fit'\); valid: first-fit"):
        rollout(toy)
    with pytest.raises(PolicyError, match=r"\(got 'aligned'\); valid: best-fit, fastest, first-fit"):
        rollout(crowded, Ladder((1,), "aligned"))
    with pytest.raises(PolicyError, match="at least one future"):
        rollout(toy, Ladder((1,), "first-fit"), num_futures=0)
