"""The linear scorer: its features by hand and by a plain reference, its laws, its files."""

import dataclasses
import json
import math

import numpy as np
import pytest

from meshwright.envs.job_partitioning import play_episode
from meshwright.errors import CheckpointError, PolicyError
from meshwright.planners.afterstate_features import DURATION_SCALE, BlockTable, DecisionState, Scorer, best_candidate
from meshwright.planners.episode_player import LinearTrial
from meshwright.planners.linear import DECAYS, FEATURES, NODES, NUM_SLOTS, LinearScorer, LinearWeights, folded, scorer
from meshwright.planners.rules import rule_of_thumb
from meshwright.simulation.cluster.decision import decision

NEVER = -1e6


def weights(placement_rules=("first-fit",), **named):
    """Weights by the names of features, spaces and the like as underscores."""
    result = dict.fromkeys(FEATURES, 0.0)
    for name, weight in named.items():
        (feature,) = (f for f in FEATURES if f.replace(" ", "_").replace("-", "_") == name)
        result[feature] = weight
    return LinearWeights(np.array(list(result.values())), tuple(placement_rules))


def random_weights(seed, placement_rules=("first-fit",)):
    return LinearWeights(np.random.default_rng(seed).normal(size=len(FEATURES)), tuple(placement_rules))


def rule(name, scenario):
    return rule_of_thumb(name, degrees=scenario.space.degrees, placements=scenario.settings.placement_rules)


def decisions(scenario, seed, chooser):
    """The decisions of an episode and the episode's state at each, a policy choosing."""
    episodes = scenario.new_episodes(1)
    scenario.reset(episodes, 0, scenario.sample(np.random.default_rng(seed), scenario.settings.num_jobs + 1))
    chooser.reset(seed)
    while episodes.job[0] < scenario.settings.num_jobs:
        at = decision(scenario, episodes, 0)
        yield at
        scenario.decide(episodes, 0, chooser.choose(at, {}))


# --- features ---


# Two devices: blocks 0 and 1 are one device each, block 2 is both.
PAIR = BlockTable(2, np.array([0, 0, 1]), np.array([0, 1, 2, 4]), np.array([0, 2, 4, 7]), np.array([0, 2, 1, 2, 0, 1, 2]))


def best(state, block_value=((0, 0, 0, 0), (0, 0, 0, 0)), first_value=((0, 0, 0, 0), (0, 0, 0, 0)), **plain):
    """The choice by three slots, one mean inter-arrival time being ten seconds."""
    numbers = np.zeros(11)
    for place, weight in plain.items():
        numbers[int(place.removeprefix("w"))] = weight
    given = (np.array(block_value, np.float64), np.array(first_value, np.float64), numbers)
    return best_candidate(Scorer(PAIR, 10.0, *given), state)


def at(now_s=100.0, num_left=9, allowed_s=math.inf, free_at_s=(0, 0), block=(-1, 0, 1, 2), time_s=(math.inf, 25, 15, 8)):
    free_at_s, block = np.array(free_at_s, np.float64), np.array(block)
    block_free_at_s = np.array([*free_at_s, free_at_s.max()])
    is_offered = np.array([b < 0 or block_free_at_s[b] <= now_s for b in block])
    return DecisionState(now_s, num_left, allowed_s, free_at_s, block_free_at_s, block, np.array(time_s, np.float64), is_offered)


def test_what_blocks_are_worth_by_hand():
    # All is free. Candidate 1 holds device 0 for 25 s: free again by slot 2, and the pair likewise. Candidate 2 holds device 1
    # until slot 1, candidate 3 both for 8 s, that is for no slot at all.
    single, pair = (6, 4, 1, 0), (9, 8, 2, 0)
    # Blocks of one: 1 - 6 = -5, 4 - 6 = -2 and 0. Blocks of two: 2 - 9 = -7, 8 - 9 = -1 and 0.
    assert best(at(), block_value=(single, (0, 0, 0, 0)), w0=-1.9) == 3
    assert best(at(time_s=(math.inf, 25, 15, 18)), block_value=(single, (0, 0, 0, 0)), w0=-1.9) == 0  # -5, -2, -4: all below
    assert best(at(time_s=(math.inf, 25, 15, 18)), block_value=(single, (0, 0, 0, 0)), w0=-2.1) == 2
    assert best(at(time_s=(math.inf, 25, 15, 18)), block_value=((0, 0, 0, 0), pair), w0=-1.1) == 2
    # The first block of one stays free under candidates 1 and 2, so the first candidate is taken; under 3 it is slot 1.
    assert best(at(time_s=(math.inf, 25, 15, 18)), first_value=(single, (0, 0, 0, 0)), w0=-0.1) == 1
    assert best(at(time_s=(math.inf, 25, 15, 18)), first_value=((0, 0, 0, 0), pair), w0=-1.1) == 2


