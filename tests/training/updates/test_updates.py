"""PPO's updates of a candidate network are those of sb3-contrib, to the order of sums."""

import io

import numpy as np
import pytest
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.logger import Logger

from meshwright import settings
from meshwright.training.curriculum import phases
from meshwright.training.settings import TrainSettings
from meshwright.training.train import _model


@pytest.fixture(scope="module", params=[{}, {"target_kl": 1e-4}, {"max_grad_norm": 0.01}], ids=["plain", "stopped", "clipped"])
def chosen(request, config):
    return settings.load(TrainSettings, config, changes=[f"ppo.{key}={value}" for key, value in request.param.items()])


def learned(chosen, *, by_ours, updates=3):
    """Weights before and after some updates, and what was logged."""
    phase = phases(chosen)[0]
    torch.manual_seed(0)
    model = _model(chosen, phase)
    model.set_logger(Logger(None, []))
    if not by_ours:
        model.train = lambda: MaskablePPO.train(model)
    before = {name: tensor.clone() for name, tensor in model.policy.state_dict().items()}
    model.learn(updates * chosen.ppo.update_steps, use_masking=False)
    logged = {key: value for key, value in model.logger.name_to_value.items() if key.startswith("train/")}
    return before, {name: tensor.clone() for name, tensor in model.policy.state_dict().items()}, logged


@pytest.mark.every(2)
def test_weights_and_figures_are_those_of_sb3_contrib(chosen):
    before, ours, logged = learned(chosen, by_ours=True)
    _, theirs, wanted = learned(chosen, by_ours=False)
    moved = max(float((theirs[name] - before[name]).abs().max()) for name in theirs)
    apart = max(float((theirs[name] - ours[name]).abs().max()) for name in theirs)
    assert moved > 1e-4
    assert apart < 0.01 * moved
    assert logged.keys() == wanted.keys()
    for key, value in wanted.items():
        assert logged[key] == pytest.approx(value, rel=2e-3, abs=1e-5), key


@pytest.mark.parametrize("of_values", [0.0, 0.5])
def test_the_gradient_is_that_of_sb3_contrib_where_ratios_are_clipped(config, of_values):
    """One minibatch of all decisions, by weights that have moved far since they were taken.

    The values' term is large then, so that the others are compared without it too.
    """
    chosen = settings.load(TrainSettings, config)
    model = _model(chosen, phases(chosen)[0])
    model.set_logger(Logger(None, []))
    _, callback = model._setup_learn(1_000)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
    model.n_epochs, model.batch_size, model.max_grad_norm, model.ent_coef = 1, chosen.ppo.update_steps, 1e9, 0.5
    model.vf_coef = of_values
    torch.manual_seed(3)
    with torch.no_grad():
        for weight in model.policy.parameters():
            weight.add_(torch.randn_like(weight))
    begun = {name: tensor.clone() for name, tensor in model.policy.state_dict().items()}
    found = []
    for train in (model.train, lambda: MaskablePPO.train(model)):
        model.policy.load_state_dict(begun)
        train()
        assert model.logger.name_to_value["train/clip_fraction"] > 0.1
        assert model.logger.name_to_value["train/entropy_loss"] < -0.1
        found.append(torch.cat([weight.grad.flatten() for weight in model.policy.parameters() if weight.requires_grad]))
    ours, theirs = found
    assert float((ours - theirs).norm()) < 1e-4 * float(theirs.norm())


@pytest.mark.every(2)
def test_the_same_seed_gives_the_same_bits(chosen):
    _, first, _ = learned(chosen, by_ours=True)
    _, second, _ = learned(chosen, by_ours=True)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_weights_lie_in_one_vector(config):
    chosen = settings.load(TrainSettings, config)
    model = _model(chosen, phases(chosen)[0])
    flat = model._flat_adam()
    with torch.no_grad():
        flat.weights.fill_(0.5)
    assert all((weight == 0.5).all() for weight in model.policy.network.parameters() if weight.requires_grad)
    assert flat.size == sum(weight.numel() for weight in model.policy.parameters() if weight.requires_grad)


@pytest.mark.every(2)
def test_a_saved_optimizer_goes_on_to_the_same_bits(chosen):
    """Weights and moments are parts of vectors; what is saved is each by itself, and another model takes them over."""

    def begun():
        torch.manual_seed(0)
        model = _model(chosen, phases(chosen)[0])
        model.set_logger(Logger(None, []))
        _, callback = model._setup_learn(10_000)
        return model, callback

    def update(model, callback):
        model.collect_rollouts(model.env, callback, model.rollout_buffer, model.n_steps)
        np.random.seed(1)  # noqa: NPY002 - the generator of sb3-contrib
        model.train()

    first, callback = begun()
    update(first, callback)
    saved = {"policy": first.policy.state_dict(), "optimizer": first.policy.optimizer.state_dict()}
    file = io.BytesIO()
    torch.save(saved, file)
    file.seek(0)
    restored = torch.load(file)
    second, _ = begun()
    second.policy.load_state_dict(restored["policy"])
    second.policy.optimizer.load_state_dict(restored["optimizer"])
    first.collect_rollouts(first.env, callback, first.rollout_buffer, first.n_steps)
    second.rollout_buffer = first.rollout_buffer
    second._current_progress_remaining = first._current_progress_remaining
    second.num_timesteps = first.num_timesteps
    for model in (first, second):
        np.random.seed(2)  # noqa: NPY002
        model.train()
    ours, theirs = first.policy.state_dict(), second.policy.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    steps = {float(state["step"]) for state in second.policy.optimizer.state_dict()["state"].values()}
    assert len(steps) == 1
    assert steps.pop() > 1
