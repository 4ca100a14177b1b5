"""A network without messages of the job graph: the graph's edges have no influence, and nothing else is lost."""

import dataclasses

import torch

from meshwright.envs.static_features import static_features

from .scenarios import set_scenario


@torch.no_grad()
def test_a_job_without_its_graph_is_the_means_of_its_ops(quickstart, random_network, observations):
    static, seen = static_features(quickstart), observations(quickstart)
    network = random_network(quickstart, messages=False)
    before = network(seen)
    totals = static.ops.copy()
    for g in range(static.num_graphs):
        totals[static.graph_of_op == g] = static.ops[static.graph_of_op == g].mean(axis=0)
    for other in (dataclasses.replace(static, edges=static.edges[:1]), dataclasses.replace(static, ops=totals)):
        set_scenario(network, other)
        torch.testing.assert_close(network(seen), before)
    set_scenario(network, dataclasses.replace(static, ops=static.ops[::-1].copy()))
    assert not torch.allclose(network(seen)[0], before[0])
    # A network that sees the graph does see its edges.
    whole = random_network(quickstart)
    before = whole(seen)
    set_scenario(whole, dataclasses.replace(static, edges=static.edges[:1]))
    assert not torch.allclose(whole(seen)[0], before[0])