def test_a_time_of_exactly_a_slot_is_free_by_that_slot():
    # 10 s is slot 0, 20 s slot 1, 30 s slot 2, and beyond that never.
    for time_s, worth in ((10.0, 6), (10.001, 4), (20.0, 4), (30.0, 1), (30.001, 0)):
        state = at(block=(-1, 0), time_s=(math.inf, time_s))
        assert best(state, block_value=((6, 4, 1, 0), (0, 0, 0, 0)), w0=worth - 6 + 0.01) == 0
        assert best(state, block_value=((6, 4, 1, 0), (0, 0, 0, 0)), w0=worth - 6 - 0.01) == 1


def test_equal_scores_go_to_the_first_block_and_to_the_rejection_last():
    assert best(at()) == 1
    assert best(at(block=(-1, 2, 1, 0))) == 3


def reference_choice(saved, scenario, decision_at, is_offered):
    """The same choice from the words of the module's docstrings, without any of its code."""
    space, occupancy = scenario.space, decision_at.occupancy
    mean_s, num_devices = scenario.workload.mean_interarrival_s, scenario.cluster.num_devices
    named = dict(zip(FEATURES, saved.weights, strict=True))

    def slot(moment_s):
        return next((h for h in range(NUM_SLOTS) if moment_s - decision_at.now_s <= (h + 1) * mean_s), NUM_SLOTS)

    def share(d, node):
        hats = [max(0.0, 1.0 - abs(math.log2(min(k, NODES[-1])) - math.log2(node))) for k in space.degrees]
        return hats[d] / sum(hats) if sum(hats) else 0.0

    def worth(free_at_s):
        total = 0.0
        for node in NODES:
            for when, decay in DECAYS.items():
                factors = [decay**h for h in range(NUM_SLOTS)]
                for d in range(len(space.degrees)):
                    slots = [slot(free_at_s[b]) for b in range(space.num_blocks) if space.degree[b] == d]
                    ahead = [sum(f for h, f in enumerate(factors) if h >= s) / sum(factors) for s in slots]
                    total += named[f"blocks of {node} {when}"] * share(d, node) * sum(ahead) / len(ahead)
                    total += named[f"first block of {node} {when}"] * share(d, node) * max(ahead)
        return total

    free_at_s = occupancy.block_free_at_s
    load = sum(t > decision_at.now_s for t in occupancy.free_at_s) / num_devices
    scores = {0: named["reject"] + named["reject x load"] * load}
    for a in np.flatnonzero(is_offered[1:]) + 1:
        block, time_s = int(decision_at.block[a]), float(decision_at.completion_s[a])
        devices = set(space.block(block).tolist())
        after = [
            max(t, decision_at.now_s + time_s) if devices & set(space.block(b).tolist()) else t
            for b, t in enumerate(free_at_s.tolist())
        ]
        part, slots = len(devices) / num_devices, time_s / mean_s
        squashed = slots / (slots + DURATION_SCALE)
        scores[int(a)] = (
            worth(after)
            - worth(free_at_s)
            + named["device-seconds"] * part * slots
            + named["device-seconds x load"] * part * slots * load
            + named["device slots"] * part * math.ceil(slots)
            + named["devices"] * part
            + named["devices x load"] * part * load
            + named["completion"] * squashed
            + named["completion x load"] * squashed * load
            + (named["completion over deadline"] * time_s / decision_at.allowed_s if decision_at.allowed_s < math.inf else 0.0)
            + named["ends after the episode"] * (slots > occupancy.num_left)
        )
    return max(scores, key=lambda a: scores[a]), scores


