"""Mutation checks: changes one thing at a time in modules that must be right, and counts the changes that no test sees.

``python .ci/mutants.py`` checks one change in twenty of every group below, ``python .ci/mutants.py legality --every 1`` all of
one group. ``export --every 1 --of slurm`` checks all changes of the modules whose path holds a word. Their tests are those whose
path holds it too, or else all of the group; ``--by kubernetes test_export`` names the tests by other words. Each group is a copy
of the tree under ``.cache/mutants`` (mutmut follows no links, and the floors are links below ``src``). Prints, for each module,
how many changes a test killed and how many survived, and writes the surviving ones to ``.cache/mutants/GROUP.diff``.

mutmut is installed into ``.venv/mutmut`` on first use, at a pinned version and apart from the project's dependencies. It is the
one tool that forks for each change after all imports, so that a change costs the time of its own tests alone. One run in advance
finds these tests. It changes statements of functions. Its rules for text are replaced. A string without blanks (a key, an
option, a name) is changed, a message is not. A line of a text in triple quotes, such as a line of a generated script, is left
out.

A change takes effect when a test begins, and caches of `functools` are cleared then. Code that runs when a module is imported,
or once for all tests (a factory of a table of constants), is not reached. Its changes count as surviving; check them by hand.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TOOL = ROOT / ".venv" / "mutmut"
PINS = ("mutmut==3.8.1", "libcst==1.9.0", "setproctitle==1.3.8", "coverage==7.17.3")
WORK = ROOT / ".cache" / "mutants"
KILLED = (1, 3)
"""Statuses of a test run that failed, or that the change broke."""


@dataclass(frozen=True)
class MutationGroup:
    """Modules, and the tests that must see a change in them.

    Attributes:
        modules: patterns below the package.
        tests: files and folders of tests.
        without: parts of the names of tests among them that are left out, as they start processes or kill them.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()


_EXPORT = ROOT / "tests/export"
_EXPORT_TESTS = sorted(
    path.relative_to(_EXPORT).as_posix() for path in _EXPORT.rglob("test_*.py") if path.name != "test_hostile.py"
)

_FLOWS = ("collectives", "phases", "shared_links", "nccl")

_LIVE = ROOT / "tests/live"
_WITH_PROCESSES = ("client", "kills", "openapi", "pages_in_a_browser", "pricing", "rights")
_LIVE_TESTS = sorted(
    path.relative_to(_LIVE).as_posix()
    for path in _LIVE.rglob("test_*.py")
    if path.stem.removeprefix("test_") not in _WITH_PROCESSES
)

GROUPS = {
    "legality": MutationGroup(
        ("plans/legality.py",),
        ("tests/plans", "tests/planning/phases/test_masked.py", "tests/costs/resharding/test_searched_meshes.py"),
    ),
    "collectives": MutationGroup(
        ("costs/collectives/*.py", "costs/collectives/libraries/*.py"),
        ("tests/costs/collectives", *(f"tests/costs/test_{name}.py" for name in _FLOWS)),
    ),
    # Without what starts services or kills processes, and the laws over the service's document, which are slow.
    "live": MutationGroup(
        ("live/**/*.py",),
        tuple(f"tests/live/{name}" for name in _LIVE_TESTS),
        without=("many_make_at_once", "of_two_processes", "after_a_kill", "killed_anywhere"),
    ),
    # Without the laws over hostile texts: they run every script some hundred times.
    "export": MutationGroup(("export/*.py", "export/*/*.py"), tuple(f"tests/export/{name}" for name in _EXPORT_TESTS)),
}


