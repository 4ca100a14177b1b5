"""Best decisions with a known future: the linear programme is a bound, the beam search's decisions are real."""

import dataclasses
from functools import cache

import numpy as np
import pytest

from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.job_partitioning import play_episode
from meshwright.errors import PolicyError
from meshwright.evaluation.cluster.cluster_figures import ClusterFigures
from meshwright.jobs.arrivals import Arrivals
from meshwright.planners.bounds.beam_search import decide, replay
from meshwright.planners.bounds.known_episode import check, draw, known
from meshwright.planners.bounds.linear_program import bound, least_step_s
from meshwright.planners.rules import rule_of_thumb

SEEDS = range(6)


def crowded(scenario, seed):
    """The episode of a seed with jobs that arrive three times as fast, so that some have to be turned away."""
    arrivals = scenario.sample(np.random.default_rng(seed), scenario.settings.num_jobs + 1)
    return known(scenario, dataclasses.replace(arrivals, arrival_s=arrivals.arrival_s / 3))


def most_accepted(episode):
    """The most counted jobs that any decisions accept, by trying all of them."""
    scenario = episode.scenario
    space = scenario.space
    blocks = [space.block(b).tolist() for b in range(space.num_blocks)]

    @cache
    def best(k, until):
        if k == len(episode.graph_id):
            return 0
        now = float(episode.arrival_s[k])
        result = best(k + 1, until)
        for b, devices in enumerate(blocks):
            time_s = float(episode.class_s[k, space.placement_class[b]])
            if any(until[d] > now for d in devices) or not time_s <= episode.limit_s[k] or time_s == np.inf:
                continue
            after = tuple(now + time_s if d in devices else at if at > now else 0.0 for d, at in enumerate(until))
            counts = bool(episode.is_counted[k]) and now + time_s <= episode.end_s
            result = max(result, counts + best(k + 1, after))
        return result

    return best(0, (0.0,) * scenario.cluster.num_devices)


def test_nine_jobs_for_eight_devices_worked_by_hand(one_each):
    # Nine jobs arrive at once and a tenth after all of them have ended: eight of the nine and the tenth fit.
    step_s = float(one_each.times.step_s[0, 0])
    at = np.array([0.0] * 9 + [200 * step_s, 300 * step_s])
    jobs = dataclasses.replace(one_each, settings=one_each.settings.model_copy(update={"num_jobs": 10}))
    result = bound(known(jobs, Arrivals(at, np.zeros(11, np.int64), np.full(11, 100), np.full(11, np.inf))))
    assert result.accepted == pytest.approx(9)
    assert result.blocking_rate_at_least == pytest.approx(1 / 10)
    assert result.price[8] == pytest.approx(1)  # one device more when the ninth arrives would be worth one job
    assert result.price[9] == pytest.approx(0)


@pytest.mark.parametrize("seed", SEEDS)
def test_nobody_passes_the_bound(toy, seed):
    episode = crowded(toy, seed)
    assert bound(episode).num_accepted_at_most >= most_accepted(episode)


def test_the_search_finds_the_best_decisions_of_short_episodes(toy):
    episodes = [crowded(toy, seed) for seed in SEEDS]
    best = [most_accepted(episode) for episode in episodes]
    assert [decide(episode, 64).num_accepted for episode in episodes] == best
    assert min(best) < 9  # something is turned away, or these episodes would show nothing


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bound_is_the_optimum_where_devices_alone_bind(one_each, seed):
    # Jobs on one device each are intervals on equal machines: the programme's matrix is totally unimodular.
    episode = draw(one_each, seed)
    assert bound(episode).num_accepted_at_most == most_accepted_of_intervals(episode)
    assert decide(episode, 256).num_accepted == bound(episode).num_accepted_at_most


def most_accepted_of_intervals(episode):
    """Take jobs as they come; when more run than there are devices, drop the one that ends last (Faigle and Nawijn, 1995)."""
    running, dropped = [], 0
    for k, now in enumerate(episode.arrival_s[:-1].tolist()):
        running = [end for end in running if end > now] + [now + float(episode.class_s[k].min())]
        if len(running) > episode.scenario.cluster.num_devices:
            running.remove(max(running))
            dropped += 1
    return len(episode.graph_id) - dropped


