"""Rollouts that are collected while weights are updated: one update old, the same whoever plays them, when, and after a kill."""

import os
import signal
import time

import numpy as np
import pytest
import torch

from meshwright import settings
from meshwright.models.masked_policy import log_shares
from meshwright.training.curriculum import phases
from meshwright.training.rollouts import overlap
from meshwright.training.rollouts.group import GroupPlayer, GroupRollout
from meshwright.training.rollouts.grouped import Groups
from meshwright.training.rollouts.overlap import RolloutProcess, SharedRollout, alone, rollout_workers
from meshwright.training.settings import CurriculumPhase, TrainSettings
from meshwright.training.train import _model, train


@pytest.fixture(scope="module")
def chosen(config):
    changes = ["overlap_rollouts=true", "total_steps=256", "checkpoint_every_steps=64", "validate_every_steps=512"]
    return settings.load(TrainSettings, config, changes=changes)


@pytest.fixture(scope="module")
def in_phases(config, chosen):
    """Half of the run on another benchmark."""
    phase = CurriculumPhase(share=0.5, benchmarks=(str(config.parent / "busy.yaml"),))
    return chosen.model_copy(update={"curriculum": (phase,)})


@pytest.fixture(autouse=True)
def one_cpu(monkeypatch):
    """No process is started, unless a test asks for one."""
    monkeypatch.setattr(overlap, "num_cpus", lambda: 1)


@pytest.fixture(scope="module")
def whole(chosen, tmp_path_factory):
    return _here(chosen, tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def whole_in_phases(in_phases, tmp_path_factory):
    return _here(in_phases, tmp_path_factory.mktemp("phases") / "run")


def _here(chosen, folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlap, "num_cpus", lambda: 1)
        return train(chosen, folder).policy.read_bytes()


def test_the_policy_is_another_one_without_it(chosen, whole, tmp_path):
    other = chosen.model_copy(update={"overlap_rollouts": False})
    assert train(other, tmp_path / "run").policy.read_bytes() != whole


def test_the_policy_is_the_same_where_others_play_meanwhile(chosen, whole, tmp_path):
    assert train(chosen, tmp_path / "run", share_out=alone).policy.read_bytes() == whole


@pytest.mark.slow
def test_the_policy_is_the_same_with_a_process_of_its_own_which_is_lost(chosen, whole, tmp_path, monkeypatch):
    begin, waited = RolloutProcess.begin, []

    def begin_after_start(self, play, tasks):
        found = begin(self, play, tasks)
        if self._start is None:
            return found
        self._start.result()
        found = begin(self, play, tasks)
        pool = self._pool
        (worker,) = pool._processes

        def wait():
            if len(waited) == 2:
                os.kill(worker, signal.SIGKILL)
                while not pool._broken:  # it hears of the loss a moment later
                    time.sleep(0.01)
            waited.append(worker)
            return found()

        return wait

    monkeypatch.setattr(overlap, "num_cpus", lambda: 2)
    monkeypatch.setattr(RolloutProcess, "begin", begin_after_start)
    assert train(chosen, tmp_path / "run").policy.read_bytes() == whole
    assert len(waited) == 3


class KilledError(Exception):
    """The process is gone."""


@pytest.mark.parametrize("steps", [128, *(pytest.param(steps, marks=pytest.mark.slow) for steps in (64, 192))])
def test_a_run_goes_on_wherever_it_was_killed(in_phases, whole_in_phases, tmp_path, steps):
    def kill(now):
        if now.steps >= steps:
            raise KilledError

    with pytest.raises(KilledError):
        train(in_phases, tmp_path / "run", progress=kill)
    assert train(in_phases, tmp_path / "run", resume=True).policy.read_bytes() == whole_in_phases


def test_every_rollout_but_the_first_has_the_weights_of_one_update_before(chosen):
    model = _overlapped(chosen)
    newest, tasks = [], []

    def note(play, begun):
        tasks.append(begun[0].weights)
        return lambda: [play(task) for task in begun]

    model.groups = model.groups._replace(begin=note)
    _, callback = model._setup_learn(10_000)
    for _ in range(4):
        newest.append(model._weights())
        assert model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
        for parameter in model.policy.parameters():  # stands in for the update
            parameter.data += 0.01
    for number, wanted in enumerate([0, 0, 1, 2, 3]):
        for name, array in tasks[number].items():
            np.testing.assert_array_equal(array, newest[wanted][name], err_msg=f"{number} {name}")


def test_ratios_are_to_the_probabilities_by_which_actions_were_drawn(chosen):
    model = _overlapped(chosen)
    _, callback = model._setup_learn(10_000)
    assert model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
    behaviour = {name: torch.from_numpy(array) for name, array in model.behaviour.items()}
    for parameter in model.policy.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    newest = {name: tensor.clone() for name, tensor in model.policy.state_dict().items()}
    assert model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
    buffer = model.rollout_buffer
    model.policy.load_state_dict(behaviour)
    np.testing.assert_allclose(buffer.log_probs, _log_probs(model), rtol=1e-4, atol=1e-5)
    model.policy.load_state_dict(newest)
    assert np.abs(buffer.log_probs - _log_probs(model)).max() > 0.01


def _overlapped(chosen):
    played = phases(chosen)
    model = _model(chosen, played[0])
    play = GroupPlayer(chosen, played[0], played[0], None)
    with rollout_workers(None, is_overlapped=True) as begin:
        model.groups = Groups(chosen.group_size(len(played[0].scenarios)), play, begin, is_overlapped=True)
    return model


def _log_probs(model):
    buffer = model.rollout_buffer
    seen = {key: torch.from_numpy(np.concatenate(value)) for key, value in buffer.observations.items()}
    seen["graph_id"] = seen["graph_id"].squeeze(1)
    model.policy.set_training_mode(False)
    with torch.no_grad():
        found = log_shares(model.policy.network(seen)[0]).gather(1, torch.from_numpy(np.concatenate(buffer.actions)).long())
    return found.numpy().reshape(buffer.log_probs.shape)


def test_a_rollout_is_the_same_after_its_way_through_shared_memory():
    rng = np.random.default_rng(0)
    arrays = {f"{size}": rng.random((2, size), np.float32) for size in (1, 7, 16, 333)}
    flags = rng.random((2, 3)) < 0.5
    whole = GroupRollout(arrays, *[flags] * 5, flags[0], flags[1], [[{"l": 3}], [{}]], {"round": np.arange(5)})
    found = SharedRollout.of(whole).unpacked()
    assert found.infos == whole.infos
    for name, array in whole.observations.items():
        np.testing.assert_array_equal(found.observations[name], array)
        assert found.observations[name].ctypes.data % overlap.ALIGNMENT == 0
    np.testing.assert_array_equal(found.starts, flags)
    np.testing.assert_array_equal(found.state["round"], np.arange(5))