def main(words: list[str]) -> int:
    """Check the named groups, or all of them; 1 where mutmut itself fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help="all by default")
    parser.add_argument("--every", type=int, default=20, help="check one change in so many (default: %(default)s)")
    parser.add_argument("--of", nargs="*", default=[], help="only modules whose path holds such a word, by tests of that name")
    parser.add_argument("--by", nargs="*", default=[], help="only tests whose path holds such a word (default: that of --of)")
    parser.add_argument("--workers", type=int, default=2, help="changes at a time (default: %(default)s)")
    parser.add_argument("--within", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    if options.within:
        return _run_mutmut(options.within, options.every, options.workers)
    _install()
    for name in options.groups or GROUPS:
        folder = _copy(name, options.of, options.by or options.of)
        again = [sys.executable, __file__, "--within", name, "--every", str(options.every), "--workers", str(options.workers)]
        # The same examples in every run of a law, and no other copy of the package on the path.
        environment = {**os.environ, "CI": "true", "PYTHONPATH": str(TOOL)}
        done = subprocess.run(again, cwd=folder, env=environment, check=False)  # noqa: S603 - this file
        if done.returncode:
            return 1
        _report(name, folder)
    return 0


def _install() -> None:
    if (TOOL / "mutmut").is_dir():
        return
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "install",
        "-q",
        "--no-deps",
        "--target",
        str(TOOL),
        *PINS,
    ]
    subprocess.run(command, check=True)  # noqa: S603 - pip and the pins above


def _copy(name: str, words: list[str], words_of_tests: list[str]) -> Path:
    """Return the tree of a group, its floors no links, with mutmut's settings; without words all of its modules, by all tests."""
    folder = WORK / name
    shutil.rmtree(folder, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "_build")
    for part in ("src", "tests", "docs"):  # some tests hold the pages against the code
        shutil.copytree(ROOT / part, folder / part, ignore=ignored)
    group = GROUPS[name]
    package = folder / "src/meshwright"
    result = sorted({path.relative_to(folder).as_posix() for pattern in group.modules for path in package.glob(pattern)})
    modules = [path for path in result if not words or any(word in path for word in words)]
    named = [path for path in group.tests if any(word in path for word in words_of_tests)]
    options = ["-p", "no:cacheprovider", "-m", "not scheduler and not slow and not reference"]
    if group.without:
        options += ["-k", f"not ({' or '.join(group.without)})"]
    settings = {
        "source_paths": ["src"],
        "also_copy": ["docs"],
        "only_mutate": modules,
        "pytest_add_cli_args_test_selection": named or list(group.tests),
        "pytest_add_cli_args": [*options, "-W", "ignore::pytest.PytestAssertRewriteWarning"],
        "use_git_change_detection": False,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    project = (ROOT / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text("\n".join([project, "[tool.mutmut]", *lines, ""]))
    return folder


def _run_mutmut(name: str, every: int, workers: int) -> int:
    """Run mutmut in the working folder with our operators and one change in so many."""
    import hypothesis
    import libcst
    from mutmut.__main__ import cli
    from mutmut.mutation import file_mutation, mutators
    from mutmut.runners.harness import PytestRunner
    from mutmut.state import state

    operators = mutators.mutation_operators
    place = next(number for number, (_, operator) in enumerate(operators) if operator is mutators.operator_string)
    operators[place] = (libcst.BaseString, _words_only(mutators.operator_string))
    operators += [(libcst.FormattedString, _without_a_line), (libcst.Arg, _text_without_a_line)]
    create = file_mutation.create_mutations

    def sampled(filename: str, *rest: Any) -> tuple[Any, list[Any], set[str], set[str]]:
        module, mutations, *ignored = create(filename, *rest)
        drawn = [one for number, one in enumerate(mutations) if zlib.crc32(f"{filename} {number}".encode()) % every == 0]
        return (module, drawn, *ignored)

    file_mutation.create_mutations = sampled
    run_tests, load_profile = PytestRunner.run_tests, hypothesis.settings.load_profile

    def quickest_first(self: Any, *, mutant_name: str | None, tests: Any) -> int:
        if mutant_name is not None:
            _forget()
        by_duration = sorted(tests, key=lambda test: (state().duration_by_test.get(test, 0.0), test))
        return int(run_tests(self, mutant_name=mutant_name, tests=by_duration))

    def without_shrinking(name: str) -> None:  # that a law is broken is enough
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile("mutants", hypothesis.settings.get_profile(name), phases=phases)
        load_profile("mutants")

    PytestRunner.run_tests = quickest_first
    type.__setattr__(hypothesis.settings, "load_profile", staticmethod(without_shrinking))  # it lets nobody set it otherwise
    # What the tests start as a program of its own imports the changed package too.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path("mutants/src").resolve()), str(TOOL)])
    cli.main(["run", "--max-children", str(workers)], standalone_mode=False)
    return 0


def _forget() -> None:
    """Forget what functions of ours keep by `functools`, which the tests before worked out without the change."""
    cached = type(lru_cache(str))
    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "meshwright"]:
        for owner in (module, *(one for one in vars(module).values() if isinstance(one, type))):
            for value in vars(owner).values():
                if isinstance(value, cached):
                    value.cache_clear()


def _words_only(operator: Any) -> Any:
    def mutate(node: Any) -> Iterator[Any]:
        if " " not in getattr(node, "value", " "):
            yield from operator(node)

    return mutate


def _without_a_line(node: Any) -> Iterator[Any]:
    """Yield an f-string in triple quotes without one of its lines, comments and empty ones aside."""
    import libcst

    if not node.start.endswith('"""'):
        return
    pieces: list[tuple[int, Any]] = []
    line = 0
    for part in node.parts:
        chunks = part.value.splitlines(keepends=True) if isinstance(part, libcst.FormattedStringText) else [part]
        for chunk in chunks:
            pieces.append((line, chunk))
            line += isinstance(chunk, str) and chunk.endswith("\n")
    for number in range(line + 1):
        text = "".join(chunk if isinstance(chunk, str) else "{}" for at, chunk in pieces if at == number)
        if text.strip() and not text.startswith("#"):
            left = [
                libcst.FormattedStringText(chunk) if isinstance(chunk, str) else chunk for at, chunk in pieces if at != number
            ]
            yield node.with_changes(parts=left)


def _text_without_a_line(node: Any) -> Iterator[Any]:
    """Yield the same for a plain string that is an argument."""
    import libcst

    if not (isinstance(node.value, libcst.SimpleString) and node.value.value.startswith('"""')):
        return
    lines = node.value.value[3:-3].splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.strip() and not line.startswith("#"):
            text = "".join([*lines[:number], *lines[number + 1 :]])
            yield node.with_changes(value=libcst.SimpleString(f'"""{text}"""'))


def _report(name: str, folder: Path) -> None:
    """Print a row for each module, and write down what survived."""
    total: Counter[str] = Counter()
    survived: list[str] = []
    for meta in sorted((folder / "mutants" / "src").rglob("*.py.meta")):
        statuses = json.loads(meta.read_text())["exit_code_by_key"]
        counts = Counter(_outcome(status) for status in statuses.values())
        total += counts
        module = meta.relative_to(folder / "mutants" / "src" / "meshwright").as_posix().removesuffix(".meta")
        print(f"{module:36}{_row(counts)}")  # noqa: T201
        source = meta.with_suffix("")
        survived += [_diff(source, key) for key, status in statuses.items() if _outcome(status) == "survived"]
    print(f"{name:36}{_row(total)}")  # noqa: T201
    (WORK / f"{name}.diff").write_text("\n".join(survived))


def _outcome(status: int | None) -> str:
    if status in KILLED:
        return "killed"
    if status in (0, 5, 33):  # 5 and 33: no test comes that way
        return "survived"
    return "not run" if status is None else "stopped"


def _row(counts: Counter[str]) -> str:
    return "".join(f"{counts[outcome]:>6} {outcome}" for outcome in ("killed", "stopped", "survived", "not run"))


def _diff(source: Path, key: str) -> str:
    """Return a surviving change as a diff of its function."""
    base = key.rpartition(".")[2]
    functions = _functions(source)
    original, changed = (functions.get(name, []) for name in (base.rpartition("__mutmut_")[0] + "__mutmut_orig", base))
    lines = difflib.unified_diff(original, changed, lineterm="", n=1)
    return "\n".join([f"# {key}", *[line for line in lines if not line.startswith(("---", "+++"))], ""])


@lru_cache(maxsize=1)
def _functions(source: Path) -> dict[str, list[str]]:
    """Return the lines of each function, in which mutmut's names are the module's own, by mutmut's names."""
    text = source.read_text()
    lines = re.sub(r"__mutmut_(orig|\d+)", "", text).splitlines()
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name: lines[node.lineno - 1 : node.end_lineno] for node in nodes}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
