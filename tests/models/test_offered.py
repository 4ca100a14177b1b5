"""Observations laid out as the network reads them."""

from __future__ import annotations

import torch

from meshwright.models.network import Offered


def test_the_rows_of_two_samples_worked_by_hand():
    seen = Offered.from_observation(
        {
            "action_mask": torch.tensor([[1, 0, 1], [0, 1, 0]]),
            "candidates": torch.arange(6.0).reshape(2, 3, 1),
            "job": torch.tensor([[10.0], [20.0]]),
            "devices": torch.arange(4.0).reshape(2, 2, 1),
        }
    )
    # Offered: candidates 0 and 2 of the first sample, candidate 1 of the second one; devices come before samples.
    assert seen.rows["candidates"].flatten().tolist() == [0.0, 2.0, 4.0]
    assert (seen.sample.tolist(), seen.candidate.tolist(), seen.count.tolist()) == ([0, 0, 1], [0, 2, 1], [2, 1])
    assert seen.states["devices"][:, :, 0].tolist() == [[0.0, 2.0], [1.0, 3.0]]


def test_members_come_first_with_their_own_features_after_those_of_samples():
    """By compiled code as by PyTorch's own indexing, which is what a tensor that PyTorch differentiates gets."""
    torch.manual_seed(0)
    observation = {
        "action_mask": (torch.rand(9, 5) < 0.4).to(torch.int8),
        "candidate_slots": torch.rand(9, 5, 2, 4),
        "cluster_slots": torch.rand(9, 2, 4).transpose(1, 2).contiguous().transpose(1, 2),
        "devices": torch.rand(9, 3, 2),
    }
    own = {"candidate_slots": torch.rand(2, 3), "cluster_slots": torch.rand(2, 1)}
    result = Offered.from_observation(observation, own)
    slots = ("candidate_slots", "cluster_slots", "devices")
    expected = Offered.from_observation(
        {key: value.clone().requires_grad_(key in slots) for key, value in observation.items()}, own
    )
    assert result.rows["candidate_slots"].shape == (2, int(observation["action_mask"].sum()), 7)
    assert torch.equal(result.rows["candidate_slots"][:, 0, 4:], own["candidate_slots"])
    for ours, theirs in ((result.states, expected.states), (result.rows, expected.rows)):
        assert all(torch.equal(ours[key], theirs[key]) for key in ours.keys() | theirs.keys())
