"""A layout in words and in a file."""

import pytest

from meshwright.errors import MeshwrightError
from meshwright.planning.estimate import estimate
from meshwright.plans import Layout
from meshwright.plans.frameworks.layout_words import strategies_of_layout

FILE = """layout: {tp: 2, dp: 4, micro_batch: 1, global_batch: 8, stage_layers: null}
training: {kind: local-sgd, every: 4}
compression:
  - {kind: quantise, bits: 8}
  - {kind: sign}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "layout.yaml"
    path.write_text(FILE)
    return str(path)


def test_a_file_says_what_words_say_and_words_behind_it_go_first(file):
    assert Layout.parse(file) == Layout.parse("tp=2,dp=4,micro_batch=1,global_batch=8")
    assert Layout.parse(f"{file}, dp=2,zero=1") == Layout.parse("tp=2,dp=2,micro_batch=1,global_batch=8,zero=1")


def test_strategies_in_the_file_are_priced_unless_others_are_asked_for(file):
    trained = estimate("zoo:gpt2-small", "preset:host-8", file).trained
    kinds = [(one.training.kind, one.compression and one.compression.kind) for one in trained]
    assert kinds == [("local-sgd", None), ("synchronous", "quantise"), ("synchronous", "sign")]
    request = estimate("zoo:gpt2-small", "preset:host-8", file, training="kind=diloco,every=9", framework="megatron").trained
    assert [one.training.kind for one in request] == ["diloco", "synchronous", "synchronous"]
    assert strategies_of_layout("tp=2", None, "kind=sign") == (None, "kind=sign")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp: 2", "must hold the keys of a layout under layout:"),
        ("layout: 3", "must hold the keys of a layout under layout:"),
        ("layout: {dpp: 2, micro_batch: 1, global_batch: 2}", "layout.dpp"),
        ("layout: {dp: 2}\ntrainin: {}", "did you mean 'training'"),
        ("layout: {dp: [", "layout.yaml"),
    ],
)
def test_what_is_wrong_in_a_file_is_told(text, message, tmp_path):
    (tmp_path / "layout.yaml").write_text(text)
    with pytest.raises(MeshwrightError) as error:
        Layout.parse(str(tmp_path / "layout.yaml"))
    assert message in str(error.value)
    with pytest.raises(MeshwrightError, match="no such file"):
        Layout.parse(str(tmp_path / "other.yaml"))
