"""The house itself: pins, start-up, import rules, the wheel, documentation, files.

Nothing here reaches the network. A test that writes into a tree works on a copy.
"""

import ast
import importlib.metadata
import json
import re
import sys
import tomllib
import zipfile
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from meshwright.cli import run_command_line

from .tree import FLOORS, PROJECT, ROOT, WITH_TORCH, copy_of_the_tree, python, run

# --- pins ---


def plain(name):
    return name.lower().replace("_", "-")


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return dict(plain(line).split("==") for line in lines if not line.startswith("#"))


def test_every_dependency_is_pinned_to_a_version_that_the_project_accepts():
    dependencies = PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["dev"]
    for requirement in map(Requirement, dependencies):
        assert requirement.specifier.contains(pins()[plain(requirement.name)]), requirement


def test_pins_are_exact_versions_that_any_build_of_a_package_meets():
    for name, version in pins().items():
        assert re.fullmatch(r"[0-9][0-9a-z.]*", version), (name, version)


def test_what_is_installed_is_what_is_pinned():
    for name in ("torch", "numpy", "numba", "gymnasium", "pydantic", "stable-baselines3", "ruff", "mypy"):
        assert importlib.metadata.version(name).partition("+")[0] == pins()[name]


# --- imports ---


HEAVY = {"numpy", "torch", "matplotlib", "plotly", "gymnasium", "numba", "scipy", "networkx", "pydantic", "rich", "typer"}
IMPORTED_IN_TURN = f"""
import importlib, importlib.util, json, pkgutil, sys
import meshwright
by_the_front_door = sorted({HEAVY} & set(sys.modules))
for floor in {[floor for floor in FLOORS if floor not in WITH_TORCH]}:
    package = importlib.import_module(floor)
    for module in pkgutil.walk_packages(package.__path__, floor + "."):
        importlib.import_module(module.name)
below_the_models = sorted({{"torch", "matplotlib", "plotly", "stable_baselines3"}} & set(sys.modules))
shared = [name for name in meshwright.__all__ if importlib.util.find_spec(f"meshwright.{{name}}")]
no_functions = [name for name in shared if not callable(getattr(meshwright, name))]
no_functions += [n for n in shared if importlib.import_module(f"meshwright.{{n}}") and not callable(getattr(meshwright, n))]
print(json.dumps([by_the_front_door, below_the_models, no_functions, len(shared)]))
"""


def test_the_front_door_and_what_lies_below_the_models_load_nothing_heavy_and_public_functions_stay_functions():
    """Whatever was imported: some public functions are called as a folder or module of the package."""
    by_the_front_door, below_the_models, no_functions, num_shared = json.loads(python(IMPORTED_IN_TURN, ROOT))
    assert (by_the_front_door, below_the_models, no_functions) == ([], [], [])
    assert num_shared > 0


WRONG = (
    ("src/meshwright/jobs/wrong.py", "from ..envs import registration", "jobs is not allowed to import meshwright.envs"),
    ("src/meshwright/jobs/wrong.py", "from .. import clusters", "jobs is not allowed to import meshwright.clusters"),
    ("src/meshwright/planners/wrong.py", "def f():\n    import torch.nn", "planners is not allowed to import torch"),
    ("envs/wrong.py", "import sb3_contrib", "envs is not allowed to import sb3_contrib"),
    ("src/meshwright/files.py", "from . import settings", "files is not allowed to import meshwright.settings"),
)
"""Imports that point up, each with the message of the checker; ``make lint`` shows that the tree has none."""


def test_wrong_imports_are_caught_through_the_links(tmp_path):
    tree = copy_of_the_tree(tmp_path / "tree")
    for file, line, _ in WRONG:
        with (tree / file).open("a") as module:
            module.write(f"\n{line}\n")
    program = Path(sys.executable).with_name("lint-imports")
    result = run(program, "--no-cache", "--no-logo", cwd=tree, PYTHONPATH=str(tree / "src"))
    assert result.returncode == 1
    for _, _, message in WRONG:
        assert f"meshwright.{message}" in " ".join(result.stdout.split())


def test_the_environments_register_themselves_by_an_entry_point():
    (entry,) = importlib.metadata.entry_points(group="gymnasium.envs", name="meshwright")
    assert callable(entry.load())


# --- the wheel ---


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build_wheel(copy_of_the_tree(tmp_path_factory.mktemp("wheel") / "tree"))


def build_wheel(tree):
    code = "from setuptools.build_meta import build_wheel; build_wheel('../dist')"
    result = run(sys.executable, "-c", code, cwd=tree)
    assert result.returncode == 0, result.stdout + result.stderr
    (built,) = (tree.parent / "dist").glob("*.whl")
    return built


