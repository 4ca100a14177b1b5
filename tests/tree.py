"""Shared by the tests of the house itself: the project file, commands in a clean environment, a copy of the tree."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FLOORS = sorted(p for p in PROJECT["tool"]["setuptools"]["packages"] if p.count(".") == 1)
WITH_TORCH = {"meshwright.models", "meshwright.planning", "meshwright.training", "meshwright.evaluation", "meshwright.profiling"}
WORDS = ["format", "lint", "type", "test", "laws", "test-libraries", "test-schedulers", "test-kubernetes"]
WORDS += ["validate-sharing", "stress", "mutants", "fuzz", "frozen", "monotone", "newest", "docs", "bench", "demo"]
WORDS += ["results", "results-quick", "clean"]


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
    """Copy the sources of the wheel, links kept as links."""
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


def built(page):
    """The Markdown of a page of the documentation with the tables that the build makes of the program."""
    spec = importlib.util.spec_from_file_location("generated_tables", ROOT / "docs" / "generated.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.filled((ROOT / "docs" / page).read_text())
