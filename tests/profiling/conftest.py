"""A file of factories, as a user writes it, in the working folder."""

from pathlib import Path
from typing import Any

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
        if torch.compiler.is_exporting():
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


class Selected(nn.Module):
    """Its shapes depend on numbers."""

    def forward(self, x):
        return x[x > 0]


def embedding():
    return nn.Embedding(16, 4)


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


GPT2 = '''
import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, length, hidden = x.shape
        parts = self.qkv(self.norm_1(x)).split(hidden, dim=2)
        q, k, v = (part.view(batch, length, self.heads, hidden // self.heads).transpose(1, 2) for part in parts)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, hidden))
        return x + self.down(F.gelu(self.up(self.norm_2(x))))


class GPT2(nn.Module):
    """GPT-2 of two layers, its weights at random, the head's own."""

    def __init__(self, hidden=64, layers=2, heads=4, vocabulary=512, length=32):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, hidden), nn.Embedding(length, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
'''


@pytest.fixture
def gpt2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class `GPT2` of the file ``gpt2.py``, in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt2.py").write_text(GPT2)
    results: dict[str, Any] = {}
    exec(GPT2, results)  # the text above
    return results["GPT2"]
