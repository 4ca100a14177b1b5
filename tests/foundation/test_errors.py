"""Laws of the errors that a user can cause: one line, naming what is known, whole after pickling."""

import pickle
import re
import string
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from meshwright import errors
from meshwright.clusters.settings import ClusterSettings
from meshwright.errors import ConfigError, MeshwrightError, PlanError, in_our_words, nearest
from meshwright.plans import Layout

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, MeshwrightError)]


def test_a_message_names_file_line_field_problem_value_and_nearest_choice():
    error = ConfigError("unknown key", file="a.yaml", line=3, field="ppo.lr", value="lr", choices=["clip", "lrs"])
    assert str(error) == "a.yaml:3: ppo.lr: unknown key (got 'lr'); did you mean 'lrs'?"


def test_where_no_choice_is_near_all_are_listed_up_to_twenty():
    few = ConfigError("not a valid choice", value="zzz", choices=["b", "a"])
    assert str(few) == "not a valid choice (got 'zzz'); valid: a, b"
    many = str(ConfigError("not a valid choice", value="zzz", choices=[f"item-{i:02}" for i in range(40)]))
    assert "item-19, ..." in many
    assert "item-20" not in many
    with pytest.raises(PlanError, match=f"unknown key .*; valid: {', '.join(sorted(Layout.model_fields))}$"):
        Layout.parse("zzz=1")


def test_what_is_not_known_leaves_no_trace():
    assert str(MeshwrightError("is empty")) == "is empty"
    assert str(MeshwrightError("is empty", file="x", choices=[])) == "x: is empty"


def test_a_falsy_value_is_still_shown():
    assert str(MeshwrightError("must be positive", field="n", value=0)) == "n: must be positive (got 0)"


@given(problem=st.text(), file=st.text(), field=st.text(), value=st.text(), choices=st.lists(st.text(), max_size=30))
def test_every_message_is_one_line(problem, file, field, value, choices):
    message = str(MeshwrightError(problem, file=file, line=1, field=field, value=value, choices=choices))
    assert len(message.splitlines()) <= 1


@given(value=st.text(min_size=250))
def test_a_long_value_is_shortened(value):
    assert len(str(MeshwrightError("is bad", value=value))) < 260


@pytest.mark.parametrize("kind", KINDS)
def test_pickling_keeps_kind_message_and_parts(kind):
    error = kind("is bad", file="a", line=1, field="b", value=(1, 2), choices=["c", "d"])
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_every_user_error_exits_with_two_but_where_the_input_is_right_and_there_is_nothing_to_learn():
    assert {kind.exit_code for kind in KINDS if kind is not errors.NothingToLearnError} == {2}
    assert errors.NothingToLearnError.exit_code == 1
    assert len(KINDS) == 15


@given(word=st.text(min_size=1), others=st.lists(st.text()))
def test_the_nearest_choice_to_a_choice_is_itself(word, others):
    assert nearest(word, [*others, word]) == word


@given(word=st.text(), choices=st.lists(st.text()))
def test_the_nearest_choice_is_one_of_the_choices(word, choices):
    assert nearest(word, choices) in {*choices, None}


def test_an_error_takes_up_the_place_that_its_caller_knows_and_keeps_its_own():
    error = ConfigError("unknown", value="x", choices=["y"]).at(file="a.yaml", field="graphs")
    assert str(error) == "a.yaml: graphs: unknown (got 'x'); valid: y"
    assert str(error.at(file="b.yaml", field="other")) == str(error)
    assert type(error) is ConfigError


DEVICES = ["a100", "a800", "b200", "h100", "h200", "h800", "l40s", "v100"]
JOBS = [f"zoo:{name}" for name in ("bert-base", "gpt2-small", "llama-7b", "resnet18", "resnet50", "vgg16")]


