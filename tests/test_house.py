"""The house's tooling: pins, wheel, import rules, make, the whole check, and the rule for reference tests.

Nothing here reaches the network. What writes into a tree works on a copy.
"""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FLOORS = sorted(p for p in PROJECT["tool"]["setuptools"]["packages"] if p.count(".") == 1)
WITH_TORCH = {"meshwright.models", "meshwright.training", "meshwright.evaluation"}
WORDS = ["format", "lint", "type", "test", "docs", "bench", "demo", "clean"]


def run(*command, cwd, **variables):
    """A command's result; the variables of a surrounding make, test run or CI do not reach it."""
    hidden = ("MAKE", "MFLAGS", "PYTEST", "MESHWRIGHT_", "WORKERS", "ARGS", "PYTHONPATH")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(hidden)} | variables
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def python(code, cwd, **variables):
    result = run(sys.executable, "-c", code, cwd=cwd, **variables)
    assert result.returncode == 0, result.stderr
    return result.stdout


def copy_of_the_tree(to):
    """What the wheel is made of, links kept as links."""
    to.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, to)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src", to / "src", symlinks=True, ignore=ignored)
    for floor in FLOORS:
        folder = PROJECT["tool"]["setuptools"]["package-dir"][floor]
        if "/" not in folder:
            shutil.copytree(ROOT / folder, to / folder, ignore=ignored)
    return to


# --- pins ---


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(line.lower().replace("_", "-").split("==") for line in lines if not line.startswith("#"))


def test_every_dependency_is_pinned_to_a_version_that_the_project_accepts():
    dependencies = PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["dev"]
    for requirement in map(Requirement, dependencies):
        name = requirement.name.lower().replace("_", "-")
        assert requirement.specifier.contains(pins()[name]), requirement


def test_pins_are_exact_versions_that_any_build_of_a_package_meets():
    for name, version in pins().items():
        assert re.fullmatch(r"[0-9][0-9a-z.]*", version), (name, version)


def test_what_is_installed_is_what_is_pinned():
    for name in ("torch", "numpy", "numba", "gymnasium", "pydantic", "stable-baselines3", "ruff", "mypy"):
        assert importlib.metadata.version(name).partition("+")[0] == pins()[name]


# --- imports ---


def test_the_front_door_opens_fast_and_loads_nothing_heavy():
    code = "import sys, meshwright; print(sorted({'torch', 'matplotlib', 'gymnasium', 'numba', 'scipy'} & set(sys.modules)))"
    assert python(code, ROOT).strip() == "[]"
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        python("import meshwright", ROOT)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.3


def test_no_module_below_the_models_loads_torch_or_matplotlib():
    below = [floor for floor in FLOORS if floor not in WITH_TORCH]
    code = (
        "import importlib, pkgutil, sys\n"
        f"for floor in {below}:\n"
        "    package = importlib.import_module(floor)\n"
        "    for module in pkgutil.walk_packages(package.__path__, floor + '.'):\n"
        "        importlib.import_module(module.name)\n"
        "print(sorted({'torch', 'matplotlib', 'stable_baselines3'} & set(sys.modules)))"
    )
    assert python(code, ROOT).strip() == "[]"


def lint_imports(tree):
    command = ("lint-imports", "--no-cache", "--no-logo")
    return run(Path(sys.executable).with_name(command[0]), *command[1:], cwd=tree, PYTHONPATH=str(tree / "src"))


def test_the_tree_as_it_stands_keeps_its_import_rules(tmp_path):
    result = lint_imports(copy_of_the_tree(tmp_path / "tree"))
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("file", "line", "told"),
    [
        ("jobs/wrong.py", "from ..envs import registration", "meshwright.jobs is not allowed to import meshwright.envs"),
        ("jobs/wrong.py", "from .. import clusters", "meshwright.jobs is not allowed to import meshwright.clusters"),
        ("planners/wrong.py", "def f():\n    import torch.nn", "meshwright.planners is not allowed to import torch"),
        ("envs/wrong.py", "import sb3_contrib", "meshwright.envs is not allowed to import sb3_contrib"),
        ("src/meshwright/files.py", "from . import settings", "meshwright.files is not allowed to import meshwright.settings"),
    ],
)
def test_a_wrong_import_is_caught_through_the_links(tmp_path, file, line, told):
    tree = copy_of_the_tree(tmp_path / "tree")
    with (tree / file).open("a") as module:
        module.write(f'\n"""A wrong module."""\n{line}\n')
    result = lint_imports(tree)
    assert result.returncode == 1
    assert told in " ".join(result.stdout.split())


