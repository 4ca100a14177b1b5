"""Laws of reading and writing: typed errors on the way in, nothing half-written on the way out."""

import csv
import gzip
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import files
from meshwright.errors import InputFileError, MeshwrightError

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def listing(folder):
    return sorted(p.name for p in folder.iterdir())


def test_a_missing_file_is_named_with_the_nearest_spelling(tmp_path):
    (tmp_path / "train.yaml").write_text("")
    with pytest.raises(InputFileError) as caught:
        files.read_text(tmp_path / "trian.yaml")
    assert str(caught.value) == f"{tmp_path}/trian.yaml: no such file (got 'trian.yaml'); did you mean 'train.yaml'?"


def test_a_missing_file_with_no_near_name_lists_nothing(tmp_path):
    (tmp_path / "secret").write_text("")
    with pytest.raises(InputFileError) as caught:
        files.read_text(tmp_path / "graph.txt")
    assert "secret" not in str(caught.value)
    with pytest.raises(InputFileError, match="no such file"):
        files.read_text(tmp_path / "absent" / "graph.txt")


@pytest.mark.parametrize("name", ["", "folder", "a\0b", "file/below", "x" * 300])
def test_what_is_no_file_gives_one_typed_error(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputFileError) as caught:
        files.read_text(f"{tmp_path}/{name}")
    assert "\n" not in str(caught.value)


def test_bytes_that_are_not_utf8_are_placed(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"abc\xff")
    with pytest.raises(InputFileError, match=r"not a UTF-8 text file .*byte 3"):
        files.read_text(tmp_path / "a.txt")


def test_what_gzip_packed_is_read_as_the_text_itself(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b'{"a": 1}\r\n'))
    assert files.read_text(path) == '{"a": 1}\n'
    assert files.read_json(path) == {"a": 1}
    for spoilt in (path.read_bytes()[:-9], path.read_bytes()[:12] + b"xx" + path.read_bytes()[14:]):
        (tmp_path / "spoilt.gz").write_bytes(spoilt)
        with pytest.raises(InputFileError, match=r"spoilt\.gz: is packed by gzip, and damaged"):
            files.read_text(tmp_path / "spoilt.gz")


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"a": 1}')
    assert files.read_json(tmp_path / "a.json") == {"a": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n"a": 1,\n}', ":3: not valid JSON"),
        ("", ":1: not valid JSON"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' appears twice"),
        ('{"a": NaN}', "NaN is no number"),
        ("[-Infinity]", "-Infinity is no number"),
        ("[" * 100_000, "nested too deeply"),
        ("1" * 5_000, "not valid JSON"),
    ],
)
def test_bad_json_gives_one_typed_error(tmp_path, text, message):
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(InputFileError) as caught:
        files.read_json(tmp_path / "a.json")
    assert message in str(caught.value)
    assert str(tmp_path / "a.json") in str(caught.value)


@given(value=json_values)
def test_json_reads_back_equal_and_spells_equal_values_alike(tmp_path_factory, value):
    path = tmp_path_factory.mktemp("json") / "value.json"
    files.write_json(path, value)
    assert files.read_json(path) == value
    assert path.read_text(encoding="utf-8") == files.json_text(files.read_json(path)) + "\n"


def test_json_keys_are_sorted():
    assert files.json_text({"b": 1, "a": [2]}) == json.dumps({"a": [2], "b": 1}, indent=2)


