"""Runs on a GPU, where there is one: the same numbers again and after being killed, and policies that any machine plays."""

import pytest
import torch

from meshwright import settings
from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.static_features import static_features
from meshwright.models.saved import SavedNetwork
from meshwright.models.tensor_file import load_tensors
from meshwright.training.methods import train
from meshwright.training.settings import TrainSettings
from meshwright.training.train import blocking_rate

from .runs import WITH_PRIOR, KilledError, Recorder, begun_earlier, curve, reaches, same_run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")

KINDS = {"ppo": (), "search": WITH_PRIOR}


@pytest.fixture(scope="module", params=KINDS)
def chosen_here(request, config):
    return settings.load(TrainSettings, config, changes=["device=cuda", *KINDS[request.param]])


@pytest.fixture(scope="module")
def whole_here(chosen_here, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    train(chosen_here, folder)
    return folder


def test_the_same_seed_gives_the_same_run_on_a_gpu(whole_here, chosen_here, tmp_path):
    train(chosen_here, tmp_path / "run")
    same_run(tmp_path / "run", whole_here)


@pytest.mark.parametrize("steps", [64, 448])
def test_a_run_on_a_gpu_goes_on_wherever_it_was_interrupted(whole_here, chosen_here, tmp_path, steps):
    with pytest.raises(KilledError):
        train(chosen_here, tmp_path / "run", callbacks=[Recorder(kills=reaches(steps))])
    begun_earlier(tmp_path / "run")
    train(chosen_here, tmp_path / "run", resume=True)
    same_run(tmp_path / "run", whole_here)


def test_what_was_trained_on_a_gpu_reaches_its_figure_on_a_cpu(whole_here, chosen_here):
    stored = SavedNetwork.load(whole_here / "policy.pt")
    assert all(weights.device.type == "cpu" for weights in load_tensors(whole_here / "policy.pt")["weights"].values())
    played = load_benchmark(chosen_here.benchmark, changes=chosen_here.changes).build()
    result = blocking_rate(stored.network(static_features(played)), played, chosen_here.num_validation_seeds, stored.prior)
    assert result == stored.trained["validation_blocking_rate"]


def test_a_run_that_lost_its_gpu_goes_on_without_one(chosen_here, tmp_path, monkeypatch):
    choice = chosen_here.model_copy(update={"device": "auto"})
    with pytest.raises(KilledError):
        train(choice, tmp_path / "run", callbacks=[Recorder(kills=reaches(448))])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    begun_earlier(tmp_path / "run")
    train(choice, tmp_path / "run", resume=True)
    assert curve(tmp_path / "run")[-1]["steps"] >= choice.total_steps
