"""A decision on an empty cluster without an episode is an episode's first one, to the last bit."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from meshwright.jobs.arrivals import Arrivals
from meshwright.simulation.cluster.decision import can_decide_on_empty, decision, decision_on_empty

from ..samples import small_scenario


def same(ours, theirs):
    for name, value in asdict(theirs).items():
        if name != "occupancy":
            np.testing.assert_array_equal(getattr(ours, name), value, err_msg=name)
    for name, value in asdict(theirs.occupancy).items():
        np.testing.assert_array_equal(getattr(ours.occupancy, name), value, err_msg=name)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cluster": "preset:clos-64-4to1", "max_degree": 16, "placement_rules": ("aligned", "fastest", "best-fit")},
        {"cluster": "preset:ramp-4x4x4", "queue_capacity": 3, "failures": {"mean_time_between_failures_h": 1000.0}},
    ],
)
def test_it_is_what_an_episode_shows_first(changes):
    scenario = small_scenario(**changes)
    assert can_decide_on_empty(scenario)
    rng = np.random.default_rng(0)
    for graph_id in (0, 1):
        sequential_s = scenario.problem.sequential_step_s[graph_id]
        for fraction in (np.inf, *rng.uniform(0.02, 1.2, 8)):
            num_steps = int(rng.integers(1, 200_000))
            episodes = scenario.new_episodes(1)
            num = scenario.settings.num_jobs + 1
            jobs = np.zeros(num), np.full(num, graph_id), np.full(num, num_steps), np.full(num, fraction)
            scenario.reset(episodes, 0, Arrivals(*jobs), 7)
            allowed_s = float(fraction * (num_steps * sequential_s))
            ours = decision_on_empty(scenario, graph_id, num_steps, allowed_s)
            theirs = decision(scenario, episodes, 0)
            assert ours.occupancy.num_left == 1
            ours.occupancy.__dict__["num_left"] = theirs.occupancy.num_left
            same(ours, theirs)


def test_rules_of_several_blocks_and_the_published_semantics_are_for_episodes_alone():
    assert not can_decide_on_empty(small_scenario(placement_rules=("first-fit", "all-blocks")))
    assert not can_decide_on_empty(replace(small_scenario(), simulator=object()))
