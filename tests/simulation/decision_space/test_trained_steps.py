"""Jobs of the first world that are trained otherwise than synchronously."""

import dataclasses
from itertools import pairwise

import numpy as np
import pytest

from meshwright.clusters.cluster import Cluster
from meshwright.costs.settings import CostSettings
from meshwright.errors import ConfigError, PlanError
from meshwright.jobs import load_graph
from meshwright.plans.compression import Quantise, RandomK
from meshwright.plans.training import TRAININGS, parse_training
from meshwright.settings import build_settings
from meshwright.simulation.cluster.scenario_settings import ScenarioSettings
from meshwright.simulation.decision_space.space import decision_space
from meshwright.simulation.decision_space.splitting import SplitSettings
from meshwright.simulation.decision_space.step_times import step_times
from meshwright.simulation.decision_space.trained_steps import KINDS, GivenTraining

from ...samples.sample_clusters import clos, cluster_of
from ...samples.sample_graphs import dense_layers

COSTS = CostSettings(collectives="ring")
SCENARIO = {"cluster": "preset:ramp-4x4x2", "workload": "preset:quickstart", "num_jobs": 20, "max_degree": 8}
HOST = {
    "name": "host",
    "device": "a100",
    "topology": {"kind": "single-host", "num_devices": 8, "fabric": "switch", "bandwidth_gbytes_per_s": 5, "latency_us": 1},
}


