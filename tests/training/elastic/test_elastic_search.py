"""The search for weights of elastic shares, and the run folder that it leaves."""

import json

import numpy as np
import pytest

from meshwright.errors import CheckpointError
from meshwright.planners.elastic.saved_shares import SavedShares
from meshwright.planners.elastic.scheduler import play
from meshwright.training.elastic import search, train
from meshwright.training.elastic.search import ElasticSearch
from meshwright.training.elastic.settings import ElasticTrainSettings
from meshwright.training.linear.populations import CovarianceAdaptation

from ...elastic_samples import simulation_of, workload, write_applications

JOBS = [(0, 1, 1, 64), (0, 0, 1, 64), (60, 1, 1, 64), (90, 1, 1, 64), (90, 1, 1, 64)]
CHOSEN = ElasticTrainSettings(name="tiny", benchmark="small.yaml", generations=2, population=4, validate_every_generations=1)


@pytest.fixture(scope="module")
def simulation(tmp_path_factory):
    return simulation_of(write_applications(tmp_path_factory.mktemp("elastic") / "applications"))


def searched(simulation, chosen=CHOSEN):
    training = [[workload(JOBS), workload(JOBS[:3])], [workload([(30, 0, 1, 64)])]]
    return ElasticSearch(chosen, simulation, training, [[workload(JOBS[1:])]])


def run(made):
    made.run(lambda: None)
    return made


@pytest.fixture(scope="module")
def whole(simulation):
    """A search that was never interrupted."""
    return run(searched(simulation))


def figures(made):
    return made.best, made.mean.tolist(), [{**row, "elapsed_s": None} for row in made.curve]


def test_a_seed_is_a_search(simulation, whole):
    first, again, other = whole, *(run(searched(simulation, CHOSEN.model_copy(update={"seed": s}))) for s in (CHOSEN.seed, 4))
    assert figures(first) == figures(again)
    assert first.mean.tolist() != other.mean.tolist()
    assert [row["generation"] for row in first.curve] == [0, 1, 2]
    # What is kept is what played best on the validation workloads.
    (spans,) = play(simulation, first.saved({}).scheduler(), [workload(JOBS[1:])])
    assert (
        spans.mean()
        == first.best["validation_mean_completion_s"]
        == min(row["validation_mean_completion_s"] for row in first.curve)
    )


def test_the_last_digits_of_linear_algebra_change_no_weight(simulation, whole, monkeypatch):
    class OtherProcessor(CovarianceAdaptation):
        def draw(self, rng):
            drawn = super().draw(rng)
            return drawn * (1.0 + 1e-14 * np.random.default_rng(0).standard_normal(drawn.shape))

    monkeypatch.setattr(search, "CovarianceAdaptation", OtherProcessor)
    there = run(searched(simulation))
    assert figures(there) == figures(whole)


def test_a_search_that_was_interrupted_ends_as_one_that_was_not(simulation, whole, tmp_path):
    begun = searched(simulation)
    with pytest.raises(KeyboardInterrupt):
        begun.run(lambda: interrupt(begun))
    train.write_checkpoint(begun, tmp_path / "checkpoint.json", "key")
    resumed = searched(simulation)
    train.restore(resumed, tmp_path / "checkpoint.json", "key")
    assert figures(run(resumed)) == figures(whole)
    with pytest.raises(CheckpointError, match="belongs to another config"):
        train.restore(searched(simulation), tmp_path / "checkpoint.json", "other")


def interrupt(begun):
    if begun.generation == 1:
        raise KeyboardInterrupt


def test_saved_shares_are_read_as_written(simulation, tmp_path):
    made = searched(simulation)
    made.run(lambda: made.saved({"config": "tiny"}).save(tmp_path / "policy.json"))
    found = SavedShares.load(tmp_path / "policy.json")
    assert found.weights.tolist() == made.best["weights"]
    assert (found.rule, found.trained["config"], found.trained["seed"]) == ("shortest-remaining", "tiny", 0)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("kind", "linear scorer", "is no policy of elastic shares of version 1"),
        ("rule", "shortest", "rule: no such rule (got 'shortest'); did you mean 'shortest-remaining'?"),
        ("weights", {"size": 1.0}, "weights: the weight is missing"),
        ("weights", [1.0], "weights: must be a mapping"),
        ("trained", None, "trained: must be a mapping"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path, key, value, told):
    path = tmp_path / "policy.json"
    SavedShares("shortest-remaining", np.zeros(12)).save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(CheckpointError) as error:
        SavedShares.load(path)
    assert told in str(error.value)