@pytest.mark.every(3)
@pytest.mark.parametrize("seed", range(4))
def test_the_compiled_choice_is_that_of_a_plain_reference(crowded, seed):
    saved = random_weights(seed, ["best-fit"])
    chooser = LinearScorer("mine", saved, crowded)
    num_compared = 0
    for current in decisions(crowded, seed, chooser):
        is_offered = np.zeros(len(current.degree), np.bool_)
        is_offered[current.offered("best-fit")] = True
        choice, scores = reference_choice(saved, crowded, current, is_offered)
        result = chooser.choose(current, {})
        assert scores[result] == pytest.approx(scores[choice], abs=1e-9)
        num_compared += len(scores) > 1
    assert num_compared > 5


def test_weights_are_shared_by_degrees_in_proportion_to_the_logarithm(crowded):
    # Degrees 1, 2, 4, 6, 8: those near four ranks are 4 itself and 6, which is log2(6) - 2 = 0.585 doublings away.
    assert crowded.space.degrees == (1, 2, 4, 6, 8)
    block, first, _ = folded(crowded, weights(first_block_of_4_next=1.0, blocks_of_4_next=1.0).weights[None])
    share = 1 / (1 + 0.415037499)
    assert first[0, :, 0] == pytest.approx([0, 0, share, 1 - share, 0])
    assert first[0, :, 1:] == pytest.approx(0)
    assert block[0, 2, 0] == pytest.approx(share / (crowded.space.degree == 2).sum())


# --- laws ---


@pytest.mark.parametrize("placement", ["first-fit", "best-fit", "aligned"])
@pytest.mark.parametrize(("feature", "name"), [("device_seconds", "cheapest-feasible"), ("completion", "fastest-feasible")])
def test_a_single_weight_makes_a_rule_of_thumb(crowded, feature, name, placement):
    chooser = LinearScorer("mine", weights([placement], **{feature: -1.0}, reject=NEVER), crowded)
    other = rule(f"{name}@{placement}", crowded)
    num_placed = 0
    for seed in range(3):
        for current in decisions(crowded, seed, rule("random", crowded)):
            assert chooser.choose(current, {}) == other.choose(current, {})
            num_placed += other.choose(current, {}) > 0
    assert num_placed > 20


def test_a_job_can_be_turned_away_on_purpose(crowded):
    result = play_episode(LinearScorer("mine", weights(reject=1.0), crowded), crowded, 0)
    assert not result.is_accepted.any()
    assert result.counts()["rejected by choice"] > 0


@pytest.mark.parametrize("placement_rules", [["first-fit"], ["best-fit"], ["first-fit", "aligned"]])
def test_the_compiled_player_reaches_what_the_policy_reaches(crowded, placement_rules):
    # The policy acts in the scenario with all rules, where one candidate may stand for those of several.
    trial = LinearTrial.only(crowded, placement_rules)
    tried = [random_weights(seed, placement_rules) for seed in (5, 6, 7)]
    seeds = (0, 1)
    rates = trial.blocking_rates(np.array([saved.weights for saved in tried]), [np.random.default_rng(s) for s in seeds])
    played = [
        [play_episode(LinearScorer("", saved, crowded), crowded, s).blocking_rate(slice(5, 40)) for s in seeds] for saved in tried
    ]
    assert rates.tolist() == played
    assert len(np.unique(rates)) > 2


def test_a_scorer_acts_where_jobs_wait_and_devices_fail(crowded_benchmark):
    changes = {"queue_capacity": 3, "failures": {"mean_time_between_failures_h": 20.0}}
    harder = crowded_benchmark.scenario.model_validate({**crowded_benchmark.scenario.model_dump(), **changes})
    scenario = crowded_benchmark.model_copy(update={"scenario": harder}).build()
    saved = random_weights(1)
    rates = LinearTrial.only(scenario, ["first-fit"]).blocking_rates(saved.weights[None], [np.random.default_rng(3)])
    assert rates[0, 0] == play_episode(LinearScorer("", saved, scenario), scenario, 3).blocking_rate(slice(5, 40))


def test_a_weight_for_a_degree_that_the_cluster_lacks_changes_nothing(toy):
    # The toy has 1, 2 and 4 devices.
    few = scorer(toy, weights(blocks_of_16_next=5.0, first_block_of_8_later=5.0).weights)
    assert not few.block_value.any()
    assert not few.first_value.any()


# --- files ---


