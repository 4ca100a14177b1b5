"""The linear part of a network's scores is what compiled code plays by."""

import numpy as np
import pytest
import torch

from meshwright.envs.fleet.batch import FleetBatch
from meshwright.models.fleet.network import FleetActor
from meshwright.models.fleet.saved import player
from meshwright.models.settings import FleetNetworkSettings
from meshwright.planners.fleet.linear_scores import FIRST_WEIGHTS, choose_by_scores, linear_scorer
from meshwright.planners.fleet.rules import fleet_rule
from tests.tiny_fleet import tiny_fleet

DEADLINES = {"deadline": {"low": 1.2, "high": 4.0}, "objective": "blocking_rate"}


@pytest.mark.every(3)
@pytest.mark.parametrize("keys", [{"may_refuse": True, **DEADLINES}, {}])
@pytest.mark.parametrize("placements", [["construct"], ["packed", "spread"]])
def test_the_network_begins_with_what_the_weights_say(keys, placements, tmp_path):
    fleet = tiny_fleet(tmp_path, load=2.0, placements=placements, candidate_features="none", **keys)
    network = FleetActor(FleetNetworkSettings(width=8, rounds=1, linear=True), fleet)
    for head in (network.score, network.pass_score, network.refusal_score):
        if head is not None:
            torch.nn.init.zeros_(head[-1].weight)
            torch.nn.init.zeros_(head[-1].bias)
    rng, kinds = np.random.default_rng(0), set()
    rule, best = fleet_rule("fifo", fleet.problem), player(network)
    for seed in range(2):
        weights = FIRST_WEIGHTS + rng.normal(0, 0.5, len(FIRST_WEIGHTS))
        network.linear.set_direct(weights)
        scorer = linear_scorer(fleet.problem, rule, weights, fleet.mean_duration_s)
        batch = FleetBatch(fleet, 1)
        batch.reset(0, np.random.default_rng(seed))
        while not batch.state.is_over[0]:
            action = choose_by_scores(fleet.problem, batch.state, 0, scorer)
            if batch.state.building[0] < 0:
                seen = {name: torch.as_tensor(array) for name, array in batch.observations._asdict().items()}
                with torch.no_grad():
                    scores = network(seen)[0][0]
                assert scores[action] == pytest.approx(float(scores.max()), abs=1e-3)
                assert scores[best(batch)[0]] == scores.max()
                kinds.add("pass" if action == 0 else "refuse" if action >= fleet.problem.first_refusal else "start")
            batch.step(np.array([action]))
    assert kinds == {"pass", "start", *(["refuse"] if keys else [])}
