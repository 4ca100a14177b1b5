"""Mutations: a valid document with a few things in it that are not, drawn by hypothesis.

A document is mutated twice. As a tree, a key is lost, appears twice or is another's, a value is any other. The result is
still JSON or YAML, so it gets past the parser. As a text, one of its pieces (a number, a word, a cell, a line's end) is lost,
appears twice or is another.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from meshwright import yaml12

DIGITS = "9" * 400
MORE_DIGITS = "7" * 5000
"""More than a float holds, and more than Python turns into an integer."""

LONG_FIELD = "f" * 140_000
"""More than Python's reader of CSV takes."""


class Raw(str):
    """A value that is rendered verbatim."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """A mapping in which a key may appear twice."""


TEXTS = (
    *("", " ", "0", "-1", "nan", "inf", "true", "none", "null", "x" * 300, "../../up", "a/b", "=1+1", "a\nb", "a\tb", "a\0b"),
    *("\x1b[31m", "²", "٣", "é💥", "1e999", "1e30", "1e-30", "1_0", "0x1f", DIGITS, MORE_DIGITS, "layer0.;", "layer1.x"),
)
"""Of values, cells and words."""

OF_JSON = (
    *(DIGITS, f"-{DIGITS}", MORE_DIGITS, f"0.{DIGITS}", "1e999", "-1e999", "1e-999", "5e-324", "1e308", "-1e308", "1e30"),
    *('"\\ud800"', '"a\\udc00"', "[" * 200 + "]" * 200, "[" * 5000 + "]" * 5000, '{"kind": "x"}', "[[]]", "[null]"),
    *("NaN", "Infinity", "-Infinity", "01", "'a'", "1 2", "+1", "[1,]", "{a: 1}", *map(json.dumps, TEXTS)),
)
"""Values as JSON spells them, or does not."""

OF_YAML = (
    *("!!bool maybe", '!!bool ""', '!!float ""', "!!float 1:30", "!!float x", "!!int 0o", '!!int ""', "!!int 1.5", "!!null x"),
    *("!!timestamp xx", "!!timestamp 2020-99-99", "!!binary é", "!!set {a, b}", "!!omap [a: 1]", "!!pairs [a: 1]", "!!str [1]"),
    *("!!map x", "!!merge x", "!!value x", "!!python/object/apply:os.getcwd []", "! x", "!own x", ".nan", ".inf", "-.inf"),
    *(f"0x{'f' * 6000}", f"0o{'7' * 6000}", "1_000", "1:30", "010", "~", "2001-01-01", "*nobody", "&itself [*itself]"),
    *("{<<: 5}", "{<<: [1]}", "{? [a]: b}", "{? {a: b}: c}", "{1: 2, 1.5: 3, true: 4, null: 5}", "|", "'it''s'", "\x07"),
    "[&a [1, 1, 1, 1, 1, 1, 1, 1], &b [*a, *a, *a, *a], &c [*b, *b, *b, *b], &d [*c, *c, *c], [*d, *d]]",
)
"""Values that YAML alone can spell, or cannot."""

_PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9)
_SPELLED = st.recursive(
    _PLAIN, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2)
)
_VALUES = {
    "json": st.sampled_from(OF_JSON) | _SPELLED.map(json.dumps),
    "yaml": st.sampled_from(OF_JSON) | st.sampled_from(OF_YAML) | _SPELLED.map(json.dumps),
}

TOKENS = (
    *('"', "'", ",", ";", "\n", "\t", "\r", "\0", "\x1c", "\ufeff", "\u2028", "{", "}", "[", "]", ":", "-", "=", "#", "%s", "|"),
    *("²5", " -- ", "[;]", "[1;]", "\x1b[0m", "!!bool maybe", "&a [*a]", "*", "..", "@", '"open', '"a"b', 'a"b'),
    *('"two\nlines"', LONG_FIELD, f'"{LONG_FIELD}', "9999-12-31 23:59:59", "0001-01-01T00:00:00+14:00", "20200101T000000Z"),
    *TEXTS,
)
"""Texts that replace a piece of a document, whatever its format."""

PIECES = {"csv": r"[^,\n]+|,|\n", "words": r"[^,=|:;@/ .-]+|."}
"""Of what form a text is cut into which pieces; of others into numbers, words and single letters."""


@st.composite
def mutated(draw: st.DrawFn, form: str, text: str) -> str:
    """A valid input of a form with one to five changes, those of the tree before those of the text."""
    number = draw(st.sampled_from((1, 1, 1, 1, 2, 2, 3, 5)))
    of_tree = draw(st.integers(0, number)) if form in _VALUES else 0
    if of_tree:
        tree = _tree_of(json.loads(text) if form == "json" else yaml12.parse(text)[0])
        for _ in range(of_tree):
            tree = _changed(draw, tree, _VALUES[form])
        text = _spelled(tree) if form == "json" else _spelled_by_lines(tree)
    for _ in range(number - of_tree):
        text = _changed_text(draw, text, PIECES.get(form, r"\d+(?:\.\d+)?|\w+|\n|."))
    return text


def _tree_of(data: Any) -> Any:
    """Plain data as a tree of lists, `Pairs` and leaves that can be changed in place."""
    if isinstance(data, dict):
        return Pairs((str(key), _tree_of(value)) for key, value in data.items())
    return [_tree_of(item) for item in data] if isinstance(data, list | tuple) else data


def _spelled(tree: Any) -> str:
    """A tree as JSON."""
    if isinstance(tree, Raw):
        return str(tree)
    if isinstance(tree, Pairs):
        return "{" + ", ".join(f"{json.dumps(key)}: {_spelled(value)}" for key, value in tree) + "}"
    return "[" + ", ".join(map(_spelled, tree)) + "]" if isinstance(tree, list) else json.dumps(tree, ensure_ascii=False)


def _spelled_by_lines(tree: Any) -> str:
    """A tree as YAML: a line for each key of the root, which is JSON but for what JSON has no word for."""
    if not isinstance(tree, Pairs) or not tree:
        return _spelled(tree) + "\n"
    return "".join(f"{json.dumps(key)}: {_spelled(value)}\n" for key, value in tree)


def _spots(tree: Any) -> Iterator[tuple[Any, int]]:
    """Each value of a tree by its holder and the place in it; of long lists the first and last ones."""
    if not isinstance(tree, list):
        return
    for index in range(len(tree)) if len(tree) <= 24 else [*range(8), *range(len(tree) - 4, len(tree))]:
        yield tree, index
        yield from _spots(tree[index][1] if isinstance(tree, Pairs) else tree[index])


def _changed(draw: st.DrawFn, tree: Any, values: st.SearchStrategy[str]) -> Any:
    """A tree with one change."""
    spots = list(_spots(tree))
    if not spots:
        return Raw(draw(values))
    holder, index = spots[draw(st.integers(0, len(spots) - 1))]
    key, value = holder[index] if isinstance(holder, Pairs) else ("", holder[index])
    change = draw(st.sampled_from(("any", "any", "near", "near", "drop", "repeat", "rename")))
    if change == "drop":
        del holder[index]
    elif change == "repeat":
        holder[index:index] = [holder[index]] * draw(st.sampled_from((1, 2, 40)))
    elif change == "rename" and isinstance(holder, Pairs):
        others = sorted({other for others, _ in spots if isinstance(others, Pairs) for other, _ in others})
        holder[index] = (draw(st.sampled_from((key[:-1], f"{key}s", "", "kind", "<<", "\x1b", "²", *others))), value)
    else:
        other = draw(st.sampled_from(_near(value))) if change == "near" else Raw(draw(values))
        holder[index] = (key, other) if isinstance(holder, Pairs) else other
    return tree


def _near(value: Any) -> tuple[Any, ...]:
    """A value of another size, sign or type; a text cut, doubled or wrapped."""
    wrapped = ([value], Pairs([("kind", value)]))
    if isinstance(value, str):
        return (value[: len(value) // 2], value + value, f"{value}\n", value.upper(), f"{value}²", *wrapped)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return (str(value)[:99], 1, *wrapped)
    scaled = (min(max(float(value), -1e200), 1e200) * 10.0**power for power in (-60, -9, -3, 3, 9, 60))
    return (*scaled, -value, value + 0.5, str(value), *(Raw(f"{value}{'0' * more}") for more in (1, 9, 400, 5000)), *wrapped)


def _changed_text(draw: st.DrawFn, text: str, pattern: str) -> str:
    """A text with one of its pieces lost, twice, another or behind another, cut off there, or changed as a whole."""
    pieces = re.findall(pattern, text, re.DOTALL) or [""]
    at = draw(st.integers(0, len(pieces) - 1))
    before, piece, after = "".join(pieces[:at]), pieces[at], "".join(pieces[at + 1 :])
    others = st.sampled_from(TOKENS) | st.sampled_from(pieces)
    if pattern == PIECES["words"]:  # half of a letter, which a command line may hold
        others |= st.just("\ud800")
    match draw(st.integers(0, 9)):
        case 0:
            return before
        case 1:
            return before + after
        case 2:
            return before + piece * draw(st.sampled_from((2, 4))) + after
        case 3 | 4:
            return before + draw(others) + piece + after
        case 5:
            return before + piece + "0" * draw(st.sampled_from((1, 5, 20, 400))) + after
        case 6:
            whole = (text.replace("\n", "\r\n"), text + text, f"\ufeff{text}", text.replace(" ", ""), text.upper())
            return draw(st.sampled_from(whole))
    return before + draw(others) + after
