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
test-schedulers:
	@echo "made $@"; [ "$@" != "$$BROKEN" ]
test:
	@echo "made test with [$$MESHWRIGHT_REFERENCE]"; [ "$@" != "$$BROKEN" ]
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose make only prints its arguments."""
    tree = tmp_path / "checkout"
    (tree / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "run", tree / ".ci")
    (tree / ".ci" / "schedulers").write_text("echo installed\n")
    (tree / "Makefile").write_text(FAKE_MAKEFILE)
    (tree / "README.md").write_text("# meshwright\n\n    make demo     # trains\n    make test     # passes the tests\n")
    return tree


def made(result):
    return [line.removeprefix("made ") for line in result.stdout.splitlines() if line.startswith("made ")]


def test_the_whole_check_runs_every_stage_in_order(checkout):
    result = run("bash", ".ci/run", cwd=checkout)
    assert result.returncode == 0, result.stdout + result.stderr
    assert made(result) == [".venv/.installed", "lint", "test with []", "type", "docs", "test-schedulers"]
    assert re.search(r"== schedulers: \d+ s\n== all stages passed in \d+ s", result.stdout)


@pytest.mark.parametrize(
    ("stage", "word"),
    [
        ("setup", ".venv/.installed"),
        ("lint", "lint"),
        ("types", "type"),
        ("docs", "docs"),
        ("tests", "test"),
        ("schedulers", "test-schedulers"),
    ],
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


# --- schedulers ---


BY_APT = ("slurm", "slurmrestd", "openmpi", "shellcheck", "chromium")
BY_PIP = ("ray", "megatron", "deepspeed", "torchtitan", "parsers", "megatron-lm", "accelerate")
FAKE_APT = """#!/bin/bash
echo "apt-get $*" >> "$CALLS"
echo "Reading package lists..."
echo "E: Unable to locate package" >&2
exit 100
"""


@pytest.fixture
def bare_system(tmp_path):
    """A checkout on a system without any scheduler; ``programs`` are the only ones besides the shell's own."""
    tree, programs = tmp_path / "checkout", tmp_path / "programs"
    (tree / ".ci").mkdir(parents=True)
    (tree / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(ROOT / ".ci" / "schedulers", tree / ".ci")
    (tree / ".venv" / "bin" / "python").write_text("#!/bin/sh\necho 'no matching distribution' >&2\nexit 1\n")
    (tree / ".venv" / "bin" / "python").chmod(0o755)
    programs.mkdir()
    for name in ("bash", "cut", "dirname", "id", "tail", "timeout"):
        (programs / name).symlink_to(shutil.which(name))
    # The script adds the system's own folders for the daemons; there the path ends.
    script = (tree / ".ci" / "schedulers").read_text()
    (tree / ".ci" / "schedulers").write_text(script.replace(":/usr/sbin:/sbin", ""))
    return tree, programs


def schedulers(bare_system):
    tree, programs = bare_system
    result = run(programs / "bash", ".ci/schedulers", cwd=tree, PATH=str(programs), CALLS=str(tree / "calls"))
    return result, dict(line.split(": ", 1) for line in (tree / ".venv" / ".schedulers").read_text().splitlines())


def test_schedulers_that_cannot_be_installed_are_no_failure_and_each_reason_is_kept(bare_system):
    result, reasons = schedulers(bare_system)
    assert result.returncode == 0
    assert reasons == {
        "slurm": "no apt-get to install slurm-wlm munge with",
        "slurmrestd": "no apt-get to install slurmrestd slurm-wlm-jwt-plugin with",
        "openmpi": "no apt-get to install openmpi-bin with",
        "shellcheck": "no apt-get to install shellcheck with",
        "chromium": "no apt-get to install chromium chromium-driver with",
        **dict.fromkeys(BY_PIP, "pip: no matching distribution"),
    }
    assert "slurm: not installable: no apt-get to install slurm-wlm munge with\n" in result.stdout


def test_what_the_package_tool_says_last_is_the_reason(bare_system):
    tree, programs = bare_system
    (programs / "apt-get").write_text(FAKE_APT)
    (programs / "apt-get").chmod(0o755)
    (programs / "id").unlink()
    (programs / "id").write_text("#!/bin/bash\necho 0\n")
    (programs / "id").chmod(0o755)
    result, reasons = schedulers(bare_system)
    assert result.returncode == 0
    assert reasons["openmpi"] == "apt-get: E: Unable to locate package"
    assert (tree / "calls").read_text().splitlines() == ["apt-get update -qq"] * 5
    (programs / "id").write_text("#!/bin/bash\necho 1000\n")
    assert schedulers(bare_system)[1]["openmpi"] == "installing openmpi-bin wants root"


def test_what_is_the_systems_needs_no_environment_and_the_rest_says_why_it_is_absent(bare_system):
    tree, programs = bare_system
    shutil.rmtree(tree / ".venv")
    result = run(programs / "bash", ".ci/schedulers", "system", cwd=tree, PATH=str(programs))
    assert (result.returncode, result.stderr) == (0, "")
    assert tuple(line.partition(":")[0] for line in result.stdout.splitlines()) == BY_APT
    assert not (tree / ".venv").exists()


def test_schedulers_that_are_there_are_not_installed_again(bare_system):
    tree, programs = bare_system
    slurm = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "slurmrestd")
    for name in (*slurm, "mpirun", "orted", "shellcheck", "chromium", "chromedriver"):
        (programs / name).symlink_to(shutil.which("bash"))
    (tree / ".venv" / "bin" / "python").write_text("#!/bin/sh\nexit 0\n")
    result, reasons = schedulers(bare_system)
    assert (result.stdout, reasons) == ("".join(f"{name}: installed\n" for name in BY_APT + BY_PIP), {})