def test_weights_are_read_as_they_were_written(tmp_path):
    saved = LinearWeights(random_weights(3).weights, ("best-fit", "aligned"), {"seed": 4})
    saved.save(tmp_path / "policy.json")
    read = LinearWeights.load(tmp_path / "policy.json")
    assert read.weights.tolist() == saved.weights.tolist()
    assert (read.placement_rules, read.trained) == (saved.placement_rules, saved.trained)


BAD = [
    (lambda data: data.update(kind="network"), "is no linear scorer of version 1"),
    (lambda data: data.update(format_version=2), "is no linear scorer of version 1"),
    (lambda data: data.update(features="0" * 32), "features: was tuned for other features than these; tune it again"),
    (lambda data: data.update(placement_rules=[]), "placement_rules: must be a list of placement rules"),
    (lambda data: data.update(placement_rules="best-fit"), "placement_rules: must be a list of placement rules"),
    (lambda data: data.update(weights=[1.0]), "weights: must be a mapping"),
    (lambda data: data.update(trained=None), "trained: must be a mapping"),
    (lambda data: data["weights"].pop("reject"), "weights: the weight is missing (got 'reject')"),
    (lambda data: data["weights"].update(rejct=1.0), "weights: no such feature (got 'rejct'); did you mean 'reject'?"),
    (lambda data: data["weights"].update(reject="1"), "weights.reject: must be a finite number (got '1')"),
    (lambda data: data["weights"].update(reject=True), "weights.reject: must be a finite number"),
    (lambda data: data["weights"].update(reject=10**400), "not valid JSON: a number of 401 digits is more than a number holds"),
]


@pytest.mark.parametrize(("spoil", "message"), BAD)
def test_a_file_that_is_no_linear_scorer_is_refused(tmp_path, spoil, message):
    data = random_weights(0).to_data()
    spoil(data)
    (tmp_path / "policy.json").write_text(json.dumps(data))
    with pytest.raises(CheckpointError) as caught:
        LinearWeights.load(tmp_path / "policy.json")
    assert str(caught.value).startswith(f"{tmp_path}/policy.json: {message}")


def test_what_is_missing_or_truncated_is_told(tmp_path):
    with pytest.raises(CheckpointError, match="no such file"):
        LinearWeights.load(tmp_path / "policy.json")
    (tmp_path / "policy.json").write_text('{"kind": ')
    with pytest.raises(CheckpointError, match=r"policy\.json:1: not valid JSON"):
        LinearWeights.load(tmp_path / "policy.json")


def test_a_scenario_without_the_placement_rule_is_refused(crowded, toy):
    with pytest.raises(PolicyError, match=r"mine: was tuned to choose among .* \(got 'best-fit'\); valid: first-fit"):
        LinearScorer("mine", weights(["best-fit"]), toy)
    with pytest.raises(PolicyError, match="valid: aligned, best-fit, fastest, first-fit"):
        LinearScorer("mine", weights(["published"]), crowded)


def test_a_decision_without_a_cluster_is_refused(crowded):
    current = next(decisions(crowded, 0, rule("max", crowded)))
    with pytest.raises(PolicyError, match="does not say when devices become free"):
        LinearScorer("mine", weights(), crowded).choose(dataclasses.replace(current, occupancy=None), {})


def test_only_placement_rules_of_single_blocks_can_be_tuned_for(crowded, toy):
    assert LinearTrial.only(crowded, None).placement_rules == ("first-fit", "best-fit", "aligned", "fastest")
    assert LinearTrial.only(crowded, ["aligned"]).placement_rules == ("aligned",)
    with pytest.raises(
        PolicyError, match=r"placement_rules: .* \(got 'published'\); valid: aligned, best-fit, fastest, first-fit"
    ):
        LinearTrial.only(crowded, ["published"])
    # Nor in a trial that was not made by `only`.
    several = crowded.settings.model_copy(update={"placement_rules": ("published", "first-fit")})
    with pytest.raises(PolicyError, match=r"placement_rules: a linear scorer reads candidates of single blocks .*'published'"):
        LinearTrial(dataclasses.replace(crowded, settings=several)).blocking_rates(np.zeros((1, len(FEATURES))), [])
    with pytest.raises(PolicyError, match="got 'all-blocks'"):
        LinearTrial.only(toy, ["all-blocks"])
