"""The two parsers of YAML, libyaml's and PyYAML's own, are one to whoever reads a document."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from meshwright import yaml12
from meshwright.errors import ConfigError

from ..draws import FACTOR, draws

SPELLED = r"""a¦b: ¦- ¦: ¦[¦]¦{¦}¦,¦ # c¦&x ¦*x¦| ¦'¦''¦"¦\n¦\ud83d¦@¦`¦ ¦  ¦010¦1e3¦.inf¦~¦null¦_¦<<: ¦é¦!¦!!str ¦---¦--- """
BROKEN = """?¦? ¦%¦-¦:¦0x1f¦1:30¦no¦{a: 1}¦= ¦|\n¦>-\n¦\n¦\n  ¦\n- ¦\na: ¦...\n¦\r\n¦\t¦|2\n¦"a":1\n"""
PIECES = SPELLED.split("¦") + BROKEN.split("¦")


def said_of(text):
    """What is made of a document, or why it is refused."""
    try:
        return yaml12._parse(text, "a.yaml")
    except ConfigError as error:
        return str(error)


def said_by_pyyaml_of(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml12, "_QuickLoader", None)
        return said_of(text)


@draws(400)
@given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join))
def test_both_parsers_say_the_same(text):
    assert repr(said_of(text)) == repr(said_by_pyyaml_of(text))


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML was built without libyaml")
def test_what_ships_is_read_by_the_quick_one_and_says_the_same():
    texts = [path.read_text() for path in (Path(__file__).parents[2] / "configs").rglob("*.yaml")]
    texts = sorted(texts, key=len)[:: 4 if FACTOR <= 1 else 1]
    assert len(texts) > 10
    for text in texts:
        assert yaml12._made(text, yaml12._QuickLoader, None) == said_by_pyyaml_of(text)
    assert sum(yaml12._READ_OTHERWISE.search(text) is None for text in texts) > len(texts) / 2


@pytest.mark.parametrize("text", ["!", "b: !", "--- ", "\n--- # c", "a:\tb", "é: {1:30?~\\n}", "%YAML 2.0\n---\na"])
def test_what_libyaml_reads_otherwise_is_pyyamls(text):
    assert repr(said_of(text)) == repr(said_by_pyyaml_of(text))
