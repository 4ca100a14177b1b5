"""Mutations: a valid document with a few things in it that are not, drawn from a random generator.

A document is mutated twice. As a tree, a key is lost, stands twice or is another's, a value has another type, sign, size or
YAML tag; what comes of it is still JSON or YAML, so it gets past the parser. As a text, a line, a quotation mark, a digit or
the end is lost or one too many.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

DIGITS = "9" * 400
MORE_DIGITS = "7" * 5000
"""More than a float holds, and more than Python turns into an integer."""

LONG_FIELD = "f" * 140_000
"""More than Python's reader of CSV takes."""


class Raw(str):
    """A value that is rendered as it stands."""

    __slots__ = ()


class Pairs(list[tuple[str, Any]]):
    """A mapping in which a key may stand twice."""


TEXTS = (
    "",
    " ",
    "0",
    "-1",
    "nan",
    "inf",
    "true",
    "none",
    "x" * 300,
    "../../up",
    "a/b",
    "=1+1",
    "a\nb",
    "a\tb",
    "a\0b",
    "\x1b[31m",
    "²",
    "٣",
    "é💥",
    "1e999",
    DIGITS,
    MORE_DIGITS,
)
"""Of values, cells and words."""

VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2,
    7,
    0.5,
    -0.0,
    1e30,
    1e-30,
    1e308,
    -1e308,
    5e-324,
    2**31,
    2**53 + 1,
    2**63,
    2**64,
    -(2**63) - 1,
    10**30,
    *TEXTS,
    "layer0.;",
    "layer1.x",
    [],
    Pairs(),
    [[]],
    [None],
    [1, 2],
    ["a", "b"],
    Pairs([("a", 1)]),
    Pairs([("kind", "x")]),
    Raw(DIGITS),
    Raw(f"-{DIGITS}"),
    Raw(MORE_DIGITS),
    Raw(f"0.{DIGITS}"),
    Raw("1e999"),
    Raw("-1e999"),
    Raw("1e-999"),
    Raw('"\\ud800"'),
    Raw('"a\\udc00"'),
    Raw("[" * 200 + "]" * 200),
    Raw("[" * 5000 + "]" * 5000),
)

OF_JSON: tuple[Any, ...] = tuple(map(Raw, ("NaN", "Infinity", "-Infinity", "01", "'a'", "1 2", "+1", "[1,]", "{a: 1}")))

OF_YAML: tuple[Any, ...] = tuple(
    map(
        Raw,
        (
            "!!bool maybe",
            '!!bool ""',
            '!!float ""',
            "!!float 1:30",
            "!!float x",
            "!!int 0o",
            '!!int ""',
            "!!int 1.5",
            "!!null x",
            "!!timestamp xx",
            "!!timestamp 2020-99-99",
            "!!timestamp 2020-01-01",
            "!!binary é",
            "!!binary a",
            "!!set {a, b}",
            "!!omap [a: 1]",
            "!!pairs [a: 1]",
            "!!str [1]",
            "!!map x",
            "!!seq x",
            "!!merge x",
            "!!value x",
            "!!python/object/apply:os.getcwd []",
            "! x",
            "!own x",
            ".nan",
            ".inf",
            "-.inf",
            f"0x{'f' * 6000}",
            f"0o{'7' * 6000}",
            "1_000",
            "1:30",
            "010",
            "~",
            "2001-01-01",
            "*nobody",
            "&itself [*itself]",
            "{<<: 5}",
            "{<<: [1]}",
            "{? [a]: b}",
            "{? {a: b}: c}",
            "{1: 2, 1.5: 3, true: 4, null: 5}",
            "[&a [1, 1, 1, 1, 1, 1, 1, 1], &b [*a, *a, *a, *a], &c [*b, *b, *b, *b], &d [*c, *c, *c], [*d, *d]]",
            "|",
            "'it''s'",
            "\x07",
        ),
    )
)


def tree_of(data: Any) -> Any:
    """Plain data as a tree of lists, `Pairs` and leaves that can be changed in place."""
    if isinstance(data, dict):
        return Pairs((str(key), tree_of(value)) for key, value in data.items())
    return [tree_of(item) for item in data] if isinstance(data, list | tuple) else data


