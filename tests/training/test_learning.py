"""The learning check: on the shipped toy, whose optimum is known, training reaches it and nothing simpler does.

The toy has four devices. A job arrives every 1100 s. Seconds of a job of 100,000 steps:

    devices         1       2       4
    squeezenet      -    1394     732     too big for the memory of one device
    resnet18     3071    1571    1490
    alexnet       843    4231    6203

The optimum turns no job away, which no policy can beat. It gives two devices to squeezenet and resnet18 and one to
alexnet. Each job then ends within 2 x 1100 s. So when a job arrives, at most the one before it still runs. That one lies
within one half of the host ({0, 1} or {2, 3}), and the other half is free.

Every choice but that one costs jobs:
- resnet18 on one device (as min and cheapest-feasible have it) stays for three arrivals. Two of them on devices of both
  halves, or one of them and a job in the other half, leave no pair free.
- resnet18 on four devices (fastest-feasible, max) stays beyond the next arrival, which finds nothing free.
- alexnet on two devices (fixed-2) stays for four arrivals, on four devices (max) for six.
- squeezenet does not run on one device (fixed-1), and on four only where all are free.
"""

import itertools
import json

import numpy as np
import pytest
import torch

from meshwright import settings
from meshwright.envs.batch import EpisodeBatch
from meshwright.envs.benchmark import load_benchmark
from meshwright.envs.static_features import static_features
from meshwright.models.network import CandidateNetwork
from meshwright.models.saved import NetworkPolicy, SavedNetwork
from meshwright.packaged import config_path
from meshwright.planners.rules import rule_of_thumb
from meshwright.simulation.cluster.decision import decision
from meshwright.training.methods import train
from meshwright.training.settings import TrainSettings

from ..draws import FACTOR

SEEDS = range(10 if FACTOR <= 1 else 20)
SQUEEZENET, RESNET18, ALEXNET = range(3)
RULES = ("random", "max", "min", "cheapest-feasible", "fastest-feasible", "fixed-1", "fixed-2", "fixed-4")


@pytest.fixture(scope="module")
def toy():
    return load_benchmark("preset:toy").build()


# The shipped config learns in small steps; with greater ones, and more of them, a third of its decisions is enough.
SOONER = (
    "total_steps=12288",
    "validate_every_steps=2048",
    "ppo.learning_rate=5e-3",
    "ppo.rollout_steps=16",
    "ppo.minibatch=128",
    "ppo.epochs=3",
)
AS_SHIPPED = pytest.param((), id="as shipped", marks=pytest.mark.slow)


@pytest.fixture(scope="module", params=[AS_SHIPPED, pytest.param(SOONER, id="sooner")])
def run(tmp_path_factory, toy, request):
    config = settings.load(TrainSettings, config_path("preset:toy"), changes=request.param)
    return train(config, tmp_path_factory.mktemp("toy") / "run", scenario=toy)


class ByGraph:
    """A number of devices for each graph, zero to turn it away."""

    observes = False

    def __init__(self, degrees):
        self.degrees = degrees

    def reset(self, seed):
        pass

    def choose(self, at, observation):
        return next((int(c) for c in at.offered("first-fit") if at.degree[c] == self.degrees[at.graph_id]), 0)


def turned_away(policy, scenario, seeds=SEEDS):
    """Jobs turned away in each test episode, and the degrees that the placed ones of each graph were given."""
    counts, options = [], {graph_id: set() for graph_id in range(3)}
    for seed in seeds:
        batch = EpisodeBatch(scenario, 1, observes=getattr(policy, "observes", True))
        batch.reset(0, np.random.default_rng(seed))
        policy.reset(seed)
        for _ in range(scenario.settings.num_jobs):
            observation = {key: value[0] for key, value in batch.observations.current().items()}
            batch.step(np.array([policy.choose(decision(scenario, batch.episodes, 0), observation)]))
        record = batch.record(0)
        counts.append(int((~record.is_accepted).sum()))
        for graph_id, degree in zip(record.graph_id.tolist(), record.degree.tolist(), strict=True):
            options[graph_id] |= {degree} - {0}
    return counts, options


def test_the_times_are_those_of_the_table(toy):
    assert [graph.name for graph in toy.workload.graphs] == ["squeezenet", "resnet18", "alexnet"]
    assert toy.space.degrees == (1, 2, 4)
    assert toy.times.can_run.tolist() == [[False, True, True], [True, True, True], [True, True, True]]
    seconds = np.round(1e5 * toy.times.step_s)
    assert seconds[SQUEEZENET, 1:].tolist() == [1394, 732]
    assert seconds[RESNET18].tolist() == [3071, 1571, 1490]
    assert seconds[ALEXNET].tolist() == [843, 4231, 6203]
    assert toy.workload.mean_interarrival_s == 1100
    # Each graph comes often enough to matter in every test episode.
    for seed in SEEDS:
        assert (np.bincount(toy.workload.sample(np.random.default_rng(seed), 60).graph_id, minlength=3) >= 3).all()


def test_of_all_fixed_choices_by_graph_only_the_optimum_turns_no_job_away(toy):
    def is_perfect(degrees):
        return all(turned_away(ByGraph(degrees), toy, [seed])[0] == [0] for seed in SEEDS)

    perfect = [degrees for degrees in itertools.product((0, 1, 2, 4), repeat=3) if is_perfect(degrees)]
    assert perfect == [(2, 2, 1)]


@pytest.mark.parametrize("name", RULES)
def test_every_rule_of_thumb_turns_jobs_away(toy, name):
    policy = rule_of_thumb(name, degrees=toy.space.degrees, placements=toy.settings.placement_rules)
    counts, _ = turned_away(policy, toy)
    # 60 jobs in each episode; the best of these rules (min) turns away 5 in an average one.
    assert sum(count > 0 for count in counts) >= len(SEEDS) - 1
    assert sum(counts) > 3 * len(SEEDS)


def test_training_reaches_the_optimum(toy, run):
    counts, given = turned_away(NetworkPolicy("trained", SavedNetwork.load(run.policy), toy), toy)
    assert counts == [0] * len(SEEDS)
    # It found the reason, too: never four devices for resnet18 or more than one for alexnet.
    assert 4 not in given[RESNET18]
    assert given[ALEXNET] == {1}


def test_no_untrained_network_comes_near_the_optimum(toy):
    widths = settings.load(TrainSettings, config_path("preset:toy")).network
    for seed in range(1 if FACTOR <= 1 else 4):
        torch.manual_seed(seed)
        network = CandidateNetwork(widths, static_features(toy))
        counts, _ = turned_away(NetworkPolicy("untrained", SavedNetwork.from_network(network, {}), toy), toy, SEEDS[:4])
        assert min(counts) > 5


def test_the_learning_curve_falls_to_zero(run):
    curve = json.loads(run.learning_curve.read_text())
    assert curve[0]["validation_blocking_rate"] > 0.2
    assert [row["validation_blocking_rate"] for row in curve[-3:]] == [0.0, 0.0, 0.0]
    # While it learns it tries things out; in the end it hardly does.
    assert curve[1]["training_blocking_rate"] > 0.3
    assert curve[-1]["training_blocking_rate"] < 0.01