def test_the_wheel_holds_every_file_of_the_floors_and_nothing_beside_meshwright(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    version = PROJECT["project"]["version"]
    assert {name.split("/")[0] for name in names} == {"meshwright", f"meshwright-{version}.dist-info"}
    expected = {"meshwright/py.typed"}
    for package, folder in PROJECT["tool"]["setuptools"]["package-dir"].items():
        files = [p for p in (ROOT / folder).iterdir() if p.is_file()]
        expected |= {f"{package.replace('.', '/')}/{p.name}" for p in files}
    assert expected == {name for name in names if name.startswith("meshwright/")}


WHAT_A_WHEEL_WOULD_HOLD = """
from setuptools import Distribution
distribution = Distribution({"script_name": "setup.py"})
distribution.parse_config_files()
command = distribution.get_command_obj("build_py")
command.ensure_finalized()
print("\\n".join(path.removeprefix("build/lib/") for path in command.get_outputs(include_bytecode=False)))
"""


def test_a_checkout_without_links_gives_the_same_wheel(wheel, tmp_path):
    tree = copy_of_the_tree(tmp_path / "tree")
    for path in (tree / "src" / "meshwright").iterdir():
        if path.is_symlink():
            path.unlink()
    held = [name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("meshwright/")]
    assert sorted(python(WHAT_A_WHEEL_WOULD_HOLD, tree).split()) == sorted(held)


def test_the_installed_wheel_works_away_from_the_checkout(wheel, tmp_path):
    place = tmp_path / "venv"
    assert run(sys.executable, "-m", "venv", "--without-pip", place, cwd=tmp_path).returncode == 0
    pip = (sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install", "--no-deps", "--no-index")
    installed = run(*pip, "--no-compile", wheel, cwd=tmp_path)
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
    reported = run(place / "bin" / "meshwright", "--help", cwd=tmp_path)
    assert reported.returncode == 0, reported.stderr


# --- documentation ---


def test_the_examples_of_the_quickstart_run_in_one_session_as_printed(tmp_path, monkeypatch):
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "quickstart.md").read_text(), re.DOTALL)
    assert len(examples) == 2
    monkeypatch.chdir(tmp_path)
    exec("\n".join(examples), {})


def test_the_examples_of_the_environments_run_in_one_session_as_printed(tmp_path, monkeypatch, capsys):
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "environments.md").read_text(), re.DOTALL)
    assert len(examples) == 2
    monkeypatch.chdir(tmp_path)
    exec("\n".join(examples), {})
    assert "candidates\n(256, 13, 14)" in capsys.readouterr().out


def test_a_network_of_ones_own_learns_as_printed_and_is_compared(tmp_path, monkeypatch, capsys):
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "learning_researcher.md").read_text(), re.DOTALL)
    learns, agent = (next(example for example in examples if mark in example) for mark in ("sb3_env(", "class Agent"))
    (tmp_path / "my_agent.py").write_text(agent)
    monkeypatch.chdir(tmp_path)
    exec(learns, {})
    learned = int(re.search(r"episodes: (-?\d+) of 60", capsys.readouterr().out)[1])
    assert learned > 48, "random candidates return 8, the best rule 48"
    assert run_command_line(["evaluate", "python:my_agent:Agent", "--benchmark", "toy"]) == 0
    assert "Agent beats the best baselines" in capsys.readouterr().out


def test_the_versions_of_libraries_are_within_what_the_extras_accept():
    pinned = dict(re.findall(r"([\w-]+)==([\w.]+)", (ROOT / ".ci" / "libraries").read_text()))
    extras = PROJECT["project"]["optional-dependencies"]
    for requirement in (Requirement(each) for extra in ("rllib", "tianshou", "torchrl") for each in extras[extra]):
        assert pinned[requirement.name] in requirement.specifier, requirement


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


# --- rooms ---

MODULES = {
    ".".join((package, *([] if path.stem == "__init__" else [path.stem]))): path
    for package, folder in PROJECT["tool"]["setuptools"]["package-dir"].items()
    for path in (ROOT / folder).glob("*.py")
}
DOCUMENTED = {"meshwright.models.fleet.hetero": "fleet.md", "meshwright.models.candidate_scorer": "environments.md"}
"""Modules that no command and no public name reaches, each with the page that says what they are for."""


def python_files():
    folders = {ROOT / folder for folder in PROJECT["tool"]["setuptools"]["package-dir"].values() if "/" not in folder}
    return [path for folder in (*folders, ROOT / "src", ROOT / "tests", ROOT / "benchmarks") for path in folder.rglob("*.py")]


def test_what_is_imported_is_declared():
    project = PROJECT["project"]
    every = [project["dependencies"], *project["optional-dependencies"].values()]
    declared = {plain(Requirement(each).name) for some in every for each in some}
    declared |= {"tensordict", "torchvision"}  # with TorchRL; of one's own choice, for `calibrate measure`
    packages = importlib.metadata.packages_distributions()
    for module, path in MODULES.items():
        names = {name.partition(".")[0] for name in imports_and_classes(module, path)[0]}
        for name in names - sys.stdlib_module_names - {"meshwright"}:
            assert declared & set(map(plain, packages.get(name, [name]))), (module, name)


