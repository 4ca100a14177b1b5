"""Pooling in one pass is what torch computes in several, bit for bit, and so is its gradient."""

import pytest
import torch

from meshwright.models.set_pooling import pooled


@pytest.mark.parametrize(
    ("members", "samples", "figures"),
    [
        (1, 3, 4),
        (2, 1, 1),
        (5, 37, 24),
        (6, 700, 24),
        (15, 7, 3),
        (16, 9, 8),
        (17, 9, 8),
        (32, 511, 16),
        (100, 5, 24),
        (300, 5, 16),
    ],
)
def test_one_pass_is_what_torch_computes(members, samples, figures):
    generator = torch.Generator().manual_seed(members)
    drawn = torch.randn(members, samples, figures, generator=generator)
    drawn[0] = drawn[-1]  # maxima that are equal share their gradient
    weights = torch.randn(samples, 2 * figures, generator=generator)
    ours, theirs = drawn.clone().requires_grad_(), drawn.clone().requires_grad_()
    found = pooled(ours)
    lifted = torch.relu(theirs)
    expected = torch.cat([lifted.mean(dim=0), lifted.amax(dim=0)], dim=1)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    assert torch.equal(found, expected)
    assert torch.equal(ours.grad, theirs.grad)
