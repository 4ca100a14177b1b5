"""The policy network: what it must not depend on, and what it keeps."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from meshwright.envs.static_features import static_features
from meshwright.models.encoders import GraphEncoder, SetEncoder
from meshwright.models.network import NOT_OFFERED, CandidateNetwork
from meshwright.models.settings import NetworkSettings

from ..draws import draws
from .scenarios import set_scenario

CANDIDATE_KEYS = ("candidates", "candidate_slots", "action_mask")


def test_scores_stand_where_candidates_are_offered(network, observations, quickstart):
    seen = observations(quickstart)
    scores, values = network(seen)
    assert scores.shape == seen["action_mask"].shape
    assert values.shape == (6,)
    assert ((scores == NOT_OFFERED) == (seen["action_mask"] == 0)).all()
    assert (seen["action_mask"] == 0).any()
    assert scores[seen["action_mask"] > 0].unique().numel() > 6


@draws(4)
@given(seed=st.integers(0, 1000))
def test_permuting_candidates_permutes_scores(quickstart, observations, seed):
    torch.manual_seed(0)
    network = CandidateNetwork(NetworkSettings(hidden=16, graph_hidden=8), static_features(quickstart))
    seen = observations(quickstart)
    order = torch.as_tensor(np.random.default_rng(seed).permutation(seen["action_mask"].shape[1]))
    with torch.no_grad():
        scores, values = network(seen)
        permuted, same = network({key: value[:, order] if key in CANDIDATE_KEYS else value for key, value in seen.items()})
    torch.testing.assert_close(permuted, scores[:, order])
    torch.testing.assert_close(same, values)


def test_permuting_devices_changes_nothing(network, observations, quickstart):
    seen = observations(quickstart)
    order = torch.randperm(seen["devices"].shape[1])
    with torch.no_grad():
        before, after = network(seen), network(seen | {"devices": seen["devices"][:, order]})
    torch.testing.assert_close(before, after)


def test_samples_do_not_see_each_other(network, observations, quickstart):
    seen = observations(quickstart)
    with torch.no_grad():
        together = network(seen)[0]
        for e in range(6):
            alone = network({key: value[e : e + 1] for key, value in seen.items()})[0]
            torch.testing.assert_close(alone[0], together[e])


def test_what_is_not_offered_does_not_matter(network, observations, quickstart):
    seen = observations(quickstart)
    hidden = seen["action_mask"] == 0
    changed = seen | {"candidates": seen["candidates"].clone(), "candidate_slots": seen["candidate_slots"].clone()}
    changed["candidates"][hidden] = 0.7
    changed["candidate_slots"][hidden] = 0.7
    with torch.no_grad():
        torch.testing.assert_close(network(changed), network(seen), rtol=0, atol=0)


@pytest.mark.parametrize("key", ["job", "cluster", "cluster_slots", "devices", "candidates", "candidate_slots", "graph_id"])
def test_every_part_of_an_observation_matters(network, observations, quickstart, key):
    seen = observations(quickstart)
    changed = (seen[key] + 1) % 5 if key == "graph_id" else 1 - seen[key]
    with torch.no_grad():
        assert not torch.allclose(network(seen)[0], network(seen | {key: changed})[0])


def test_gradients_reach_every_weight_and_are_finite(network, observations, quickstart):
    scores, values = network(observations(quickstart))
    (torch.log_softmax(scores, dim=1)[:, 0].sum() + values.sum()).backward()
    for name, weight in network.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name
        assert weight.grad.any(), name


def test_one_network_serves_other_devices_degrees_rules_and_graphs(network, observations, quickstart, toy):
    weights = {name: weight.clone() for name, weight in network.state_dict().items()}
    for scenario, num_graphs in ((toy, 3), (quickstart, 5)):
        set_scenario(network, static_features(scenario))
        with torch.no_grad():
            scores = network(observations(scenario))[0]
            assert network.graph_embeddings().shape[0] == num_graphs
        assert scores.shape == (6, scenario.problem.num_candidates)
    for name, weight in network.state_dict().items():
        assert torch.equal(weight, weights[name])


# --- what is kept ---


def test_kept_embeddings_equal_computed_ones(network):
    with torch.no_grad():
        first = network.graph_embeddings()
        assert network.graph_embeddings() is first
    torch.testing.assert_close(network.graph_embeddings(), first, rtol=0, atol=0)
    assert network.graph_embeddings().requires_grad


def step_of_an_optimizer(network):
    optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
    network.graph_embeddings().sum().backward()
    optimizer.step()


def other_weights(network):
    network.load_state_dict({name: weight + 0.5 for name, weight in network.state_dict().items()})


def another_kind_of_number(network):
    network.double()
    network.static.double()


def behind_its_back(network):
    network.graph_encoder.read.weight.data += 0.5
    network.forget()


@pytest.mark.parametrize("change", [step_of_an_optimizer, other_weights, another_kind_of_number, behind_its_back])
def test_kept_embeddings_are_dropped_when_the_weights_change(network, change):
    with torch.no_grad():
        before = network.graph_embeddings()
    change(network)
    with torch.no_grad():
        after = network.graph_embeddings()
    assert after is not before
    torch.testing.assert_close(after, network.graph_embeddings())
    with torch.enable_grad():
        torch.testing.assert_close(after, network.graph_embeddings(), rtol=0, atol=0)


def test_kept_embeddings_are_dropped_with_the_scenario(network, toy):
    with torch.no_grad():
        before = network.graph_embeddings()
        set_scenario(network, static_features(toy))
        assert network.graph_embeddings().shape[0] != before.shape[0]


# --- encoders ---


def relabelled(static, rng):
    """The same graphs with their ops in another order."""
    order = np.concatenate([rng.permutation(np.flatnonzero(static.graph_of_op == g)) for g in range(static.num_graphs)])
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    edges = rng.permutation(place[static.edges])
    return dataclasses.replace(static, ops=static.ops[order], edges=edges, graph_of_op=static.graph_of_op[order])


@draws(4)
@given(seed=st.integers(0, 1000))
def test_relabelling_ops_leaves_a_graphs_embedding_equal(quickstart, seed):
    static = static_features(quickstart)
    torch.manual_seed(0)
    network = CandidateNetwork(NetworkSettings(), static)
    with torch.no_grad():
        before = network.graph_embeddings()
        set_scenario(network, relabelled(static, np.random.default_rng(seed)))
        torch.testing.assert_close(network.graph_embeddings(), before, rtol=1e-4, atol=1e-5)
        assert (torch.pdist(before) > 1e-3).all()  # and different graphs differ


def test_messages_run_along_edges_and_against_them():
    torch.manual_seed(0)
    encoder = GraphEncoder(hidden=8, embedding=4, rounds=2)
    # Ops a, b, c, of which a and c are alike.
    ops = torch.rand(3, encoder.lift.in_features)
    ops[2] = ops[0]
    graph = torch.zeros(3, dtype=torch.long)

    def embedded(*edges):
        return encoder(ops, torch.tensor(edges, dtype=torch.long).reshape(-1, 2).T.contiguous(), graph, 1)

    assert not torch.allclose(embedded((0, 1)), embedded())
    assert not torch.allclose(embedded((0, 1)), embedded((1, 0)))
    torch.testing.assert_close(embedded((0, 1)), embedded((2, 1)))
    assert not torch.allclose(embedded((0, 1)), embedded((0, 1), (1, 2)))


def test_a_set_is_its_mean_and_its_maximum():
    encoder = SetEncoder(features=1, hidden=1)
    with torch.no_grad():
        encoder.lift.weight.fill_(2.0)
        encoder.lift.bias.fill_(-1.0)
        # 2 x 0 - 1 = -1, cut to 0; 2 x 1 - 1 = 1; 2 x 2 - 1 = 3: mean 4/3, maximum 3
        result = encoder(torch.tensor([[[0.0]], [[1.0]], [[2.0]]]))  # members first
    torch.testing.assert_close(result, torch.tensor([[4 / 3, 3.0]]))
    assert encoder.size == 2


def test_a_network_blind_to_graphs_reads_zeros_for_each_of_them(network, observations, quickstart):
    seen = observations(quickstart)
    other = {**seen, "graph_id": (seen["graph_id"] + 1) % len(quickstart.workload.graphs)}
    with torch.no_grad():
        assert not torch.equal(network(seen)[0], network(other)[0])
        network.blind_to_graphs()
        assert torch.equal(network.graph_embeddings(), torch.zeros(len(quickstart.workload.graphs), 16))
        torch.testing.assert_close(network(seen), network(other), rtol=0, atol=0)
