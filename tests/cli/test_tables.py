"""Tables on terminals of any width: no word is broken, nothing is lost, and in files no line ends in blanks."""

import io
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from meshwright import cli
from meshwright.cli import output

WORDS = st.text("abcdefgh=:/", min_size=1, max_size=9)
CELLS = st.lists(WORDS, min_size=1, max_size=5).map(" ".join)


def shown(width, columns, rows, **more):
    stream = io.StringIO()
    output.table(Console(file=stream, width=width), "a title", columns, rows, **more)
    return stream.getvalue()


@given(
    width=st.integers(20, 100),
    rows=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=4),
    breaks_numbers=st.booleans(),
)
def test_every_word_stands_whole_and_no_line_is_longer_than_the_terminal(width, rows, breaks_numbers):
    text = shown(width, ["layout", "step s", "MFU\n%"], rows, breaks_numbers=breaks_numbers)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width
    assert lines == [line.rstrip() for line in lines]
    words = [word.rstrip(",") for word in text.split()]
    for cell in (cell for row in rows for cell in row):
        for word in cell.split():
            assert word in words


def test_a_table_without_a_head_begins_with_one_blank_line_over_its_rule():
    assert shown(40, ["", ""], [["run folder", "runs/a"], ["time", "2 s"]], numbers_from=2).splitlines() == [
        "a title",
        "",
        " ─────────────────────",
        "  run folder   runs/a",
        "  time         2 s",
        "",
    ]


def test_a_table_that_fits_is_as_wide_as_its_cells_and_a_narrow_one_becomes_lines():
    # cells of 1 + 11 + 5 letters, three columns of the terminal around each and one more: 27
    rows = [["1", "tp=2 zero=1", "12.25"]]
    assert "  1   tp=2 zero=1   12.25" in shown(27, ["", "layout", "GB"], rows).splitlines()[-2]
    assert "tp=2" in shown(26, ["", "layout", "GB"], rows).splitlines()[-3]
    assert shown(18, ["", "layout", "GB"], rows).splitlines() == [
        "a title",
        "  1, layout tp=2",
        "      zero=1, GB",
        "      12.25",
        "",
    ]


def test_no_heading_is_written_with_a_hyphen_at_which_it_breaks():
    sources = Path(cli.__file__).parent.rglob("*.py")
    assert [path.name for path in sources if re.search(r"[a-z]-\\n[a-z]", path.read_text())] == []