@pytest.mark.parametrize("seed", SEEDS)
def test_no_rule_of_thumb_passes_the_bound(toy, seed):
    for name in ("max", "min", "random", "cheapest-feasible"):
        rule = rule_of_thumb(name, degrees=toy.space.degrees, placements=toy.settings.placement_rules)
        record = play_episode(rule, toy, seed)
        assert record.blocking_rate(toy.settings.counted) >= bound(draw(toy, seed)).blocking_rate_at_least


@pytest.mark.parametrize("left_out", [0, 3])
def test_the_search_reaches_what_it_claims_in_the_environment(left_out):
    scenario = load_benchmark("preset:toy", changes=[f"scenario.num_warmup_jobs={left_out}"]).build()
    for seed in range(3):
        episode = draw(scenario, seed)
        result = decide(episode, 64)
        record = replay(episode, result.block)
        assert record.block.tolist() == result.block.tolist()
        assert ClusterFigures(record, scenario).blocking_rate == result.blocking_rate
        assert result.blocking_rate >= bound(episode).blocking_rate_at_least


def test_a_known_episode_is_the_one_that_every_policy_meets(toy):
    batch = EpisodeBatch(toy, 1)
    batch.reset(0, np.random.default_rng(5))
    episode = draw(toy, 5)
    for name in ("arrival_s", "graph_id", "num_steps"):
        length = len(getattr(episode, name))
        assert np.array_equal(getattr(batch.episodes, name)[0][:length], getattr(episode, name))


def test_a_block_that_is_held_cannot_be_played(toy):
    episode = draw(toy, 0)
    whole = int(np.flatnonzero(toy.space.degree == len(toy.space.degrees) - 1)[0])
    blocks = np.full(9, -1)
    blocks[:2] = whole
    with pytest.raises(ValueError, match="job 1 cannot be placed"):
        replay(episode, blocks)


def test_a_wider_beam_is_not_worse_by_much_and_the_same_width_is_the_same(toy):
    scenario = load_benchmark("preset:toy").build()
    episodes = [draw(scenario, seed) for seed in range(3)]
    narrow, wide = (sum(decide(episode, width).num_accepted for episode in episodes) for width in (1, 128))
    assert wide > narrow
    assert np.array_equal(decide(episodes[0], 32).block, decide(episodes[0], 32).block)


@pytest.mark.parametrize(
    "change", ["scenario.queue_capacity=2", "scenario.preemption.rate_per_job_h=0.1"], ids=["queue", "preemption"]
)
def test_scenarios_that_the_references_do_not_model_are_refused(change):
    with pytest.raises(PolicyError, match="clairvoyant references know no"):
        check(load_benchmark("preset:toy", changes=[change]).build())


@pytest.fixture(scope="module")
def compat(reference):
    changes = ["scenario.num_jobs=150"]
    return load_benchmark("preset:pacml-compat-A", changes=changes).build(graphs_dir=reference / "pipedream")


@pytest.mark.reference
def test_as_published_jobs_that_run_at_the_end_are_blocked_and_times_are_keyed_by_degree(compat):
    episode = draw(compat, 0)
    result = decide(episode, 64)
    record = replay(episode, result.block)
    assert ClusterFigures(record, compat).blocking_rate == result.blocking_rate
    assert record.num_undecided == 1
    assert (record.finish_s[record.is_accepted] <= episode.end_s).all()
    assert result.blocking_rate >= bound(episode).blocking_rate_at_least > 0


@pytest.mark.reference
def test_no_placement_of_the_published_first_fit_is_faster_than_the_bound_allows(compat):
    least_s = least_step_s(compat)
    chooser = rule_of_thumb("random@published", degrees=compat.space.degrees, placements=compat.settings.placement_rules)
    for seed in range(3):
        record = play_episode(chooser, compat, seed)
        k = np.flatnonzero(record.is_accepted)
        step_s = record.completion_s[k] / record.num_steps[k]
        degree = np.searchsorted(compat.space.degrees, record.degree[k])
        assert (step_s >= least_s[record.graph_id[k], degree]).all()
        assert all(len(record.devices_of(int(job), compat)) >= record.degree[job] for job in k)
        assert record.blocking_rate() >= bound(draw(compat, seed)).blocking_rate_at_least
