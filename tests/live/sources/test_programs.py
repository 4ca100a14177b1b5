"""Laws of asking a program: its whole answer, or one line that names it."""

import sys
import time

import pytest

from meshwright.errors import InputFileError
from meshwright.live.sources import programs
from meshwright.live.sources.programs import answer


def python(code: str) -> tuple[str, ...]:
    return sys.executable, "-c", code


def test_an_answer_is_whole_and_no_shell_sees_the_words():
    assert answer(("echo", "$HOME;", "*")) == "$HOME; *\n"
    assert len(answer(python("print('x' * 300_000)"))) == 300_001
    assert answer(python("import os; print(os.environ['TZ'])"), variables={"TZ": "UTC"}) == "UTC\n"
    assert answer(("printf", r"a\377b")) == "a\ufffdb"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("no-such-program",), "no-such-program: no such program on this machine; --from FILE"),
        (("/",), "/: cannot be started"),
        (("false",), "false: ended with status 1"),
        (("sh", "-c", "echo first >&2; echo why >&2; exit 3"), "sh: ended with status 3: why"),
        (("sh", "-c", "kill -9 $$"), "sh: ended with status -9"),
    ],
)
def test_a_program_that_fails_is_named_with_its_last_word(words, message):
    with pytest.raises(InputFileError) as error:
        answer(words)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_too_long_an_answer_is_none(monkeypatch):
    monkeypatch.setattr(programs, "MOST_BYTES", 2**20)
    with pytest.raises(InputFileError, match="yes: the answer is longer than 1 MiB"):
        answer(("yes",))


def test_a_program_that_takes_too_long_is_ended_with_what_it_started(tmp_path):
    script = f"(sleep 0.6; touch {tmp_path}/late) & sleep 60"
    with pytest.raises(InputFileError, match=r"sh: no answer within 0.1 s"):
        answer(("sh", "-c", script), wait_s=0.1)
    time.sleep(0.8)
    assert not (tmp_path / "late").exists()
