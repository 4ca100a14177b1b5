"""Laws of configuration: YAML is read strictly, and every error names file, line, key, value and the nearest choice."""

import json
import math
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, field_validator, model_validator

from meshwright import settings, yaml12
from meshwright.errors import ConfigError, MeshwrightError


class Ring(settings.Settings):
    kind: Literal["ring"]
    num_devices: int = Field(gt=0)


class Level(settings.Settings):
    bandwidth_gbytes_per_s: float = Field(gt=0)


class Tree(settings.Settings):
    kind: Literal["tree"]
    levels: list[Level]

    @model_validator(mode="after")
    def _has_levels(self) -> "Tree":
        if not self.levels:
            raise ValueError("A tree needs a level")
        return self


class Root(settings.Settings):
    name: str = "unnamed"
    rate: float = 0.5
    mode: Literal["fast", "exact"] = "fast"
    names: dict[str, Level] = Field(default_factory=dict)
    topology: Annotated[Ring | Tree, Field(discriminator="kind")] | None = None

    @field_validator("name")
    @classmethod
    def _no_space(cls, name: str) -> str:
        if " " in name:
            raise ValueError("Must hold no space")
        return name


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "a.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def complaint(path, changes=()):
    with pytest.raises(MeshwrightError) as caught:
        settings.load(Root, path, changes=changes)
    return str(caught.value).removeprefix(f"{path.parent}/")


def test_a_file_becomes_a_frozen_model(write):
    root = settings.load(Root, write("name: x\nrate: 3e-4\ntopology: {kind: ring, num_devices: 8}\n"))
    assert root == Root(name="x", rate=0.0003, topology=Ring(kind="ring", num_devices=8))
    with pytest.raises(ValueError, match="frozen"):
        root.name = "y"


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "null\n"])
def test_an_empty_file_means_all_defaults(write, text):
    assert settings.load(Root, write(text)) == Root()