def test_no_folder_holds_more_than_fifteen_python_files():
    rooms = Counter(path.parent.relative_to(ROOT).as_posix() for path in python_files() if path.name != "__init__.py")
    assert {room: number for room, number in rooms.items() if number > 15} == {}


def test_no_file_is_longer_than_four_hundred_lines():
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in python_files()}
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def tracked(*patterns):
    """Text files below the root that git tracks, in order; exports that a user leaves in the checkout do not count."""
    listed = run("git", "ls-files", "--cached", "--", *patterns, cwd=ROOT)
    assert listed.returncode == 0, listed.stderr
    return [path for name in sorted(set(listed.stdout.splitlines())) if (path := ROOT / name).is_file() and not path.is_symlink()]


def sizes():
    """Return lines of Python by folder, in total and of the tests, and words of documentation, as ``budget.toml`` names them."""
    budget = tomllib.loads((ROOT / "tests" / "budget.toml").read_text())
    lines = {path.relative_to(ROOT).as_posix(): len(path.read_bytes().splitlines()) for path in tracked("*.py")}
    source = {name: count for name, count in lines.items() if not name.startswith("tests/")}
    rooms = Counter()
    for name, count in source.items():
        rooms[max((room for room in budget["source"] if name.startswith(f"{room}/")), key=len, default="elsewhere")] += count
    words = sum(len(path.read_text().split()) for path in tracked("docs/*.md", "README.md"))
    now = {"docs_words": words, "tests": sum(lines.values()) - sum(source.values())}
    return budget, now | {
        "source": {"total": sum(source.values()), **{room: rooms[room] for room in budget["source"] if room != "total"}}
    }


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a checkout of git")
def test_the_house_is_within_its_budget_which_falls_with_it():
    """No count above its budget, and no budget left more than a fiftieth above its count."""
    budget, now = sizes()
    pairs = {name: (now[name], budget[name]) for name in ("docs_words", "tests")}
    pairs |= {f"source {room}": (now["source"][room], limit) for room, limit in budget["source"].items()}
    assert {name: pair for name, pair in pairs.items() if pair[0] > pair[1]} == {}
    assert {name: pair for name, pair in pairs.items() if pair[1] > pair[0] + 60 + pair[0] // 50} == {}


def statements(nodes):
    """All statements, also those within others."""
    for node in nodes:
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, part, ()))


@cache
def imports_and_classes(module, path):
    """Return the modules of this package that a module imports or starts as a program, and its public classes.

    The syntax tree is not kept: the garbage collector would look through all of them often.
    """
    text = path.read_text()
    tree, imported = ast.parse(text), set()
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names_a_program = re.search(r"""["']meshwright\.""", text)  # most do not, and their expressions need not be looked at
    for node in ast.walk(tree) if names_a_program else statements(tree.body):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            home = ".".join([*above, *([node.module] if node.module else [])])
            imported |= {home, *(f"{home}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("meshwright."):
            imported.add(node.value.partition(":")[0])
    return imported, [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def test_every_module_is_reached_from_a_command_a_public_name_or_an_entry_point():
    public = re.findall(r'^    "\w+": "([\w.]+)",$', (ROOT / "src" / "meshwright" / "__init__.py").read_text(), re.M)
    commands = [entry.partition(":")[0] for entry in PROJECT["project"]["scripts"].values()]
    environments = [entry.partition(":")[0] for entry in PROJECT["project"]["entry-points"]["gymnasium.envs"].values()]
    programs = [module for module, path in MODULES.items() if 'if __name__ == "__main__":' in path.read_text()]
    waiting = [*(f"meshwright.{home}" for home in public), *commands, *environments, *programs, *DOCUMENTED]
    reached = set()
    while waiting:
        module = waiting.pop()
        if module in MODULES and module not in reached:
            reached.add(module)
            waiting += [module.rpartition(".")[0], *imports_and_classes(module, MODULES[module])[0]]
    data = {module for module, path in MODULES.items() if path.name == "__init__.py"}
    assert sorted(MODULES.keys() - reached - data) == []
    for module, page in DOCUMENTED.items():
        assert module.removeprefix("meshwright.") in (ROOT / "docs" / page).read_text()


def test_the_name_of_a_public_class_stands_once():
    homes = defaultdict(list)
    programs = {str(path): path for path in (*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / ".ci").glob("*.py"))}
    for module, path in (MODULES | programs).items():
        for name in imports_and_classes(module, path)[1]:
            homes[name].append(path.relative_to(ROOT).as_posix())
    assert {name: result for name, result in homes.items() if len(result) > 1} == {}


def test_no_code_of_an_outcome_or_a_rule_is_a_bare_number():
    coded = re.compile(r"\b(?:outcome|obstacle|rule|candidate_rule)(?:\[[^\]]*\])? (?:==|!=|<|>|<=|>=|=) \d")
    results = [
        f"{module}: {line.strip()}"
        for module, path in MODULES.items()
        for line in path.read_text().splitlines()
        if coded.search(line)
    ]
    assert results == []