def test_the_environments_register_themselves_by_an_entry_point():
    (entry,) = importlib.metadata.entry_points(group="gymnasium.envs", name="meshwright")
    assert callable(entry.load())


# --- the wheel ---


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(copy_of_the_tree(tmp_path_factory.mktemp("wheel") / "tree"))


def build_wheel(tree):
    result = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tree.parent / "dist", cwd=tree)
    assert result.returncode == 0, result.stdout + result.stderr
    (built,) = (tree.parent / "dist").glob("*.whl")
    return built


def test_the_wheel_holds_every_file_of_the_floors_and_nothing_beside_meshwright(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    version = PROJECT["project"]["version"]
    assert {name.split("/")[0] for name in names} == {"meshwright", f"meshwright-{version}.dist-info"}
    wanted = {"meshwright/py.typed"}
    for package, folder in PROJECT["tool"]["setuptools"]["package-dir"].items():
        files = [p for p in (ROOT / folder).iterdir() if p.is_file()]
        wanted |= {f"{package.replace('.', '/')}/{p.name}" for p in files}
    assert wanted == {name for name in names if name.startswith("meshwright/")}


def test_a_checkout_without_links_gives_the_same_wheel(wheel, tmp_path):
    tree = copy_of_the_tree(tmp_path / "tree")
    for path in (tree / "src" / "meshwright").iterdir():
        if path.is_symlink():
            path.unlink()
    plain = build_wheel(tree)
    assert sorted(zipfile.ZipFile(plain).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_the_installed_wheel_works_away_from_the_checkout(wheel, tmp_path):
    place = tmp_path / "venv"
    assert run(sys.executable, "-m", "venv", "--without-pip", place, cwd=tmp_path).returncode == 0
    pip = (sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install", "--no-deps", "--no-index")
    installed = run(*pip, wheel, cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr
    # Other packages come from this environment. A .pth file of its own hides the editable install: the .pth files of
    # a folder that stands in a .pth file are not read.
    (site,) = place.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(str(Path(importlib.metadata.distribution("numpy").locate_file(""))))
    code = (
        "import importlib, importlib.resources as r, json\n"
        f"modules = [importlib.import_module(name) for name in {FLOORS}]\n"
        "import meshwright\n"
        "root = r.files('meshwright')\n"
        "folders = [d for d in root.joinpath('configs').iterdir() if d.is_dir()]\n"
        "yaml = [f.name for d in folders for f in d.iterdir() if f.name.endswith('.yaml')]\n"
        "from meshwright.devices import device_type\n"
        "print(json.dumps([meshwright.__file__, device_type('a100').name, yaml]))\n"
        "for bare in ('envs', 'models', 'configs', 'jobs'):\n"
        "    assert importlib.util.find_spec(bare) is None, bare\n"
    )
    result = run(place / "bin" / "python", "-c", code, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    file, device, yaml = json.loads(result.stdout)
    assert Path(file).is_relative_to(site)
    assert device == "a100"
    assert sorted(yaml) == sorted(p.name for p in (ROOT / "configs").glob("*/*.yaml"))
    told = run(place / "bin" / "meshwright", "--help", cwd=tmp_path)
    assert told.returncode == 0, told.stderr


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


# --- documentation ---


def test_the_examples_of_the_quickstart_run_in_one_session_as_printed(tmp_path):
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "quickstart.md").read_text(), re.DOTALL)
    assert len(examples) == 2
    python("\n".join(examples), tmp_path)


# --- files ---


def check_files(tree, *names):
    return run(sys.executable, ROOT / ".ci" / "check_files.py", *names, cwd=tree)


def test_large_files_and_links_that_lead_astray_are_told(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "large").write_bytes(b"0" * 1_000_001)
    (tree / "small").write_bytes(b"0" * 1_000_000)
    (tree / "good").symlink_to("small")
    (tree / "absolute").symlink_to(tree / "small")
    (tree / "dangling").symlink_to("absent")
    (tree / "outside").symlink_to("..")
    result = check_files(tree, "large", "small", "good", "absolute", "dangling", "outside")
    assert result.returncode == 1
    assert [line.split(":")[0] for line in result.stderr.splitlines()] == ["large", "absolute", "dangling", "outside"]
    assert check_files(tree, "small", "good").returncode == 0


def test_the_hooks_of_pre_commit_run_what_the_environment_holds():
    assert run(sys.executable, "-m", "pre_commit", "validate-config", cwd=ROOT).returncode == 0
    entries = re.findall(r"entry: \.venv/bin/(\S+)", (ROOT / ".pre-commit-config.yaml").read_text())
    assert entries
    assert [name for name in entries if not Path(sys.executable).with_name(name).exists()] == []