FAKE_MIRROR = """#!/bin/bash
case "$*" in
  indextargets*) echo "Packages main bookworm mirror:/$MIRROR/" ;;
  *) echo "E: no network" >&2; exit 100 ;;
esac
"""


@pytest.mark.parametrize(
    ("mirror", "message"),
    [
        (None, "no apt-get to build it with"),
        ("other", "apt knows no mirror of Debian's bookworm, whose source package is built"),
        ("debian", "apt-get update: E: no network"),
    ],
)
def test_a_kubernetes_that_cannot_be_built_is_no_failure_and_leaves_only_the_reason(bare_system, mirror, message):
    tree, programs = bare_system
    shutil.copy(ROOT / ".ci" / "kubernetes", tree / ".ci")
    (tree / ".venv" / ".schedulers").write_text("ray: no network\nkubernetes: of another day\n")
    path = str(programs)
    (programs / "sed").symlink_to(shutil.which("sed"))
    if mirror is not None:
        (programs / "apt-get").write_text(FAKE_MIRROR)
        (programs / "apt-get").chmod(0o755)
        for name in ("dpkg-deb", "dpkg-source"):
            (programs / name).symlink_to(shutil.which("bash"))
        path += os.pathsep + os.environ["PATH"]
    variables = {"PATH": path, "XDG_CACHE_HOME": str(tree / "cache"), "MIRROR": str(mirror)}
    result = run(programs / "bash", ".ci/kubernetes", cwd=tree, **variables)
    assert (result.returncode, result.stderr) == (0, "")
    assert (tree / ".venv" / ".schedulers").read_text() == f"ray: no network\nkubernetes: {message}\n"
    assert f"kubernetes: not built: {message}\n" in result.stdout
    assert {path.name for path in (tree / "cache").rglob("*")} <= {"meshwright", ".kubernetes.lock"}
    stored = tree / "cache" / "meshwright" / "kubernetes-1.20.2"
    assert run(programs / "bash", ".ci/kubernetes", "folder", cwd=tree, **variables).stdout == f"{stored}\n"


PROOFS = """
import pytest

@pytest.mark.scheduler("slurm")
def test_one(): pass

@pytest.mark.scheduler("slurm")
def test_two(): pass

@pytest.mark.scheduler("ray")
def test_three(): pytest.skip("ray is not installed (ray): no network")

@pytest.mark.scheduler("openmpi")
def test_four(): assert {openmpi}
"""


@pytest.mark.parametrize("options", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)])
def test_with_the_data_reference_tests_pass_and_the_summary_counts_what_was_proved_and_says_why_the_rest_was_not(suite, options):
    (suite / "tests" / "test_proofs.py").write_text(PROOFS.format(openmpi=True))
    result = pytest_run(suite, *options, MESHWRIGHT_REFERENCE=str(suite / "data"))
    assert result.returncode == 0, result.stdout
    assert "5 passed, 1 skipped, 1 xfailed" in result.stdout
    message = (
        "schedulers: openmpi proved (1 test); ray NOT proved: ray is not installed (ray): no network; slurm proved (2 tests)"
    )
    assert message in result.stdout.splitlines()


def test_the_summary_names_the_scheduler_whose_proof_failed(suite):
    (suite / "tests" / "test_all.py").write_text(PROOFS.format(openmpi=False))
    result = pytest_run(suite)
    assert result.returncode == 1
    assert "schedulers: openmpi FAILED (1 of 1); ray NOT proved" in result.stdout


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
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = --import-mode=importlib\ntestpaths = tests\n"
        "markers =\n    reference: needs data\n    scheduler: starts one\n"
    )
    (tmp_path / "tests").mkdir()
    for name in ("conftest.py", "draws.py"):
        shutil.copy(ROOT / "tests" / name, tmp_path / "tests")
    (tmp_path / "tests" / "test_all.py").write_text(SUITE)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "README.md").write_text("")
    return tmp_path


def pytest_run(tree, *options, **variables):
    plugins = ("-p", "no:cacheprovider", *(("-p", "xdist") if "-n" in options else ()))
    variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # the others take as long as all that these tests are about
    return run(sys.executable, "-m", "pytest", *plugins, *options, cwd=tree, **variables)


def test_without_the_variable_absent_data_is_a_skip_and_without_a_proof_there_is_no_line_about_schedulers(suite):
    result = pytest_run(suite)
    assert result.returncode == 0
    assert "1 passed, 2 skipped" in result.stdout
    assert "schedulers:" not in result.stdout


@pytest.mark.parametrize("options", [(), pytest.param(("-n", "2"), marks=pytest.mark.slow)])
def test_with_the_variable_a_skipped_reference_test_is_a_failure(suite, options):
    result = pytest_run(suite, *options, MESHWRIGHT_REFERENCE=str(suite / "absent"))
    assert result.returncode == 1
    assert "must not be skipped" in result.stdout
    assert "skipped," not in result.stdout


@pytest.mark.parametrize("options", [(), pytest.param(("-n", "1"), marks=pytest.mark.slow)])
def test_with_the_variable_the_whole_suite_must_run_a_reference_test(suite, options):
    (suite / "tests" / "test_all.py").write_text("def test_plain(): pass\n")
    whole = pytest_run(suite, *options, MESHWRIGHT_REFERENCE=str(suite / "data"))
    assert whole.returncode == 1
    assert "no reference test ran" in whole.stdout
    if not options:
        part = pytest_run(suite, "tests/test_all.py", MESHWRIGHT_REFERENCE=str(suite / "data"))
        assert part.returncode == 0
