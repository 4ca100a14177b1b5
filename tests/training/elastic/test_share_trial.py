"""The costs of weights of elastic shares, and that their last digits change nothing."""

import numpy as np

from meshwright.planners.elastic.saved_shares import SHARE_RULES
from meshwright.planners.elastic.scheduler import play
from meshwright.training.elastic.search import ShareTrial
from tests.elastic_samples import simulation_of, workload, write_applications

JOBS = [(0, 1, 1, 64), (0, 0, 1, 64), (60, 1, 1, 64), (90, 1, 1, 64), (90, 1, 1, 64)]


def test_weights_cost_their_mean_completion_time_over_that_by_hand_whatever_their_last_digits(tmp_path):
    simulation, rule = simulation_of(write_applications(tmp_path / "applications")), SHARE_RULES["shortest-remaining"]
    training, validation = [[workload(JOBS), workload(JOBS[:3])], [workload([(30, 0, 1, 64)])]], [[workload(JOBS[1:])]]
    trial, rng = ShareTrial("shortest-remaining", simulation, training, validation), np.random.default_rng(0)
    weights = trial.start + rng.normal(0, 0.5, (3, len(trial.start))).round(6)

    def means_s(scheduler, batches):
        return np.array([spans.mean() for each in batches for spans in play(simulation, scheduler, each)])

    by_hand = means_s(rule.scheduler(rule.by_hand), training)
    expected = [(means_s(rule.scheduler(each.tolist()), training) / by_hand).mean() for each in weights]
    assert trial.costs(weights, 0, rng).tolist() == expected
    assert trial.costs(weights + 1e-8 * rng.normal(size=weights.shape), 0, rng).tolist() == expected
    assert trial.costs(trial.start[None], 0, rng).tolist() == [1.0]
    assert trial.value(weights[0]) == means_s(rule.scheduler(weights[0].tolist()), validation).mean()
