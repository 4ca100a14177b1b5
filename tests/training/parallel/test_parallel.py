"""PPO by two workers: the gradients of one process, and the same bits whoever does a share, after a kill and after a loss."""

import os
import signal
import time

import numpy as np
import pytest
import torch
from stable_baselines3.common.logger import Logger

from meshwright import settings
from meshwright.errors import ConfigError, LostWorkerWarning
from meshwright.models.offered import Offered
from meshwright.training import checkpoint
from meshwright.training.curriculum import phases
from meshwright.training.parallel import ppo
from meshwright.training.parallel.ppo import workers_of
from meshwright.training.parallel.workers import LearningWorkers
from meshwright.training.rollouts.choosing import chooser, quick_chooser, tensors
from meshwright.training.rollouts.group import GroupPlayer
from meshwright.training.rollouts.grouped import Groups
from meshwright.training.rollouts.overlap import alone
from meshwright.training.settings import TrainSettings
from meshwright.training.train import _model, train
from meshwright.training.updates.gradient import CollectedDecisions, PPOGradient, Weights


@pytest.fixture(scope="module")
def chosen(config):
    changes = ["num_workers=2", "total_steps=256", "checkpoint_every_steps=64", "validate_every_steps=512", "staggered=true"]
    return settings.load(TrainSettings, config, changes=changes)


@pytest.fixture(autouse=True)
def in_one_process(monkeypatch):
    """No process is started, unless a test asks for one."""
    monkeypatch.setattr(ppo, "num_processes", lambda number: 0)


@pytest.fixture(scope="module")
def whole(chosen, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ppo, "num_processes", lambda number: 0)
        return learned(chosen, tmp_path_factory.mktemp("whole") / "run")


def learned(chosen, folder, **options):
    """All that the run has learned, as a hash."""
    saved = checkpoint.load(train(chosen, folder, **options).checkpoint)
    return checkpoint.digest_of({key: saved[key] for key in ("policy", "optimizer", "numpy_generator", "episodes")})


class KilledError(Exception):
    """The process is gone."""


@pytest.mark.parametrize("size", [2, 7, 64])
def test_the_gradient_is_that_of_one_process(chosen, size):
    """Of minibatches of any size, also where a worker has none of the decisions."""
    played = phases(chosen)
    model = _model(chosen, played[0])
    model.set_logger(Logger(None, []))
    rng, weights = np.random.default_rng(0), Weights(0.2, 0.01, 0.5)
    with workers_of(model, 2) as begin:
        model.groups = Groups(chosen.group_size(1), GroupPlayer(chosen, played[0], played[0], None), begin)
        _, callback = model._setup_learn(1_000)
        assert model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
        with torch.no_grad():  # far from what collected them, so that ratios are clipped
            for weight in model.policy.parameters():
                weight.add_(0.3 * torch.randn_like(weight))
        num, differentiate = model._gradients(model.policy.network, weights)
        shares = [model.workers._here[number]._update[1] for number in range(2)]
        assert len(shares) * len(shares[0].actions) == num == chosen.ppo.update_steps
        plain, gradient = PPOGradient(model.policy.network), model.workers.flat.gradient
        for _ in range(5):
            rows = torch.from_numpy(rng.permutation(num)[:size])
            figures, ours = differentiate(rows), gradient.clone()
            gradient.zero_()
            wanted = plain.add(_joined(shares), rows, weights)
            assert float(gradient.norm()) > 1e-3
            assert float((ours - gradient).norm()) <= 1e-6 * float(gradient.norm())
            np.testing.assert_allclose(figures, wanted, rtol=1e-5, atol=1e-7)


def _joined(shares):
    """The decisions of two shares as those of one process."""
    first, second = (share.seen for share in shares)

    def join(one, other):
        return {key: torch.cat([one[key], other[key]], dim=1 if one[key].dim() == 3 else 0) for key in one}

    ids = torch.cat([first.sample, second.sample + len(first.count)])
    seen = Offered(
        join(first.states, second.states),
        join(first.rows, second.rows),
        torch.cat([first.count, second.count]),
        ids,
        torch.cat([first.candidate, second.candidate]),
        first.num_candidates,
    )
    return CollectedDecisions(seen, *(torch.cat(both) for both in list(zip(*shares, strict=True))[1:]))