def test_a_number_that_json_cannot_spell_leaves_no_file(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write_json(tmp_path / "a.json", {"a": float("nan")})
    assert listing(tmp_path) == []


def test_an_interrupted_write_keeps_the_old_file_and_no_rest(tmp_path):
    path = tmp_path / "deep" / "a.bin"
    with files.atomic_file(path) as file:
        file.write(b"old")

    def interrupted():
        with files.atomic_file(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert listing(path.parent) == ["a.bin"]


def test_written_files_have_the_rights_that_plain_ones_have(tmp_path):
    (tmp_path / "plain").write_text("")
    (tmp_path / "plain-folder").mkdir()
    files.write_text(tmp_path / "atomic", "")
    with files.atomic_folder(tmp_path / "atomic-folder"):
        pass
    assert (tmp_path / "atomic").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert (tmp_path / "atomic-folder").stat().st_mode == (tmp_path / "plain-folder").stat().st_mode


@pytest.mark.parametrize("name", ["file/below", "folder", "x" * 300])
def test_what_cannot_be_written_gives_one_typed_error_and_leaves_no_rest(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputFileError, match="cannot be written"):
        files.write_text(tmp_path / name, "text")
    assert listing(tmp_path) == ["file", "folder"]


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_what_is_no_name_is_not_written(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputFileError, match="not a file name"):
        files.write_text(name, "text")
    with pytest.raises(InputFileError, match="not a file name"), files.atomic_folder(name):
        pass
    assert listing(tmp_path) == []


def test_what_is_neither_file_nor_folder_is_written_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.write_text(pipe, "text")
    assert os.read(reader, 10) == b"text"
    os.close(reader)
    assert pipe.is_fifo()
    files.write_text("/dev/null", "text")
    assert Path("/dev/null").is_char_device()


def test_a_link_is_followed(tmp_path):
    (tmp_path / "link").symlink_to("target")
    files.write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "text"


def test_half_of_a_surrogate_pair_is_not_written(tmp_path):
    with pytest.raises(InputFileError, match="not Unicode"):
        files.write_text(tmp_path / "a", "x\ud800y")
    assert listing(tmp_path) == []


# --- names that become parts of paths ---


@pytest.mark.parametrize("name", ["job-0007-resnet18", "gpt2-xl", "A", "a_b.c-d", "0" * 100])
def test_a_plain_name_is_its_file_name(name):
    assert files.file_name(name) == name


def test_any_other_name_keeps_what_can_be_read_and_a_hash():
    for name in ("", ".", "..", ".git", "-rf", "a/b", "/etc/passwd", "a b", "a\nb", "a\0b", "x" * 101, "模型", "a$b"):
        made = files.file_name(name)
        assert made == files.file_name(name)
        assert made.endswith(f"-{files.digest(name)}")
    assert files.file_name("meta-llama/Llama-2-7b").startswith("meta-llama-Llama-2-7b-")


names = st.text(st.sampled_from("aA./\\-_ ~\0\n="), max_size=8) | st.text(max_size=200)


@given(chosen=st.lists(names, min_size=2, max_size=6, unique=True), reserved=names)
def test_two_names_never_have_one_file_name_and_none_leads_elsewhere(chosen, reserved):
    made = {files.file_name(name, reserved=[reserved]) for name in chosen}
    made |= {files.file_name(one, reserved=[reserved]) for one in made}  # the file name of a name is a name too
    of_names = [files.file_name(name, reserved=[reserved]) for name in {*chosen, *made}]
    assert len(set(of_names)) == len({*chosen, *made})
    assert reserved not in of_names
    assert all(re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name) for name in of_names)


@pytest.mark.parametrize("name", ["", ".", "..", "/", "/a", "../a", "a/../../b", "a/..", "a\0b", "//a"])
def test_a_relative_name_that_leads_out_of_its_folder_is_refused(tmp_path, name):
    with pytest.raises(InputFileError, match="leads out of the folder"):
        files.below(tmp_path, name)
    assert files.below(tmp_path, "traces/rank0.et") == tmp_path / "traces" / "rank0.et"


# --- CSV ---

cells = st.none() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(exclude_categories=["Cs"]))
texts = st.sampled_from(["=1+1", "-1", "+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", 'x,"=1', "x;=1", "x\t=1", "'=1", "plain", ""])


@given(rows=st.lists(st.tuples(cells | texts, cells | texts), max_size=6))
def test_csv_keeps_every_cell_and_holds_no_formula(rows):
    text = files.csv_text(["a", "b"], rows)
    read = list(csv.reader(io.StringIO(text, newline="")))[1:]
    assert len(read) == len(rows)
    for row, result in zip(rows, read, strict=True):
        for cell, stored in zip(row, result, strict=True):
            if isinstance(cell, str):
                assert stored.removeprefix("'") == cell.removeprefix("'")
                assert not stored.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
                assert (stored == cell) is not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
            else:
                assert stored == ("" if cell is None else str(cell))


# --- folders ---


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    def failing():
        with files.atomic_folder(tmp_path / "run") as folder:
            (folder / "a").write_text("half")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        failing()
    assert listing(tmp_path) == []
    with files.atomic_folder(tmp_path / "run") as folder:
        (folder / "a").write_text("1")
        assert not (tmp_path / "run").exists()
    assert listing(tmp_path / "run") == ["a"]
    assert listing(tmp_path) == ["run"]


