"""A file of factories, as a user writes it, in the working folder."""

from pathlib import Path

import pytest

MODELS = '''
import torch
from torch import nn


def mlp():
    """8 -> 16 -> 4."""
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def with_inputs():
    return mlp(), torch.zeros(3, 8)


class Tied(nn.Module):
    """A table of 32 tokens, 8 wide, which is the last product's matrix too."""

    def __init__(self):
        super().__init__()
        self.table, self.inner, self.head = nn.Embedding(32, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 32, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        return self.head(self.inner(self.table(ids)))


class Unexported(nn.Module):
    """`mlp`, which torch.export cannot trace."""

    def __init__(self):
        super().__init__()
        self.layers = mlp()

    def forward(self, x):
        if isinstance(x, torch._subclasses.FakeTensor):
            raise RuntimeError("not here")
        return self.layers(x)


class Convolved(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 16, 3, padding=1), nn.Linear(16, 10)

    def forward(self, x):
        return self.last(torch.relu(self.conv(x)).mean((2, 3)))


class Forked(nn.Module):
    """Its way depends on numbers."""

    def forward(self, x):
        return x if x.sum() > 0 else -x


def broken():
    raise ValueError("no\\nway")


def number():
    return 3


SIZE = 8
'''


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file ``models.py``."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "models.py"
    path.write_text(MODELS)
    return path
