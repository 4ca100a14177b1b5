"""The words of make, the whole check in ``.ci/run``, and the rule for reference tests; nothing reaches the network."""

import os
import re
import shutil
import sys
import time

import pytest

from .tree import ROOT, WORDS, run

# --- make ---


# Stands in for an interpreter: `-m venv DIR` makes an environment that holds a copy of itself, `-m pip install` does as
# the file `outcome` beside the Makefile says. Every call is written to the file `calls`.
FAKE_PYTHON = """#!/usr/bin/env bash
echo "$*" >> calls
case "$*" in
  *" install "*) exit "$(cat outcome)" ;;
  "-m venv "*) mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
esac
"""


@pytest.fixture
def fresh(tmp_path):
    """A fresh checkout with an interpreter that only pretends to install."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "fake-python").write_text(FAKE_PYTHON)
    (tmp_path / "fake-python").chmod(0o755)
    (tmp_path / "outcome").write_text("0")
    return tmp_path


def make(tree, *words):
    return run("make", f"PYTHON={tree / 'fake-python'}", *words, cwd=tree)


def installs(tree):
    return (tree / "calls").read_text().splitlines() if (tree / "calls").exists() else []


def test_make_help_lists_every_word():
    result = run("make", cwd=ROOT)
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["help", *WORDS]


@pytest.mark.parametrize("word", [word for word in WORDS if word != "clean"])
def test_each_word_sets_the_environment_up_by_itself(fresh, word):
    planned = run("make", "-n", word, cwd=fresh).stdout
    assert "-m venv" in planned
    assert "-c constraints.txt torch" in planned


def test_set_up_happens_once_and_again_when_the_pins_change(fresh):
    assert make(fresh, "type").returncode != 0  # the pretended environment holds no mypy
    assert (fresh / ".venv" / ".installed").exists()
    first = len(installs(fresh))
    make(fresh, "type")
    assert len(installs(fresh)) == first
    later = time.time() + 10
    os.utime(fresh / "constraints.txt", (later, later))
    make(fresh, "type")
    assert len(installs(fresh)) > first


def test_a_failed_set_up_leaves_no_stamp_and_is_begun_again(fresh):
    (fresh / "outcome").write_text("1")
    assert make(fresh, "type").returncode != 0
    assert not (fresh / ".venv" / ".installed").exists()
    (fresh / "outcome").write_text("0")
    make(fresh, "type")
    assert (fresh / ".venv" / ".installed").exists()


def test_pytorch_is_installed_first_and_at_its_pin(fresh):
    make(fresh, "type")
    first, second = [call for call in installs(fresh) if " install " in call]
    assert first.endswith("-c constraints.txt torch setuptools")
    assert second.endswith("-c constraints.txt --no-build-isolation -e .[dev]")


def test_an_interpreter_that_is_too_old_is_named(fresh):
    (fresh / "fake-python").write_text("#!/bin/sh\nexit 1\n")
    result = make(fresh, "type")
    assert result.returncode != 0
    assert "fake-python is not Python 3.11 or newer" in result.stderr


# --- the whole check ---


FAKE_MAKEFILE = """
.venv/.installed lint type docs:
	@echo "made $@"; [ "$@" != "$$BROKEN" ]
test:
	@echo "made test with [$$MESHWRIGHT_REFERENCE]"; [ "$@" != "$$BROKEN" ]
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose make only tells what it was asked for."""
    tree = tmp_path / "checkout"
    (tree / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", tree / ".ci")
    (tree / "Makefile").write_text(FAKE_MAKEFILE)
    (tree / "README.md").write_text("# meshwright\n\n    make demo     # trains\n    make test     # passes the tests\n")
    return tree


def made(result):
    return [line.removeprefix("made ") for line in result.stdout.splitlines() if line.startswith("made ")]


def test_the_whole_check_runs_every_stage_in_order(checkout):
    result = run("bash", ".ci/run", cwd=checkout)
    assert result.returncode == 0, result.stdout + result.stderr
    assert made(result) == [".venv/.installed", "lint", "type", "docs", "test with []"]
    assert re.search(r"== tests: \d+ s\n== all stages passed in \d+ s", result.stdout)


@pytest.mark.parametrize(
    ("stage", "word"), [("setup", ".venv/.installed"), ("lint", "lint"), ("types", "type"), ("docs", "docs"), ("tests", "test")]
)
def test_a_failing_stage_fails_the_whole_check_and_is_named(checkout, stage, word):
    result = run("bash", ".ci/run", cwd=checkout, BROKEN=word)
    assert result.returncode != 0
    assert f'failed in stage "{stage}"' in result.stdout
    assert "all stages passed" not in result.stdout


def test_the_test_command_is_the_one_of_the_readme(checkout):
    (checkout / "README.md").write_text("Only `make test` in the running text.\n")
    result = run("bash", ".ci/run", cwd=checkout)
    assert result.returncode != 0
    assert "README.md names no line 'make test'" in result.stdout


def test_reference_data_beside_the_checkout_is_found_and_handed_on_as_an_absolute_path(checkout):
    data = checkout.parent / "shared" / "reference"
    data.mkdir(parents=True)
    assert f"test with [{data}]" in made(run("bash", ".ci/run", cwd=checkout))
    other = checkout / "other"
    other.mkdir()
    assert f"test with [{other}]" in made(run("bash", ".ci/run", cwd=checkout, MESHWRIGHT_REFERENCE="other"))
    assert run("bash", ".ci/run", cwd=checkout, MESHWRIGHT_REFERENCE="absent").returncode == 2


def test_the_readme_names_the_test_command():
    assert re.search(r"^ *make test( *| +#.*)$", (ROOT / "README.md").read_text(), re.MULTILINE)


# --- reference tests ---


SUITE = """
import pytest

def test_plain(): pass

@pytest.mark.reference
def test_with_data(reference): assert reference.is_dir()

@pytest.mark.reference
@pytest.mark.xfail(strict=True)
def test_known_gap(reference): assert not reference.is_dir()
"""


@pytest.fixture
def suite(tmp_path):
    """A small suite under the project's conftest."""
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = tests\nmarkers =\n    reference: needs data\n")
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path / "tests")
    (tmp_path / "tests" / "test_all.py").write_text(SUITE)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "README.md").write_text("")
    return tmp_path


def pytest_run(tree, *options, **variables):
    return run(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, cwd=tree, **variables)


def test_without_the_variable_absent_data_is_a_skip(suite):
    result = pytest_run(suite)
    assert result.returncode == 0
    assert "1 passed, 2 skipped" in result.stdout


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_with_the_variable_a_skipped_reference_test_is_a_failure(suite, options):
    result = pytest_run(suite, *options, MESHWRIGHT_REFERENCE=str(suite / "absent"))
    assert result.returncode == 1
    assert "must not be skipped" in result.stdout
    assert "skipped," not in result.stdout


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_with_the_data_there_reference_tests_pass(suite, options):
    result = pytest_run(suite, *options, MESHWRIGHT_REFERENCE=str(suite / "data"))
    assert result.returncode == 0, result.stdout
    assert "2 passed, 1 xfailed" in result.stdout


@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_with_the_variable_the_whole_suite_must_run_a_reference_test(suite, options):
    (suite / "tests" / "test_all.py").write_text("def test_plain(): pass\n")
    whole = pytest_run(suite, *options, MESHWRIGHT_REFERENCE=str(suite / "data"))
    assert whole.returncode == 1
    assert "no reference test ran" in whole.stdout
    part = pytest_run(suite, *options, "tests/test_all.py", MESHWRIGHT_REFERENCE=str(suite / "data"))
    assert part.returncode == 0