def test_a_folder_of_the_same_kind_is_replaced_as_a_whole(tmp_path):
    for name in ("old", "new"):
        with files.atomic_folder(tmp_path / "run", marker="plan.json") as folder:
            (folder / "plan.json").write_text(name)
            (folder / name).write_text("")
    assert listing(tmp_path / "run") == ["new", "plan.json"]
    assert listing(tmp_path) == ["run"]


@pytest.mark.parametrize("marker", [None, "plan.json"])
def test_a_folder_of_other_things_is_not_replaced(tmp_path, marker):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputFileError, match="holds other files"), files.atomic_folder(tmp_path, marker=marker):
        pass
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_an_empty_folder_is_replaced_and_a_file_is_not(tmp_path):
    (tmp_path / "run").mkdir()
    with files.atomic_folder(tmp_path / "run") as folder:
        (folder / "a").write_text("")
    assert listing(tmp_path / "run") == ["a"]
    with pytest.raises(InputFileError, match="is a file"), files.atomic_folder(tmp_path / "run" / "a"):
        pass


def test_a_replacement_that_fails_puts_the_old_folder_back(tmp_path, monkeypatch):
    def write(text):
        with files.atomic_folder(tmp_path / "run", marker="a") as folder:
            (folder / "a").write_text(text)

    write("old")
    renamed = []

    def rename(source, target):
        renamed.append(target)
        if len(renamed) == 2:
            raise OSError(28, "No space left on device")
        os.rename(source, target)

    monkeypatch.setattr("pathlib.Path.rename", rename)
    with pytest.raises(InputFileError, match="No space left"):
        write("new")
    assert (tmp_path / "run" / "a").read_text() == "old"
    assert listing(tmp_path) == ["run"]


@pytest.mark.parametrize("marker", [None, "plan.json"])
@pytest.mark.parametrize("target", ["absent", "empty", "same-kind"])
def test_a_link_in_place_of_a_folder_stays_and_so_does_what_it_leads_to(tmp_path, marker, target):
    (tmp_path / "empty").mkdir()
    (tmp_path / "same-kind").mkdir()
    (tmp_path / "same-kind" / "plan.json").write_text("old")
    (tmp_path / "link").symlink_to(target)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputFileError, match=f"is a link.*{target}"), files.atomic_folder(tmp_path / "link", marker=marker):
        pass
    assert sorted(tmp_path.rglob("*")) == before
    assert (tmp_path / "link").readlink() == Path(target)


digestible = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(value=digestible)
def test_a_digest_is_of_the_value_and_not_of_the_object(value):
    import copy

    assert files.digest(value) == files.digest(copy.deepcopy(value))
    assert len(files.digest(value)) == 32


@given(parts=st.lists(st.text(), min_size=2, max_size=4, unique=True))
def test_the_cut_between_parts_and_their_order_count(parts):
    assert files.digest(*parts) != files.digest("".join(parts))
    assert files.digest(*parts) != files.digest(*reversed(parts))


def test_shape_and_kind_count_beside_the_bytes():
    a = np.arange(6.0)
    distinct = [a, a.reshape(2, 3), a.view(np.int64), a.tolist(), {"a": 1}, [("a", 1)], 1, 1.0, True, "1", b"1", None]
    assert len({files.digest(value) for value in distinct}) == len(distinct)


def test_the_layout_of_an_array_in_memory_does_not_count():
    a = np.arange(12.0).reshape(3, 4)
    assert files.digest(np.asfortranarray(a)) == files.digest(a)
    assert files.digest(a[::-1][::-1]) == files.digest(a)


def test_the_order_of_a_mapping_does_not_count():
    assert files.digest({"a": 1, "b": 2}) == files.digest({"b": 2, "a": 1})


@pytest.mark.parametrize("value", [object(), {1, 2}, np.array([object()])])
def test_what_has_no_stable_bytes_is_refused(value):
    with pytest.raises(MeshwrightError, match="cannot digest"):
        files.digest(value)


def test_a_digest_is_the_same_in_another_process():
    code = "from meshwright import files; print(files.digest('a', 1.5, [None, {'b': b'c'}]))"
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == files.digest("a", 1.5, [None, {"b": b"c"}])
