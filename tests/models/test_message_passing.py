"""A round of message passing and the pools are PyTorch Geometric's, to the last bit."""

import pytest
import torch

from meshwright.models.encoders import MeanRound, largest_of, mean_of


@pytest.fixture(scope="module")
def geometric():
    from torch_geometric import nn  # takes half as long to load as PyTorch itself, and only where these tests run

    return nn


def test_a_round_worked_by_hand():
    one = MeanRound(1, 1)
    with torch.no_grad():
        one.lin_l.weight.fill_(2.0), one.lin_l.bias.fill_(1.0), one.lin_r.weight.fill_(10.0)
    # The third node hears (3 + 5) / 2 = 4: 2 * 4 + 1 + 10 * 7; the others hear nobody: 1 + 10 x.
    heard = one(torch.tensor([[3.0], [5.0], [7.0]]), torch.tensor([[0, 1], [2, 2]]))
    assert heard.flatten().tolist() == [31.0, 51.0, 79.0]


@pytest.mark.parametrize(("features", "width"), [(1, 1), (7, 5), (32, 32), (64, 100)])
def test_the_same_seed_gives_the_same_weights_and_the_same_bits(geometric, features, width):
    rounds, drawn = [], []
    for kind in (geometric.SAGEConv, MeanRound):
        torch.manual_seed(width)
        rounds.append(kind(features, width))
        drawn.append(torch.rand(1).item())  # as many draws before it
    assert drawn[0] == drawn[1]
    state = rounds[0].state_dict()
    assert list(state) == list(rounds[1].state_dict())
    for name, weights in rounds[1].state_dict().items():
        assert torch.equal(weights, state[name])
    generator = torch.Generator().manual_seed(1)
    nodes, edges = torch.randn(40, features, generator=generator), torch.randint(40, (2, 90), generator=generator)
    results = []
    for one in rounds:
        given = nodes.clone().requires_grad_()
        made = one(given, edges)
        made.square().sum().backward()
        results.append((made, given.grad, one.lin_l.weight.grad, one.lin_r.weight.grad))
    for ours, theirs in zip(*results, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize(("ours", "theirs"), [(mean_of, "global_mean_pool"), (largest_of, "global_max_pool")])
def test_pools_are_the_same_also_of_a_graph_without_nodes(geometric, ours, theirs):
    generator = torch.Generator().manual_seed(2)
    values, group = torch.randn(30, 4, generator=generator), torch.randint(5, (30,), generator=generator)
    group[group == 3] = 0
    results = []
    for pool in (ours, getattr(geometric, theirs)):
        given = values.clone().requires_grad_()
        made = pool(given, group, 6)
        made.square().sum().backward()
        results.append((made, given.grad))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