@pytest.mark.parametrize(
    ("choices", "others"),
    [
        (DEVICES, ["h10", "a10", "a101", "b100", "v200", "h20", "gh200", "gb200", "l40", "l4", "mi300", "tpu"]),
        (JOBS, re.split(" ", "llava-7b llama-13b llama2-7b bart-base roberta-base resnext50 resnet101 gptj gpt3 vgg19")),
        (["preset:dgx-a100-8x8", "preset:host-8"], ["dgx-h100-8x8", "dgx-a100-8x16", "host-16"]),
        (["gpu-07"], ["gpu-08"]),
    ],
)
def test_another_product_architecture_or_generation_is_never_suggested(choices, others):
    assert {other: nearest(other, choices) for other in others} == dict.fromkeys(others)


@given(
    first=st.from_regex("[a-z]{1,8}-?[0-9]{1,4}", fullmatch=True), second=st.from_regex("[a-z]{1,8}-?[0-9]{1,4}", fullmatch=True)
)
def test_a_product_is_suggested_for_its_own_number_and_first_letter_alone(first, second):
    if nearest(first, [second]) is not None:
        assert first[0] == second[0]
        assert first.lstrip(string.ascii_lowercase + "-") == second.lstrip(string.ascii_lowercase + "-")


@pytest.mark.parametrize(
    ("value", "choice"),
    [
        ("H100", "h100"),
        ("L40S", "l40s"),
        ("v-100", "v100"),
        ("ResNet-50", "zoo:resnet50"),
        ("preset:resnet50", "zoo:resnet50"),
        ("vg16", "zoo:vgg16"),
        ("gtp2-small", "zoo:gpt2-small"),
        ("llama", "zoo:llama-7b"),
    ],
)
def test_case_separators_prefixes_and_slips_do_not_hide_a_product(value, choice):
    assert nearest(value, [*DEVICES, *JOBS]) == choice


class Every(BaseModel):
    """A field of each kind that has limits, or that a request or file spells."""

    whole: Annotated[int, Field(ge=2, le=4, multiple_of=2)] = 2
    number: Annotated[float, Field(gt=0, lt=2, allow_inf_nan=False)] = 1.0
    word: Annotated[str, Field(min_length=1, max_length=4, pattern="^[a-z][a-z0-9.-]{0,9}$")] = "a"
    words: Annotated[list[str], Field(min_length=1, max_length=2)] = ["a"]
    at: AwareDatetime | None = None
    keys: dict[str, int] = {}
    below: ClusterSettings | None = None


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("whole", 0, "must be at least 2"),
        ("whole", 65536, "must be at most 4"),
        ("whole", 3, "must be a multiple of 2"),
        ("whole", "x", "must be a whole number"),
        ("number", 0, "must be more than 0"),
        ("number", 9, "must be less than 2"),
        ("number", float("nan"), "must be a finite number"),
        ("word", "", "must have at least 1 character"),
        ("word", "aaaaaaa", "must have at most 4 characters"),
        ("word", "a/b", "must be at most 10 small letters, digits, dots and hyphens, the first of them a small letter"),
        ("words", [], "must have at least 1 item"),
        ("words", ["a"] * 3, "must have at most 2 items"),
        ("words", 1, "must be a list"),
        ("at", "2026-01-01T00:00:00", "must name its time zone"),
        ("keys", 1, "must be a mapping of keys"),
        ("below", 1, "must be a mapping of keys"),
        ("word", 1, "must be a text"),
    ],
)
def test_what_a_value_must_be_is_said_in_our_words(field, value, message):
    with pytest.raises(ValidationError) as raised:
        Every(**{field: value})
    said = in_our_words(raised.value.errors()[0]["msg"])
    assert said.startswith(message)
    assert not re.search("should|input|string|tuple|dictionary|integer", said, re.IGNORECASE)


def test_valid_numbers_are_listed_by_their_size():
    assert str(ConfigError("not a size", choices=map(str, (1, 16, 2, 32, 4, 8)))).endswith("valid: 1, 2, 4, 8, 16, 32")