@pytest.fixture(scope="module")
def space():
    return decision_space(Cluster.from_data(HOST), 8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("steps")


@pytest.fixture(scope="module")
def graph(space):
    return load_graph("zoo:vgg16", device=space.cluster.device_types[0])


@pytest.fixture(scope="module")
def times(space, folder, graph):
    def of(training="synchronous", compression=None, costs=COSTS):
        given = GivenTraining(parse_training(training)[0], compression)
        return step_times([graph], space, costs, SplitSettings(), training=given, cache=folder)

    return of


def degrees(space):
    return np.array([len(space.block(block)) for block in space.representative])


def test_one_device_is_trained_as_ever(times, space):
    alone = degrees(space) == 1
    assert (times("kind=diloco,every=100").step_s[0, alone] == times().step_s[0, alone]).all()


@pytest.mark.parametrize(
    "code",
    [Quantise(bits=32, group=None, codec_passes=0, summable=True, error_feedback=False), RandomK(fraction=1, codec_passes=0)],
)
def test_a_code_that_changes_nothing_changes_nothing(times, code):
    np.testing.assert_allclose(times(compression=code).step_s, times().step_s, rtol=1e-9)


def test_an_average_is_worth_less_the_rarer_it_is(times, space):
    many = degrees(space) > 1
    results = [times(f"kind=local-sgd,every={every}").step_s[0, many] for every in (1, 4, 16, 64)]
    assert all((after < before).all() for before, after in pairwise(results))
    # t = C + A / H: what is beyond computation falls by H.
    local_s = (64 * results[3] - 16 * results[2]) / 48
    np.testing.assert_allclose(16 * (results[2] - local_s), 4 * (results[1] - local_s), rtol=1e-6)


def test_a_declared_multiplier_counts_on_every_block_and_shares_do_not_change(times):
    plain = times("kind=local-sgd,every=4")
    twice = times("kind=local-sgd,every=4,multiplier=2,multiplier_source=a test")
    np.testing.assert_allclose(twice.step_s, 2 * plain.step_s, rtol=1e-12)
    np.testing.assert_allclose(twice.communication_share, plain.communication_share, atol=1e-12)
    rarer = times("kind=local-sgd,every=16")
    assert (rarer.communication_share <= plain.communication_share).all()
    assert (rarer.communication_share >= 0).all()


def test_what_a_device_holds_in_addition_counts(space, folder, graph):
    share = (
        float(space.cluster.memory_bytes[0] / graph.parameter_bytes.sum()) / 9
    )  # all that a device holds of a weight takes 8 times its bytes
    huge = dataclasses.replace(graph, parameter_bytes=share * graph.parameter_bytes, activation_bytes=0 * graph.activation_bytes)
    assert step_times([huge], space, COSTS, SplitSettings(), cache=folder).can_run.all()
    given = GivenTraining(parse_training("kind=diloco,every=100")[0])
    trained = step_times([huge], space, COSTS, SplitSettings(), training=given, cache=folder)
    assert (trained.can_run[0] == (degrees(space) == 1)).all()  # who is alone has nothing to average


def test_gossip_runs_where_replicas_can_be_paired_and_hides_a_pair_behind_a_step(times, space):
    many, plain = degrees(space), times()
    ring, exp = (times(f"kind=gossip,topology={topology}") for topology in ("ring", "one-peer-exp"))
    assert (ring.can_run[0] == ((many % 2 == 0) | (many == 1))).all()
    assert (exp.can_run[0] == (many & (many - 1) == 0)).all()
    local_s = plain.step_s[0, many == 1].min()
    paired = (many > 1) & ring.can_run[0]
    assert (ring.step_s[0, paired] <= plain.step_s[0, paired]).all()
    assert (ring.step_s[0, paired] < local_s).all()  # a replica has a share of the samples


def test_a_mask_of_ones_changes_nothing_and_a_narrow_core_helps_a_device_by_itself_too(times, space):
    cycle = "core_steps=3,full_steps=1"
    whole, narrow = (times(f"kind=masked,core=width:{width},{cycle}") for width in ("1", "0.5"))
    np.testing.assert_allclose(whole.step_s, times().step_s, rtol=1e-9)
    np.testing.assert_allclose(whole.communication_share, times().communication_share, atol=1e-9)
    assert (narrow.step_s < whole.step_s).all()
    alone = degrees(space) == 1
    assert (narrow.communication_share[0, alone] <= 1e-9).all()


@pytest.fixture(scope="module")
def served(folder):
    hosts = decision_space(cluster_of(clos(4, 2)), 8)
    vgg16 = load_graph("zoo:vgg16", device=hosts.cluster.device_types[0])
    dense = dense_layers(3, 1e6, 4e7, samples_per_step=64)

    def of(training="synchronous", job="vgg16"):
        given = GivenTraining(parse_training(training)[0])
        times = step_times([{"vgg16": vgg16, "dense": dense}[job]], hosts, COSTS, SplitSettings(), training=given, cache=folder)
        return times.step_s[0], times.can_run[0], hosts

    return of


def test_servers_worked_by_hand(served):
    # A worker computes its share of the samples in C / n and needs r for its gradients to the server and back, all bytes of
    # VGG-16 by one card of 10 GB/s. One server's card takes the workers one after the other.
    plain, _, hosts = served()
    asp, can_run, _ = served("kind=asp,servers=1")
    wide, _, _ = served("kind=asp,servers=4")
    counts, alone_s = degrees(hosts), plain[degrees(hosts) == 1].min()
    way_s = 2 * load_graph("zoo:vgg16").parameter_bytes.sum() / 10e9
    for n in (2, 4, 8):
        at = (counts == n) & can_run
        spread = [len(set(hosts.cluster.device_host[hosts.block(b)])) for b in hosts.representative[at]]
        carrying = np.minimum(4, np.array(spread))
        # two workers of a host share its card; the simulated synchronous step is longer than the closed form by less than 3 %
        np.testing.assert_allclose(asp[at], np.maximum(alone_s / n + way_s, n * way_s), rtol=0.05)
        np.testing.assert_allclose(wide[at], np.maximum(alone_s / n + way_s, n * way_s / carrying), rtol=0.05)
    assert (asp[counts == 1] == plain[counts == 1]).all()


def test_who_may_be_further_ahead_is_no_slower(served):
    result = [served(f"kind=ssp,staleness={staleness},servers=4")[0] for staleness in (0, 1, 8)] + [
        served("kind=asp,servers=4")[0]
    ]
    assert all((after <= before * (1 + 1e-9)).all() for before, after in pairwise(result))


def test_subnets_of_dense_layers_send_less_and_others_are_refused(served):
    plain, _, hosts = served(job="dense")
    many = degrees(hosts) > 1
    often, rarely = (served(f"kind=ist,every={every}", job="dense")[0] for every in (1, 16))
    assert (rarely[many] < often[many]).all()
    assert (rarely[many] < plain[many]).all()
    assert (rarely[~many] == plain[~many]).all()
    with pytest.raises(PlanError, match="deals the neurons of chains of dense layers"):
        served("kind=ist,every=4")


def test_one_host_has_no_other_to_send_to(times):
    with pytest.raises(PlanError, match="sends to a host outside the job's, and the cluster has one"):
        times("kind=asp")


@pytest.mark.parametrize("kind", [kind for kind in TRAININGS if kind not in KINDS])
def test_kinds_that_a_scenario_does_not_take_are_told(kind):
    keys = {"local-update": {"preset": "dfa", "force": True}}[kind]
    with pytest.raises(ConfigError, match=f"kind={kind} is no choice of a scenario.*it takes synchronous, local-sgd"):
        build_settings(ScenarioSettings, {**SCENARIO, "training": {"kind": kind, **keys}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"kind": "diloco", "every": 10}, "splitting": {"rule": "sip-ml"}}, "training: wants whole replicas"),
        ({"compression": {"kind": "sign"}, "splitting": {"rule": "sip-ml"}}, "compression: wants whole replicas"),
        (
            {"training": {"kind": "diloco", "every": 10}, "compression": {"kind": "sign"}},
            "goes with training of kind synchronous",
        ),
        ({"training": {"kind": "diloco", "every": 10}, "semantics": {"kind": "pacml"}}, "training: the semantics pacml"),
    ],
)
def test_what_does_not_go_together_is_told(changes, message):
    with pytest.raises(ConfigError, match=message):
        build_settings(ScenarioSettings, SCENARIO | changes)


def test_a_scenario_without_them_is_dumped_as_ever():
    plain = build_settings(ScenarioSettings, SCENARIO)
    assert not {"training", "compression"} & set(plain.model_dump()) | {"training", "compression"} & set(plain.to_digest())
    given = build_settings(ScenarioSettings, SCENARIO | {"training": {"kind": "local-sgd", "every": 4}})
    assert given.to_digest() != plain.to_digest()
