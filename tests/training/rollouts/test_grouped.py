"""Decisions that groups of environments collect: the same whoever plays, and what whole environments do with these actions."""

import pickle

import numpy as np
import pytest
import torch

from meshwright import settings
from meshwright.errors import ConfigError
from meshwright.models.masked_policy import log_shares
from meshwright.training.curriculum import phases
from meshwright.training.rollouts.group import GroupPlayer
from meshwright.training.rollouts.grouped import GroupedPPO, Groups
from meshwright.training.rollouts.overlap import alone, rollout_workers
from meshwright.training.settings import TrainSettings
from meshwright.training.train import _model, train
from meshwright.training.vec_env_wrappers import CentredReward, wrapper_of


@pytest.fixture(scope="module")
def chosen(config):
    return settings.load(TrainSettings, config, changes=["group_envs=2", "total_steps=256", "staggered=true"])


def trained(chosen, folder, share_out=alone, **options):
    run = train(chosen, folder, share_out=share_out, **options)
    return run.policy.read_bytes()


@pytest.fixture(scope="module")
def whole(chosen, tmp_path_factory):
    return trained(chosen, tmp_path_factory.mktemp("whole") / "run")


def carried(play, tasks, keep):
    """Plays each task from its pickled form, in the order from last to first, and every one twice, as where workers are lost."""
    there = {}
    for number in reversed(range(len(tasks))):
        for _ in range(2):
            there[number] = pickle.loads(pickle.dumps(play))(pickle.loads(pickle.dumps(tasks[number])))
    for number, task in enumerate(tasks):
        keep(task, there[number])


def test_the_policy_does_not_depend_on_who_plays_nor_on_what_is_played_twice(chosen, whole, tmp_path):
    assert trained(chosen, tmp_path / "carried", carried) == whole


def test_the_policy_depends_on_the_groups(chosen, whole, tmp_path):
    other = chosen.model_copy(update={"group_envs": 4})
    assert trained(other, tmp_path / "other") != whole


class KilledError(Exception):
    """The process is gone."""


def test_a_run_of_groups_goes_on_wherever_it_was_killed(chosen, whole, tmp_path):
    def kill(now):
        if now.steps >= 200:
            raise KilledError

    with pytest.raises(KilledError):
        train(chosen, tmp_path / "run", progress=kill)
    assert trained(chosen, tmp_path / "run", resume=True) == whole


@pytest.fixture(scope="module", params=["tiny", "mixed with a busier one"])
def rollout(request, chosen, config):
    """A model after a rollout, and the state of its environments and the generators before it."""
    if request.param != "tiny":
        chosen = chosen.model_copy(update={"mixed": (str(config.parent / "busy.yaml"),)})
    played = phases(chosen)
    model = _model(chosen, played[0])
    assert isinstance(model, GroupedPPO)
    with rollout_workers(None, is_overlapped=False) as begin:
        model.groups = Groups(2, GroupPlayer(chosen, played[0], played[0], None), begin)
    _, callback = model._setup_learn(1_000)
    env = wrapper_of(model, CentredReward)
    env.set_reward_scaling({}, 0.5)
    env.reward_centre[:] = np.arange(1, 1 + len(env.reward_centre)) / 10
    before = env.state()
    for _ in range(3):  # episodes end within three
        before = env.state()
        assert model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
    return chosen, played[0], model, before


def test_a_rollout_is_what_the_whole_environments_do_with_these_actions(rollout):
    chosen, phase, model, before = rollout
    env, buffer = phase.env(chosen), model.rollout_buffer
    env.venv.set_value_network(model.policy.network)
    seen, num_ended = env.restore(before), 0
    for step in range(model.n_steps):
        for key, value in seen.items():
            np.testing.assert_array_equal(buffer.observations[key][step].reshape(value.shape), value, err_msg=key)
        env.step_async(buffer.actions[step, :, 0].astype(np.int64))
        seen, rewards, is_over, infos = env.step_wait()
        for e in np.flatnonzero(is_over):
            end = {key: torch.from_numpy(value[None]) for key, value in infos[e]["terminal_observation"].items()}
            rewards[e] += chosen.ppo.discount * model.policy.predict_values(end).item()
            num_ended += 1
        np.testing.assert_allclose(buffer.rewards[step], rewards, rtol=1e-6)
        following = buffer.episode_starts[step + 1] if step + 1 < model.n_steps else model._last_episode_starts
        np.testing.assert_array_equal(following.astype(bool), is_over)
    assert num_ended
    now, then = env.state(), wrapper_of(model, CentredReward).state()
    assert now.keys() == then.keys()
    for key in now:
        np.testing.assert_array_equal(now[key], then[key], err_msg=key)


def test_values_and_shares_are_those_of_the_network(rollout):
    _, _, model, _ = rollout
    buffer = model.rollout_buffer
    seen = {key: torch.from_numpy(np.concatenate(value)) for key, value in buffer.observations.items()}
    seen["graph_id"] = seen["graph_id"].squeeze(1)
    with torch.no_grad():
        scores, values = model.policy.network(seen)
    log_prob = log_shares(scores).gather(1, torch.from_numpy(np.concatenate(buffer.actions)).long())
    np.testing.assert_allclose(np.concatenate(buffer.values), values.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.concatenate(buffer.log_probs), log_prob.squeeze(1).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("changes", "said"), [(["group_envs=3"], "must divide"), (["group_envs=0"], "group_envs")])
def test_groups_that_do_not_fit_are_refused(config, changes, said):
    with pytest.raises(ConfigError, match=said):
        settings.load(TrainSettings, config, changes=changes)