TREE = "name: x\ntopology:\n  kind: tree\n  levels:\n    - bandwidth_gbytes_per_s: 1\n    - "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\nnme: y\n", "a.yaml:2: nme: unknown key (got 'nme'); did you mean 'name'?"),
        ("mode: fats\n", "a.yaml:1: mode: not a valid choice (got 'fats'); did you mean 'fast'?"),
        ("name: a b\n", "a.yaml:1: name: must hold no space (got 'a b')"),
        ("rate: [1]\n", "a.yaml:1: rate: must be a number (got [1])"),
        ("rate:\n", "a.yaml:1: rate: must be a number, not null"),
        ("rate: true\n", "a.yaml:1: rate: must be a number (got True)"),
        ("topology:\n  kind: ring\n  num_devices: true\n", "a.yaml:3: topology.num_devices: must be a number (got True)"),
        ("rate: .nan\n", "a.yaml:1: rate: must be a finite number (got 'nan')"),
        ("rate: -.inf\n", "a.yaml:1: rate: must be a finite number (got '-inf')"),
        ("- 1\n", "a.yaml:1: must be a mapping of keys (got [1])"),
        ("names:\n  a: 3\n", "a.yaml:2: names.a: must be a mapping of keys (got 3)"),
        ("names: {a: {}}\n", "a.yaml:1: names.a.bandwidth_gbytes_per_s: the key is missing"),
        ("topology:\n  kind: rign\n", "a.yaml:1: topology.kind: not a valid kind (got 'rign'); did you mean 'ring'?"),
        ("topology:\n  num_devices: 3\n", "a.yaml:1: topology.kind: the key is missing"),
        ("topology:\n  kind: ring\n", "a.yaml:1: topology.num_devices: the key is missing"),
        (
            "topology:\n  kind: ring\n  num_device: 3\n",
            "a.yaml:3: topology.num_device: unknown key (got 'num_device'); did you mean 'num_devices'?",
        ),
        (
            TREE + "bandwidth_gbytes_per_s: -2\n",
            "a.yaml:6: topology.levels.1.bandwidth_gbytes_per_s: must be more than 0 (got -2)",
        ),
        (
            TREE + "bandwith_gbytes_per_s: 2\n",
            "a.yaml:6: topology.levels.1.bandwith_gbytes_per_s: unknown key (got 'bandwith_gbytes_per_s'); "
            "did you mean 'bandwidth_gbytes_per_s'?",
        ),
        ("topology:\n  kind: tree\n  levels: []\n", "a.yaml:1: topology: a tree needs a level"),
    ],
)
def test_an_impossible_file_is_told_by_place_value_and_choice(write, text, message):
    assert complaint(write(text)) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", "a.yaml:2: a: the key appears twice"),
        ("a:\n  b: 1\n  b: 2\n", "a.yaml:3: a.b: the key appears twice"),
        ("a: [1,\n", "a.yaml:2: not valid YAML"),
        ("a: 1\n--- \nb: 2\n", "a.yaml:2: not valid YAML"),
        ("a: &a [*a]\n", "a.yaml:1: a.0: the alias contains itself"),
        ("a: !!python/object:os.system x\n", "a.yaml:1: not valid YAML"),
        ("? [a, {b: c}]\n: 1\n", "a.yaml:1: not valid YAML"),
        ("a: \x01\n", "a.yaml: not valid YAML"),
        ("a: " + "1" * 5_000, "a.yaml:1: not valid YAML: a number of 5000 digits"),
        ("[" * 1_000, "a.yaml:1: not valid YAML: nested too deeply"),
    ],
)
def test_bad_yaml_is_told_by_line(write, text, message):
    reported = complaint(write(text))
    assert reported.startswith(message)
    assert len(reported.splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1e6", 1e6),
        ("-1.5E+3", -1500.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("1_000", 1000),
        ("1_000.5", 1000.5),
        ("010", 10),
        ("0x1F", 31),
        ("0o17", 15),
        ("+7", 7),
        (".inf", math.inf),
        ("true", True),
        ("False", False),
        ("~", None),
        ("null", None),
        ("no", "no"),
        ("on", "on"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("2024-13-45", "2024-13-45"),
        ("=", "="),
        ("1.2.3", "1.2.3"),
        ("'1'", "1"),
    ],
)
def test_scalars_follow_yaml_1_2(text, value):
    result, _ = yaml12.parse(f"a: {text}")
    assert result == {"a": value}
    assert type(result["a"]) is type(value)


finite = st.floats(allow_nan=False, allow_infinity=False)
printable = st.text(st.characters(codec="ascii", exclude_characters="\x7f"))
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | finite | printable,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abcxyz_", min_size=1), inner, max_size=3),
    max_leaves=8,
)


def test_whoever_reads_a_text_again_has_a_copy_of_its_own_and_errors_name_its_own_file():
    first, lines = yaml12.parse("a: [1]\nb: 2\n")
    first["a"].append(3)
    lines.clear()
    assert yaml12.parse("a: [1]\nb: 2\n") == ({"a": [1], "b": 2}, {(): 1, ("a",): 1, ("a", 0): 1, ("b",): 2})
    for file in ("one.yaml", "other.yaml"):
        with pytest.raises(ConfigError, match=rf"^{file}:2: a: the key appears twice"):
            yaml12.parse("a: 1\na: 2\n", file=file)
    many = [f"a: {n}" for n in range(2 * yaml12.NUM_KEPT)]
    assert [yaml12.parse(text)[0]["a"] for text in many * 2] == [*range(2 * yaml12.NUM_KEPT)] * 2


@given(data=plain)
def test_json_is_yaml(data):
    assert yaml12.parse(json.dumps(data))[0] == data


def test_merge_keys_and_aliases_work():
    data, lines = yaml12.parse("a: &a\n  x: 1\nb:\n  <<: *a\n  y: 2\n")
    assert data == {"a": {"x": 1}, "b": {"x": 1, "y": 2}}
    assert lines[("b", "y")] == 5


