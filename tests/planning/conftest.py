"""A small transformer for several tests."""

import json

import pytest

TWO_LAYERS = {"model_type": "gpt2", "n_embd": 768, "n_layer": 2, "n_head": 12, "n_positions": 1024, "vocab_size": 50257}


@pytest.fixture(scope="session")
def job(tmp_path_factory):
    """The path of a GPT-2 of two layers."""
    path = tmp_path_factory.mktemp("job") / "config.json"
    path.write_text(json.dumps(TWO_LAYERS))
    return str(path)