def test_it_is_not_the_result_of_one_worker_whose_actions_are_other_ones(chosen, whole, tmp_path):
    assert learned(chosen.model_copy(update={"num_workers": 1}), tmp_path / "run") != whole


@pytest.mark.parametrize("steps", [pytest.param(64, marks=pytest.mark.slow), 128])
def test_a_run_goes_on_where_it_was_killed(chosen, whole, tmp_path, steps):
    def kill(now):
        if now.steps >= steps:
            raise KilledError

    with pytest.raises(KilledError):
        train(chosen, tmp_path / "run", progress=kill)
    assert learned(chosen, tmp_path / "run", resume=True) == whole


@pytest.mark.parametrize("is_lost_in", [pytest.param("play", marks=pytest.mark.slow), "differentiate"])
def test_it_is_the_same_with_a_process_which_is_lost(chosen, whole, tmp_path, monkeypatch, is_lost_in):
    """In the second rollout, or in the midst of the second update."""
    started, asked = [], []
    play, answer = LearningWorkers.play, LearningWorkers._answer

    def play_when_ready(self, player, tasks):
        found = play(self, player, tasks)
        (process,) = self._processes.values() or [None]
        if not started:
            started.append(process.process_id)
            while not process.is_ready():
                time.sleep(0.01)
        return found

    def lose(self, worker, call, argument):
        asked.append(call)
        if asked.count(is_lost_in) == (1 if is_lost_in == "play" else 3) and self._processes:
            os.kill(started[0], signal.SIGKILL)
        return answer(self, worker, call, argument)

    monkeypatch.setattr(ppo, "num_processes", lambda number: 1)
    monkeypatch.setattr(LearningWorkers, "play", play_when_ready)
    monkeypatch.setattr(LearningWorkers, "_answer", lose)
    told = r"^worker 1 \(process \d+\) has ended before its time; the run goes on without it$"
    with pytest.warns(LostWorkerWarning, match=told):
        assert learned(chosen, tmp_path / "run") == whole
    assert asked.count("play") >= 1
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


def test_workers_and_other_processes_are_not_both_asked_for(chosen, tmp_path):
    with pytest.raises(ConfigError, match="leave out --jobs and --ray, or set num_workers=1"):
        train(chosen, tmp_path / "run", share_out=alone)
    assert not (tmp_path / "run").exists()


def test_both_ways_of_drawing_have_the_same_probabilities(chosen):
    """Of 4,000 draws, 200 at a time, each candidate's share is within four standard errors of its probability."""
    phase = phases(chosen)[0]
    model = _model(chosen, phase)
    with torch.no_grad():
        for weight in model.policy.parameters():
            weight.mul_(3.0)
    seen = {name: np.repeat(values, 200, axis=0) for name, values in phase.env(chosen).reset().items()}
    for draw in (chooser(model.policy.network, 0), quick_chooser(model.policy.network, 0)):
        with torch.no_grad():
            wanted, values = model.policy.network(tensors(seen))
        log_share = torch.log_softmax(wanted, dim=1).numpy()
        counts = np.zeros_like(log_share)
        for _ in range(20):
            actions, found, log_probs = draw(seen)
            counts[np.arange(len(actions)), actions] += 1
        np.testing.assert_allclose(found, values, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(log_probs, log_share[np.arange(len(actions)), actions], rtol=1e-5, atol=1e-6)
        share, counts = np.exp(log_share[::200]), counts.reshape(-1, 200, counts.shape[1]).sum(axis=1)
        assert np.all(np.abs(counts / 4_000 - share) <= 4 * np.sqrt(share * (1 - share) / 4_000) + 1e-9)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (["num_workers=3"], r"ppo.num_envs \(4\) must be a multiple of num_workers \(3\)"),
        (["num_workers=2", "group_envs=4"], r"group_envs \(4\) must divide the environments of each worker \(2\)"),
        (["num_workers=2", "overlap_rollouts=true"], "exclude each other"),
        (["num_workers=2", "device=cuda"], "needs device: cpu, not cuda"),
    ],
)
def test_what_workers_cannot_share_out_is_refused(config, changes, problem):
    with pytest.raises(ConfigError, match=problem):
        settings.load(TrainSettings, config, changes=changes)
