"""TD(lambda) on afterstates: its returns by hand and by their definition, and what it reaches where the best is known."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.reward import RewardSettings
from meshwright.envs.static_features import static_features
from meshwright.models.network import CandidateNetwork
from meshwright.models.settings import NetworkSettings
from meshwright.training.pretraining import temporal_difference
from meshwright.training.pretraining.settings import ValuePretraining
from meshwright.training.pretraining.stages import start_ppo
from meshwright.training.pretraining.temporal_difference import ValueLearning, lambda_returns
from meshwright.training.train import blocking_rate
from meshwright.training.vec_env import JobPartitioningVecEnv
from meshwright.training.vec_env_wrappers import CentredReward

from ...draws import draws

NARROW = {"graph_hidden": 4, "graph_embedding": 3, "graph_rounds": 1, "slot_hidden": 4, "device_hidden": 3, "hidden": 8}


@pytest.fixture(scope="module")
def toy_benchmark():
    return load_benchmark("preset:toy", changes=["scenario.shape_slots=6"])


@pytest.fixture(scope="module")
def toy(toy_benchmark):
    return toy_benchmark.build()


@pytest.fixture
def network(toy):
    torch.manual_seed(0)
    return CandidateNetwork(NetworkSettings(**NARROW, after=(32, 16)), static_features(toy))


@pytest.fixture
def make(toy, toy_benchmark):
    return lambda reward=toy_benchmark.reward, num_envs=4: CentredReward(JobPartitioningVecEnv(toy, num_envs, reward, seed=1))


def pretrained(network, env, *, seed=0, look=lambda steps: None, **chosen):
    """A copy of a network after a short pretraining, 128 decisions to an update of four environments."""
    made = copy.deepcopy(network)
    short = {"steps": 512, "rollout_steps": 32, "minibatch": 64, "epochs": 1}
    ValueLearning(made, env, ValuePretraining(**{**short, **chosen}), 0.9, seed).run(look)
    return made


class Greedy(torch.nn.Module):
    """Scores by worth alone, as the policy does that plays while values are learned."""

    def __init__(self, network):
        super().__init__()
        self.network = network
        self.settings, self.observed = network.settings, network.observed

    def forward(self, observation):
        candidate_value = self.network.candidate_value_of(self.network.laid_out(observation))
        scores = torch.full(observation["action_mask"].shape, -torch.inf)
        return scores.index_put(
            (candidate_value.sample, candidate_value.candidate), candidate_value.immediate_reward + candidate_value.after
        ), None


# --- returns ---


def returns(pays, after, discount, trace, is_over=()):
    """Of one environment; the last figures are those of the decision at the cut."""
    over = np.zeros((len(pays) - 1, 1), np.bool_)
    over[list(is_over)] = True
    column = (np.array(figures, np.float32)[:, None] for figures in (pays, after))
    return lambda_returns(*column, over, discount, trace)[:, 0].tolist()


@pytest.mark.parametrize(
    ("trace", "expected"),
    [
        # t = 2, at the cut: 1/2 (4 + 40) = 22 in each case.
        # One step, then the estimate: 1/2 (2 + 20) = 11 and 1/2 (1 + 10) = 5.5.
        (0.0, [5.5, 11.0, 22.0]),
        # All that was paid up to the cut: 1/2 (2 + 22) = 12 and 1/2 (1 + 12) = 6.5.
        (1.0, [6.5, 12.0, 22.0]),
        # Half and half: 1/2 (2 + (20 + 22) / 2) = 11.5 and 1/2 (1 + (10 + 11.5) / 2) = 5.875.
        (0.5, [5.875, 11.5, 22.0]),
    ],
)
def test_three_decisions_by_hand(trace, expected):
    # The reward of the first decision and what was thought of the state after it do not count: they do not follow it.
    assert returns([99.0, 1.0, 2.0, 4.0], [99.0, 10.0, 20.0, 40.0], 0.5, trace) == expected


@pytest.mark.parametrize("trace", [0.0, 0.5, 1.0])
def test_nothing_follows_the_last_decision_of_an_episode(trace):
    # The second decision ends an episode: before it comes its own reward alone, 1/2 x (1 + (1 - trace) 10).
    result = returns([99.0, 1.0, 2.0, 4.0], [99.0, 10.0, 20.0, 40.0], 0.5, trace, is_over=[1])
    assert result == [0.5 * (1 + (1 - trace) * 10), 0.0, 22.0]


@draws(13)
@given(seed=st.integers(0, 10_000), trace=st.floats(0, 1), discount=st.floats(0, 1))
def test_returns_are_the_weighted_mean_of_n_step_returns(seed, trace, discount):
    rng, num_steps = np.random.default_rng(seed), 7
    pays, after = rng.normal(size=(2, num_steps + 1, 3)).astype(np.float32)
    is_over = rng.random((num_steps, 3)) < 0.2
    result = lambda_returns(pays, after, is_over, discount, trace)
    for e in range(3):
        for t in range(num_steps):
            # n steps reach as far as the cut, or as the last decision of the episode.
            ends = np.flatnonzero(is_over[t:, e])
            last = int(ends[0]) if len(ends) else num_steps - t
            paid, expected = 0.0, 0.0
            for n in range(1, last + 1):
                paid += discount ** (n - 1) * float(pays[t + n, e])
                is_cut = n == last and not len(ends)
                estimate = discount * paid + discount**n * float(after[t + n, e])
                expected += (trace ** (n - 1) if is_cut else (1 - trace) * trace ** (n - 1)) * estimate
            if len(ends) and last:  # after the last decision of the episode, nothing
                expected += trace**last * discount * paid
            assert result[t, e] == pytest.approx(expected, abs=1e-4)


# --- what candidates pay, and the centre ---


@pytest.mark.parametrize("unfinished", [None, -0.25])
def test_what_acceptance_pays_is_found_exactly(network, make, unfinished):
    env = make(RewardSettings(accepted=1.5, blocked=-0.5, unfinished=unfinished), 8)
    rng = np.random.default_rng(0)
    env.restart()
    temporal_difference._prepare(network, env, rng)
    seen = env.episodes.observations()
    ends, differ = set(), 0
    for _ in range(120):
        result = network.candidate_value_of(network.laid_out({key: torch.as_tensor(value) for key, value in seen.items()}))
        pays = env.immediate_rewards()[result.sample, result.candidate]
        np.testing.assert_allclose(result.immediate_reward.detach().numpy(), pays, atol=2e-5)
        ends |= set(np.round(pays + env.reward_centre, 5).tolist())
        differ += len(set(pays.tolist())) > 1
        seen = env.step(np.array([rng.choice(np.flatnonzero(mask)) for mask in seen["action_mask"]]))[0]
    assert ends == {1.5, -0.5} | ({-0.25} if unfinished else set())
    assert differ == 120


def test_the_centre_is_what_the_best_paid_candidates_pay_on_average(network, make):
    env = make(RewardSettings(accepted=3.0, blocked=3.0))
    env.restart()
    temporal_difference._prepare(network, env, np.random.default_rng(0))
    assert env.reward_centre == 3.0
    assert (np.abs(env.immediate_rewards()) == 0).all()
    assert env.step(np.zeros(4, np.int64))[1].tolist() == [0.0] * 4


def test_moving_the_centre_shifts_all_worth_alike(network, make):
    env = make()
    seen = {key: torch.as_tensor(value) for key, value in env.reset().items()}
    before, other = network.candidate_value_of(network.laid_out(seen)), copy.deepcopy(network)
    memory = temporal_difference._Memory(2)
    memory.add({"wanted": torch.tensor([5.0, 6.0])})
    temporal_difference._move_centre(env, np.array([0.1]), 0.9, (network, other), memory)
    after = network.candidate_value_of(network.laid_out(seen))
    assert env.reward_centre == pytest.approx(0.1)
    # 0.1 less for every decision to come is 0.1 (0.9 + 0.81 + ...) = 0.1 x 0.9 / 0.1 = 0.9 less after the one at hand.
    torch.testing.assert_close(after.after, before.after - 0.9)
    torch.testing.assert_close(after.immediate_reward, before.immediate_reward - 0.1)
    torch.testing.assert_close(other.candidate_value_of(other.laid_out(seen)).after, after.after)
    torch.testing.assert_close(memory.rows["wanted"][:2], torch.tensor([4.1, 5.1]))


def test_what_is_remembered_moves_with_the_centre_of_its_own_scenario(network, toy, toy_benchmark):
    env, memory = CentredReward(JobPartitioningVecEnv((toy, toy), 4, toy_benchmark.reward, 1)), temporal_difference._Memory(1)
    memory.add({"wanted": torch.arange(8.0)})  # two decisions of four environments
    bias = network.after.value.bias.item()
    temporal_difference._move_centre(env, np.array([0.1, 0.3]), 0.5, (network,), memory)
    # 0.1 and 0.3 less for every later decision, at a discount of 0.5: 0.1 and 0.3 in all; a network takes the mean.
    assert memory.rows["wanted"].tolist() == pytest.approx([-0.1, 0.9, 1.7, 2.7, 3.9, 4.9, 5.7, 6.7])
    assert network.after.value.bias.item() == pytest.approx(bias - 0.2)
    assert env.reward_centre.tolist() == [0.1, 0.3]


def test_several_scenarios_are_centred_together_or_each_by_itself():
    paid = np.float32([[1.0, 2.0, 5.0, 6.0], [3.0, 2.0, 7.0, 2.0]])  # two decisions of four environments
    assert temporal_difference._usual(paid, 2, "apart").tolist() == [2.0, 5.0]
    assert temporal_difference._usual(paid, 2, "together").tolist() == [3.5, 3.5]
    assert temporal_difference._usual(paid, 1, "apart").tolist() == [3.5]


def test_what_every_decision_of_one_scenario_pays_alike_changes_nothing_that_is_learned(network, toy):
    rewards = [RewardSettings(accepted=1.0 + more, blocked=-1.0 + more) for more in (0.0, 2.0)]
    envs = [CentredReward(JobPartitioningVecEnv((toy, toy), 4, (rewards[0], second), 1)) for second in rewards]
    plain, richer = (pretrained(network, env, centred="apart") for env in envs)
    assert envs[1].reward_centre == pytest.approx(envs[0].reward_centre + np.array([0.0, 2.0]), abs=1e-5)
    for ours, theirs in zip(plain.after.parameters(), richer.after.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


# --- playing and learning ---


# Numbers 0 and 2 of the first decision are offered, 0 and 1 of the second.
OFFERED = np.array([[True, False, True], [True, True, False]])


def test_the_candidate_with_the_most_reward_and_worth_is_taken():
    rng = np.random.default_rng(0)
    total = np.array([[3.0, 9.0, 2.0], [0.5, 1.0, 9.0]], np.float32)
    assert temporal_difference._act(total, OFFERED, 0.0, rng).tolist() == [0, 1]
    total[0, 2] = 3.5
    assert temporal_difference._act(total, OFFERED, 0.0, rng).tolist() == [2, 1]


def test_by_chance_every_offered_candidate_is_taken_equally_often():
    total, rng = np.array([[5.0, 9.0, 0.0], [5.0, 0.0, 9.0]], np.float32), np.random.default_rng(0)
    taken = np.array([temporal_difference._act(total, OFFERED, 0.5, rng) for _ in range(4000)])
    # By choice in half of the cases, by chance else: 3/4 to 1/4, within five standard deviations.
    for e, better, other in ((0, 0, 2), (1, 0, 1)):
        assert set(taken[:, e].tolist()) == {better, other}
        assert abs((taken[:, e] == better).mean() - 0.75) < 5 * (0.75 * 0.25 / 4000) ** 0.5


def test_a_network_without_rejection_plays_without_it_too(make):
    env = make()
    env.restart()
    offered, in_need = temporal_difference._offered(env), temporal_difference._offered(env, True)
    assert offered[:, 0].all()
    assert (in_need[:, 1:] == offered[:, 1:]).all()
    assert (in_need[:, 0] == ~offered[:, 1:].any(axis=1)).all()
    assert not in_need[:, 0].all()


@draws(8)
@given(capacity=st.integers(1, 4), size=st.integers(1, 3), num_rollouts=st.integers(1, 9))
def test_memory_holds_the_latest_rollouts(capacity, size, num_rollouts):
    memory = temporal_difference._Memory(capacity)
    for i in range(num_rollouts):
        memory.add({"wanted": torch.full((size,), float(i))})
    held = range(max(0, num_rollouts - capacity), num_rollouts)
    assert len(memory) == size * len(held)
    assert sorted(memory.rows["wanted"][: len(memory)].tolist()) == sorted(float(i) for i in held for _ in range(size))


def test_the_weights_that_play_are_a_running_average_of_those_that_learn(network, make):
    # One update, so both runs play the same: a quarter of the way from the first weights to the learned ones.
    whole, quarter = (pretrained(network, make(), steps=128, averaging=share, slow_averaging=1.0) for share in (1.0, 0.25))
    before, learned = dict(network.after.named_parameters()), dict(whole.after.named_parameters())
    for name, weight in quarter.after.named_parameters():
        torch.testing.assert_close(weight, before[name] + 0.25 * (learned[name] - before[name]))
        assert not torch.equal(learned[name], before[name]), name


def test_the_weights_that_are_kept_are_a_running_average_of_those_that_play(network, make):
    plays, stored = (pretrained(network, make(), steps=128, averaging=1.0, slow_averaging=share) for share in (1.0, 0.25))
    for name, weight in stored.after.named_parameters():
        before, played = network.get_parameter(f"after.{name}"), plays.get_parameter(f"after.{name}")
        torch.testing.assert_close(weight, before + 0.25 * (played - before))


def test_only_what_afterstates_are_worth_and_what_candidates_pay_is_learned(network, make):
    learned = pretrained(network, make()).state_dict()
    changed = {name.split(".")[0] for name, weight in network.state_dict().items() if not torch.equal(weight, learned[name])}
    assert changed == {"after", "pays"}


def test_the_same_seed_learns_the_same_bits_and_another_one_others(network, make):
    torch.rand(3)
    first, again, other = (pretrained(network, make(), seed=seed).state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_the_values_of_the_toy_reach_its_optimum(network, toy, toy_benchmark):
    # Nothing blocks fewer than no job (see test_learning, where every rule of thumb and every other fixed choice blocks some).
    env = CentredReward(JobPartitioningVecEnv(toy, 32, toy_benchmark.reward, 0))
    before = blocking_rate(Greedy(network), toy, 10)
    choice = ValuePretraining(
        steps=16_384, learning_rate=3e-3, rollout_steps=32, minibatch=128, memory=4, averaging=0.2, slow_averaging=0.2
    )
    ValueLearning(network, env, choice, 0.95, 0).run(lambda steps: None)
    assert before > 0.1
    assert blocking_rate(Greedy(network), toy, 10) == 0.0


def test_ppo_begins_as_sharply_as_the_temperature_says_and_is_paid_in_another_unit(network, make):
    values, env = ValuePretraining(temperature=0.25, reward_scale=0.5), make()
    env.reward_centre = np.array([0.125])
    start_ppo(network, env, values)
    # A difference in worth of 0.25 makes the better candidate e times as likely.
    assert network.log_sharpness.exp().item() == pytest.approx(1 / 0.25)
    # Half of what is paid, and worth is half as much in the value of a state; what candidates pay is told as before.
    assert network.value_scale.item() == 0.5
    env.reset()
    pays = env.immediate_rewards()
    assert pays[:, 0].tolist() == [-1.125] * 4
    assert env.step(np.zeros(4, np.int64))[1].tolist() == [-0.5625] * 4