def to_json(tree: Any) -> str:
    """A tree as JSON."""
    if isinstance(tree, Raw):
        return str(tree)
    if isinstance(tree, Pairs):
        return "{" + ", ".join(f"{json.dumps(key)}: {to_json(value)}" for key, value in tree) + "}"
    if isinstance(tree, list):
        return "[" + ", ".join(map(to_json, tree)) + "]"
    return json.dumps(tree, ensure_ascii=False)


def to_yaml(tree: Any) -> str:
    """A tree as YAML: a line for each key of the root, which is JSON but for what JSON has no word for."""
    if not isinstance(tree, Pairs) or not tree:
        return to_json(tree) + "\n"
    return "".join(f"{json.dumps(key)}: {to_json(value)}\n" for key, value in tree)


def mutate_tree(tree: Any, rng: random.Random, own: tuple[Any, ...]) -> Any:
    """A tree with one change; ``own`` are values that only its language can spell."""
    spots = list(_spots(tree))
    if not spots:
        return deepcopy(rng.choice(VALUES + own))
    change = rng.choice(_TREE_CHANGES)
    holder, index = rng.choice(spots)
    change(holder, index, rng, own, spots)
    return tree


def _spots(tree: Any) -> Iterator[tuple[Any, int]]:
    """Each value of a tree by its holder and the place in it; of long lists the first and last ones."""
    if not isinstance(tree, list):
        return
    places = range(len(tree)) if len(tree) <= 24 else [*range(8), *range(len(tree) - 4, len(tree))]
    for index in places:
        yield tree, index
        yield from _spots(_at(tree, index))


def _at(holder: Any, index: int) -> Any:
    return holder[index][1] if isinstance(holder, Pairs) else holder[index]


def _put(holder: Any, index: int, value: Any) -> None:
    holder[index] = (holder[index][0], value) if isinstance(holder, Pairs) else value


Spots = list[tuple[Any, int]]


def _poison(holder: Any, index: int, rng: random.Random, own: tuple[Any, ...], spots: Spots) -> None:
    _put(holder, index, deepcopy(rng.choice(own if own and rng.random() < 0.4 else VALUES)))  # else one might come to hold itself


def _tweak(holder: Any, index: int, rng: random.Random, own: tuple[Any, ...], spots: Spots) -> None:
    """A number of another size, sign or type; a text cut, doubled or wrapped."""
    value = _at(holder, index)
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        _put(holder, index, rng.choice(([value], Pairs([("kind", value)]), str(value), 1)))
    elif isinstance(value, str):
        cut = rng.randrange(len(value) + 1)
        _put(holder, index, rng.choice((value[:cut], value + value, [value], value + "\n", value.upper(), value[cut:] + "²")))
    else:
        scaled = min(max(float(value), -1e200), 1e200) * 10.0 ** rng.randint(-60, 60)
        digits = Raw(f"{value}{'0' * rng.choice((1, 3, 9, 400, 5000))}")
        _put(holder, index, rng.choice((scaled, scaled, round(scaled), -value, value + 0.5, str(value), [value], digits)))


def _drop(holder: Any, index: int, rng: random.Random, own: tuple[Any, ...], spots: Spots) -> None:
    del holder[index]


def _repeat(holder: Any, index: int, rng: random.Random, own: tuple[Any, ...], spots: Spots) -> None:
    holder[index:index] = [holder[index]] * rng.choice((1, 1, 1, 2, 40))


def _rename(holder: Any, index: int, rng: random.Random, own: tuple[Any, ...], spots: Spots) -> None:
    if not isinstance(holder, Pairs):
        holder.reverse()
        return
    key = holder[index][0]
    others = [other for others, _ in spots if isinstance(others, Pairs) for other, _ in others]
    holder[index] = (rng.choice((key[:-1], key + "s", rng.choice(others), "", "kind", "<<", "\x1b", "²")), holder[index][1])


