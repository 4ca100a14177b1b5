"""The network of a fleet: what is possible, what renumbering changes, what messages carry, and files of it."""

import pytest
import torch

from meshwright.models.fleet.network import IMPOSSIBLE
from tests.tiny_fleet import tiny_fleet

from .samples import network, observed


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    return tiny_fleet(tmp_path_factory.mktemp("fleet"), placements=["packed", "spread", "construct"])


@pytest.fixture(scope="module")
def seen(fleet):
    return observed(fleet, 3, 17)


def test_only_possible_actions_have_scores(fleet, seen):
    scores, values = network(fleet)(seen)
    assert scores.shape == (3, fleet.problem.num_actions)
    assert values.shape == (3,)
    assert torch.equal(scores > IMPOSSIBLE / 2, seen["action_mask"] != 0)
    assert scores[seen["action_mask"] != 0].unique().numel() > 10


def test_renumbering_running_jobs_changes_nothing(fleet, seen):
    order = torch.randperm(seen["running"].shape[1], generator=torch.Generator().manual_seed(1))
    moved = dict(seen) | {name: seen[name][:, order] for name in ("running", "host_of", "trunk_of", "running_type")}
    made = network(fleet)
    for one, other in zip(made(seen), made(moved), strict=True):
        torch.testing.assert_close(one, other)


def test_hosts_of_a_group_are_exchanged_with_their_scores(fleet, seen):
    order = torch.tensor([1, 0, 3, 2])
    moved = dict(seen) | {"hosts": seen["hosts"][:, order], "host_of": seen["host_of"][:, :, order]}
    made = network(fleet)
    torch.testing.assert_close(made(seen)[1], made(moved)[1])


def test_what_a_neighbour_holds_reaches_a_host_by_messages_only(fleet, seen):
    """Two running jobs exchange the hosts that they hold: the pooled whole stays, scores of hosts change by messages alone."""
    building = seen["context"].clone()
    building[:, 6] = 1.0
    mask = torch.zeros_like(seen["action_mask"])
    mask[:, :4] = 1
    held = torch.zeros_like(seen["host_of"])
    held[:, 0, 0] = held[:, 1, 3] = 1.0
    first = dict(seen) | {"context": building, "action_mask": mask, "host_of": held, "running": seen["running"].clone()}
    first["running"][:, :2, -1] = 1.0
    first["running"][:, 0, 4] = 0.9
    second = dict(first) | {"host_of": held[:, :, [3, 1, 2, 0]]}
    hearing, blind = network(fleet), network(fleet, messages=False)
    assert not torch.allclose(hearing(first)[0][:, :4], hearing(second)[0][:, :4])
    torch.testing.assert_close(blind(first)[0], blind(second)[0])


def test_arrivals_to_come_reach_the_critic_alone(fleet, seen):
    made = network(fleet)
    scores, values = made(dict(seen) | {"to_come": torch.ones(3, 10)})
    assert torch.equal(scores, made(seen)[0])
    assert not torch.allclose(values, made(seen)[1])
