"""The two parsers of YAML, libyaml's and PyYAML's own, are one to whoever reads a document."""

import re
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


def said_of(text, loader=None):
    """The value of a document, or the reason for its refusal."""
    with pytest.MonkeyPatch.context() as patch:
        if loader is not None:
            patch.setattr(yaml, "CSafeLoader", loader)
        try:
            return yaml12._parse(text)
        except ConfigError as error:
            return str(error)


@draws(400)
@given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join) | st.text("ab:- \n[]{}&*!|>'\"#,?%@`0123456789.~", max_size=60))
def test_both_parsers_say_the_same(text):
    said, by_other = said_of(text), said_of(text, yaml.SafeLoader)
    assert repr(said) == repr(by_other) or re.search("[\t%!?]|---|[|>].?#", text)  # PyYAML's own takes no tab


def test_what_ships_says_the_same_to_both():
    texts = [path.read_text() for path in (Path(__file__).parents[2] / "configs").rglob("*.yaml")]
    texts = sorted(texts, key=len)[:: 4 if FACTOR <= 1 else 1]
    assert len(texts) > 10
    for text in texts:
        assert said_of(text) == said_of(text, yaml.SafeLoader)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a:\tb", {"a": "b"}),
        ("b: !", {"b": ""}),
        ("--- # c", None),
        ("a: !!float 3\nb: !!str 4\nc: !!int '5'\nd: !!map {}", {"a": 3.0, "b": "4", "c": 5, "d": {}}),
        ('a: "\\ud83d\\ude00"', {"a": "\U0001f600"}),
        ("- &x {k: 1, l: 2}\n- &y {l: 3}\n- {<<: [*x, *y], k: 4}", [{"k": 1, "l": 2}, {"l": 3}, {"k": 4, "l": 2}]),
        ("&k a: 1\nb: {*k : 2}", {"a": 1, "b": {"a": 2}}),
    ],
)
def test_what_yaml_1_2_allows_is_read(text, value):
    assert yaml12.parse(text)[0] == value


@pytest.mark.parametrize("text", ["[" * 300_000, "{a: " * 100_000, "[" * 200 + "]" * 200, "- " * 200])
def test_no_depth_of_brackets_overflows_a_stack(text):
    assert said_of(text).startswith("not valid YAML: nested too deeply")


def test_aliases_of_aliases_end():
    lists = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(yaml12, "MAX_VALUES", 1000)
        assert said_of(f"a0: &a0 [x]\n{lists}").startswith("holds more than 1000 values")
    deep = "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 300))
    assert said_of(f"a0: &a0 [x]\n{deep}").startswith("not valid YAML: nested too deeply")


TEXTS = st.sampled_from(["1e3", "0o17", "08", ".5e1", "no", "1:30"]) | st.text()


@given(st.dictionaries(TEXTS, st.lists(TEXTS | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False))))
def test_what_is_written_is_read_back(data):
    text = yaml12.dump(data)
    assert yaml12.parse(text)[0] == data
    assert yaml.safe_load(text) == data