def _swap(holder: Any, index: int, rng: random.Random, own: tuple[Any, ...], spots: Spots) -> None:
    other, place = rng.choice(spots)
    mine, its = _at(holder, index), _at(other, place)
    if not isinstance(mine, list) and not isinstance(its, list):  # else one might come to hold itself
        _put(holder, index, its)
        _put(other, place, mine)
    else:
        _put(holder, index, deepcopy(rng.choice(VALUES)))


_TREE_CHANGES: tuple[Callable[..., None], ...] = (
    _poison,
    _poison,
    _poison,
    _tweak,
    _tweak,
    _tweak,
    _drop,
    _repeat,
    _rename,
    _swap,
)

TOKENS = (
    *('"', "'", ",", ";", "\n", "\t", "\r", " ", "\0", "\x1c", "\ufeff", "\u2028", "{", "}", "[", "]", ":", "-", "=", "#"),
    *("nan", "inf", "1e999", "-1", "0", "²", "٣", "²5", DIGITS, MORE_DIGITS, " -- ", "[;]", "\x1b[0m", "%s", "=1+1"),
)


def mutate_text(text: str, rng: random.Random) -> str:
    """A text with one change that no parser has a say in."""
    lines = text.splitlines(keepends=True)
    at = rng.randrange(len(text) + 1)
    row = rng.randrange(len(lines)) if lines else 0
    numbers = list(re.finditer(r"\d+(?:\.\d+)?", text))
    match rng.randrange(9):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + rng.choice(TOKENS) + text[at:]
        case 2:
            return text[:at] + text[at + rng.choice((1, 1, 2, 5)) :]
        case 3 if lines:
            return "".join(lines[:row] + lines[row + 1 :])
        case 4 if lines:
            return "".join(lines[: row + 1] + lines[row : row + 1] * rng.choice((1, 1, 3)) + lines[row + 1 :])
        case 5 if numbers:
            found = rng.choice(numbers)
            other = rng.choice(
                ("", "-1", "0", "1e999", "nan", "1e30", "1e-30", "²", "٣", "1_0", "0x1f", DIGITS, MORE_DIGITS, "[1;]")
            )
            return text[: found.start()] + other + text[found.end() :]
        case 6 if numbers:
            found = rng.choice(numbers)
            return text[: found.end()] + "0" * rng.choice((1, 5, 20, 400)) + text[found.end() :]
        case 7:
            return rng.choice((text.replace("\n", "\r\n"), text + text, "\ufeff" + text, text.replace(" ", ""), text.upper()))
        case _:
            return text[:at] + text[at:].replace(text[at : at + 1], rng.choice(TOKENS), 1)


CELLS = (
    *TEXTS,
    *('"', '"open', '"a"b', 'a"b', '"two\nlines"', LONG_FIELD, f'"{LONG_FIELD}', "1.5", "1e30", "1e-30", "1_0", "0x1f"),
    *("9999-12-31 23:59:59", "0001-01-01 00:00:00", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"),
    *("2020-01-01", "20200101T000000Z"),
)


def mutate_csv(text: str, rng: random.Random) -> str:
    """A table with one cell changed, lost or added, or as a text."""
    if rng.random() < 0.3:
        return mutate_text(text, rng)
    lines = text.split("\n")
    row = rng.randrange(len(lines))
    lines[row] = ",".join(_with_another(lines[row].split(","), CELLS, rng))
    return "\n".join(lines)


WORDS = (
    *TEXTS,
    *("1.5", "null", "~", "[1]", "{}", "!!bool maybe", "&a [*a]", "|", "1000000000000", "=", "*", '"', "\ud800", "1 2"),
    *("a.b", ".", "..", "-", "@"),
)


def mutate_words(text: str, rng: random.Random) -> str:
    """A spelling of keys and values with one part changed, lost or twice."""
    parts = re.split(r"([,=|:;@/ .-])", text)
    return "".join(_with_another(parts, (*WORDS, *parts), rng))


def _with_another(parts: list[str], others: tuple[str, ...], rng: random.Random) -> list[str]:
    """Parts of a text with one of them changed, lost or added."""
    at = rng.randrange(len(parts))
    match rng.randrange(5):
        case 0:
            del parts[at]
        case 1:
            parts.insert(at, rng.choice(others))
        case _:
            parts[at] = rng.choice(others)
    return parts