def test_every_key_has_its_line():
    _, lines = yaml12.parse("a: 1\nb:\n  - c: 2\n    d: 3\n  - 4\n")
    assert lines == {(): 1, ("a",): 1, ("b",): 2, ("b", 0): 3, ("b", 0, "c"): 3, ("b", 0, "d"): 4, ("b", 1): 5}


@pytest.mark.parametrize(
    ("change", "data"),
    [
        ("a=1", {"a": 1}),
        (" a = 1e-3 ", {"a": 1e-3}),
        ("a.b.c=[1, x]", {"a": {"b": {"c": [1, "x"]}}}),
        ("a=", {"a": None}),
        ("a=b=c", {"a": "b=c"}),
    ],
)
def test_a_change_sets_one_key(change, data):
    assert settings.override(None, change) == data


def test_a_change_leaves_its_input_as_it_was_and_other_keys_alone():
    before = {"a": {"b": 1, "c": 2}, "d": 3}
    assert settings.override(before, "a.b=5") == {"a": {"b": 5, "c": 2}, "d": 3}
    assert before == {"a": {"b": 1, "c": 2}, "d": 3}


@pytest.mark.parametrize("change", ["a", "=1", " =1", "a..b=1", ".a=1", "a.=1", "", "a=[1", "a={b: 1, b: 2}", "x.y=1", "x.y.z=1"])
def test_an_impossible_change_is_named_whole(change):
    with pytest.raises(ConfigError) as caught:
        settings.override({"x": 3}, change)
    assert caught.value.field == "--set"
    assert caught.value.value == change


def test_a_list_holds_no_keys_to_change(write):
    with pytest.raises(ConfigError, match="holds no keys"):
        settings.load(Root, write("- 1\n"), changes=["name=x"])


def test_nested_keys_become_changes_worked_by_hand():
    nested = {"arrivals": {"interarrival_s": 400.0}, "graphs": ["zoo:gnmt", "a b"], "deadline": {"kind": "none"}, "steps": {}}
    assert settings.as_changes(nested) == [
        "arrivals.interarrival_s=400.0",
        'graphs=["zoo:gnmt", "a b"]',
        'deadline={"kind": "none"}',  # another kind has other keys, so none of the old ones stay
        "steps={}",
    ]


KEYS = st.text("abc", min_size=1, max_size=3)
LEAVES = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text("xy:=, ", max_size=4) | st.just({})


@given(keys=st.recursive(st.dictionaries(KEYS, LEAVES), lambda below: st.dictionaries(KEYS, below | LEAVES, max_size=3)))
def test_nested_keys_come_back_from_their_changes(keys):
    data = {}
    for change in settings.as_changes(keys):
        data = settings.override(data, change)
    assert data == keys


def test_later_changes_win_and_the_file_loses(write):
    assert settings.load(Root, write("name: x\n"), changes=["name=y", "name=z"]).name == "z"


def test_a_wrong_change_is_not_blamed_on_the_file(write):
    path = write("name: x\nrate: 1\n")
    assert complaint(path, ["rate=fast"]).startswith("--set: rate: must be a number")
    assert complaint(path, ["rte=2"]) == "--set: rte: unknown key (got 'rte'); did you mean 'rate'?"
    assert complaint(write("rate: fast\n"), ["name=y"]).startswith("a.yaml:1: rate:")
    tree = write("topology:\n  kind: tree\n  levels: [{bandwidth_gbytes_per_s: 1}]\n")
    assert complaint(tree, ["topology.levels=[]"]) == "--set: topology: a tree needs a level"
    assert complaint(tree, ["topology.levls.x=1"]).startswith("--set: topology.levls: unknown key")


def test_a_model_without_a_file_is_told_by_field_alone():
    with pytest.raises(ConfigError) as caught:
        settings.build_settings(Root, {"topology": {"kind": "tree", "levels": [{"bandwidth_gbytes_per_s": 0}]}})
    message = "topology.levels.0.bandwidth_gbytes_per_s: must be more than 0 (got 0)"
    assert str(caught.value) == message
