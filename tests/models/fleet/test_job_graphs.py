"""Job graphs in a fleet's policy: what the encoding depends on and what not, and what stays as it is without it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from meshwright.envs.fleet.batch import FleetBatch
from meshwright.errors import CheckpointError, ConfigError
from meshwright.jobs.graph import JobGraph
from meshwright.models.fleet.job_graphs import EDGE, OP, JobGraphEncoder, JobGraphTensors
from meshwright.models.fleet.network import FleetActor, _fastest_bytes_per_s
from meshwright.models.fleet.saved import SavedFleetNetwork, player
from meshwright.models.settings import FleetNetworkSettings
from meshwright.settings import build_settings
from meshwright.simulation.fleet.network import UNLIMITED

from ...tiny_fleet import tiny_fleet
from .samples import network, observed

COSTS = ("forward_s", "backward_s", "forward_flops", "backward_flops", "activation_bytes", "parameter_bytes", "workspace_bytes")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return tiny_fleet(tmp_path_factory.mktemp("fleet"))


@pytest.fixture(scope="module")
def seen(fleet):
    return observed(fleet, 2, 12)


def encoder(**changes):
    torch.manual_seed(1)
    return JobGraphEncoder(8, 2, **changes)


def graph_of(order=(0, 1, 2, 3), *, copies=1):
    """A diamond of ops, in any order, once or several times side by side."""
    place = np.argsort(order)
    columns = {name: np.tile(np.array([4.0, 1.0, 2.0, 0.5])[list(order)], copies) * (1 + i) for i, name in enumerate(COSTS)}
    edges = place[np.array([[0, 1], [0, 2], [1, 3], [2, 3]])]
    edges = np.concatenate([edges + 4 * copy for copy in range(copies)])
    names = tuple(f"op{number}" for number in range(4 * copies))
    return JobGraph("diamond", names, ("linear",) * len(names), edges=edges, **columns)


def encoded(graph, made=None):
    return (made or encoder())(JobGraphTensors([graph], 10.0)).detach()


def test_features_worked_by_hand():
    graphs = JobGraphTensors([graph_of()], 10.0)
    op, edge = (lambda name: OP.index(name)), (lambda name: EDGE.index(name))
    # Op 0: 4 + 8 seconds forward and backward, in the mean 1.875 + 3.75; output 20 bytes, two seconds on the wire.
    assert graphs.ops[0, op("time against the mean op's")].item() == pytest.approx(np.log(12 / 5.625) / 2)
    assert graphs.ops[:, op("backward share of its time")].tolist() == pytest.approx([2 / 3] * 4)
    assert graphs.ops[0, op("output's time on the fastest link against its own")].item() == pytest.approx(2 / 14)
    assert graphs.ops[:, op("ops before it")].tolist() == pytest.approx([0, 1 / 3, 1 / 3, 1 / 2])
    # Edges carry 20, 20, 5 and 10 bytes.
    assert graphs.edges[:, edge("bytes against the mean edge's")].tolist() == pytest.approx(
        (np.log(np.array([20, 20, 5, 10]) / 13.75) / 2).tolist()
    )
    assert graphs.edges[0, edge("time on the fastest link against the mean op's")].item() == pytest.approx(2 / 7.625)


def test_the_fastest_link_is_one_on_which_jobs_meet():
    for capacity, fastest in (([UNLIMITED, 5.0, 3.0], 5.0), ([UNLIMITED, UNLIMITED], np.inf)):
        links = SimpleNamespace(capacity_bytes_per_s=np.array(capacity))
        assert _fastest_bytes_per_s(SimpleNamespace(problem=SimpleNamespace(network=links))) == fastest
    assert not encoder()(JobGraphTensors([graph_of()], np.inf)).isnan().any()


def test_renumbering_the_ops_of_a_graph_changes_nothing():
    for order in ((3, 1, 0, 2), (2, 0, 3, 1)):
        torch.testing.assert_close(encoded(graph_of(order)), encoded(graph_of()))


def test_a_graph_and_two_of_it_side_by_side_are_the_same():
    torch.testing.assert_close(encoded(graph_of(copies=2)), encoded(graph_of()))


def test_the_bytes_of_an_edge_and_where_it_leads_are_read_along_edges_alone():
    hearing, deaf = encoder(), encoder(hears=False)
    plain, other, moved = (JobGraphTensors([graph_of()], 10.0) for _ in range(3))
    other.edges[1] += 0.5
    moved.ends[1, 2] = 2  # of four edges one leads elsewhere
    for changed in (other, moved):
        assert not torch.allclose(hearing(changed), hearing(plain))
        assert torch.equal(deaf(changed), deaf(plain))


def test_more_bytes_of_an_output_change_both_the_edges_and_the_encoding():
    sent = graph_of().activation_bytes.copy()
    sent[1] *= 3
    assert not torch.allclose(encoded(replace(graph_of(), activation_bytes=sent)), encoded(graph_of()))


def test_types_side_by_side_are_encoded_as_each_alone(fleet):
    made = encoder()
    both = made(JobGraphTensors(fleet.graphs, 1e10))
    for kind, graph in enumerate(fleet.graphs):
        torch.testing.assert_close(both[kind], made(JobGraphTensors([graph], 1e10))[0])


def test_a_graph_reaches_the_jobs_of_its_type(fleet, seen):
    made = network(fleet, job_graphs=True)
    scores, values = made(seen)
    made.menu.graphs.edges += 0.5
    told, worth = made(seen)
    possible = seen["action_mask"] != 0
    assert not torch.allclose(told[possible], scores[possible])
    assert not torch.allclose(worth, values)


def test_it_is_encoded_once_for_a_batch(fleet, seen, monkeypatch):
    made, calls = network(fleet, job_graphs=True), []
    plain = JobGraphEncoder._encoded
    monkeypatch.setattr(JobGraphEncoder, "_encoded", lambda self, graphs: calls.append(len(graphs.ops)) or plain(self, graphs))
    made(seen)
    assert calls == [sum(graph.num_ops for graph in fleet.graphs)]
    with torch.no_grad():
        first, again = made(seen)[0], made(seen)[0]
    assert len(calls) == 2  # kept, until weights change or another fleet is played
    assert torch.equal(first, again)
    with torch.no_grad():
        made.job_graphs.lift.weight.mul_(2.0)
        assert not torch.equal(made(seen)[0], first)
        made.use(fleet)
        made(seen)
    assert len(calls) == 4


def test_a_step_of_an_optimizer_is_never_missed(fleet, seen):
    """Fused optimizers change weights without a count of it."""
    made = network(fleet, job_graphs=True)
    with torch.no_grad():
        made(seen)
    made(seen)[1].sum().backward()
    for weight in made.job_graphs.parameters():
        assert weight.grad is not None
        weight.data.sub_(weight.grad)
    with torch.no_grad():
        kept = made(seen)[0]
        made.job_graphs._kept = None
        assert torch.equal(made(seen)[0], kept)


def test_without_it_the_network_is_as_before(fleet, seen):
    with_graphs, without = network(fleet, job_graphs=True), network(fleet)
    assert "job_graphs" not in FleetNetworkSettings().model_dump()
    assert "job_edges" not in FleetNetworkSettings().model_dump()
    assert not [name for name in without.state_dict() if "job_graphs" in name]
    assert without.menu.graphs is None
    for seed in range(2):
        torch.manual_seed(seed)
        plain = FleetActor(FleetNetworkSettings(width=8), fleet)
        torch.manual_seed(seed)
        more = FleetActor(FleetNetworkSettings(width=8, job_graphs=True), fleet)
        for name, weight in plain.state_dict().items():
            assert torch.equal(weight, more.state_dict()[name])
    with torch.no_grad():
        with_graphs.job_graphs.read.weight.zero_()
        with_graphs.job_graphs.read.bias.zero_()
        without.load_state_dict({name: weight for name, weight in with_graphs.state_dict().items() if "job_graphs" not in name})
        assert torch.equal(with_graphs(seen)[0], without(seen)[0])


def test_a_network_plays_types_whose_graphs_it_has_not_seen(fleet, tmp_path):
    types = [{"name": "alexnet", "job": "zoo:alexnet", "global_batch": 128}]
    other = tiny_fleet(tmp_path, job_types=types)
    made = SavedFleetNetwork.of(network(fleet, job_graphs=True), {}).network(other)
    batch = FleetBatch(other, 1)
    batch.reset(0, np.random.default_rng(0))
    while not batch.state.is_over.all():
        batch.step(player(made)(batch))


def test_files_bring_it_back(fleet, seen, tmp_path):
    for changes in ({"job_graphs": True}, {"job_graphs": True, "job_edges": False}):
        made = network(fleet, **changes)
        SavedFleetNetwork.of(made, {}).save(tmp_path / "policy.pt")
        again = SavedFleetNetwork.load(tmp_path / "policy.pt")
        assert again.settings == made.settings
        with torch.no_grad():
            assert torch.equal(again.network(fleet)(seen)[0], made(seen)[0])
    lost = SavedFleetNetwork(FleetNetworkSettings(width=8), again.weights)
    with pytest.raises(CheckpointError, match="not those of its settings"):
        lost.network(fleet)


def test_edges_without_graphs_are_refused():
    with pytest.raises(ConfigError, match="job_edges: is about job graphs"):
        build_settings(FleetNetworkSettings, {"job_edges": False})
