"""The house's plan: package mapping, links, package list and folders on disk say the same."""

import os
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FRONT_DOOR = ROOT / "src" / "meshwright"
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
MAPPING: dict[str, str] = SETUPTOOLS["package-dir"]
DATA_SUFFIXES = {".yaml", ".json", ".csv", ".typed", ".svg", ".html", ".css", ".js", ".lua", ".sh"}


def package_files():
    """Each package on disk, as seen through the links, with its files."""
    for folder, below, names in os.walk(FRONT_DOOR, followlinks=True):
        below[:] = [name for name in below if name != "__pycache__"]
        package = ".".join(("meshwright", *Path(folder).relative_to(FRONT_DOOR).parts))
        files = [Path(folder) / name for name in names if Path(name).suffix in {".py", *DATA_SUFFIXES}]
        if files:
            yield package, files


ON_DISK = dict(package_files())


def test_the_required_folders_stand_at_the_root():
    for name in ("envs", "models", "training", "evaluation", "configs"):
        assert (ROOT / name / "__init__.py").is_file()
        assert not (ROOT / name).is_symlink()


def test_packages_mapping_and_folders_on_disk_are_equal():
    assert sorted(SETUPTOOLS["packages"]) == sorted(ON_DISK)
    assert sorted(MAPPING) == sorted(ON_DISK)


def test_each_mapped_folder_is_the_one_that_its_link_shows():
    for package, folder in MAPPING.items():
        assert FRONT_DOOR.joinpath(*package.split(".")[1:]).resolve() == ROOT / folder, package


def test_there_is_one_relative_link_per_floor():
    links = {path.name: path.readlink() for path in FRONT_DOOR.iterdir() if path.is_symlink()}
    floors = {folder for folder in MAPPING.values() if "/" not in folder}
    assert links == {floor: Path("../..") / floor for floor in floors}
    assert sorted(links) == ["configs", "envs", "evaluation", "models", "training"]


def test_every_folder_with_code_or_data_is_a_package():
    assert [package for package, files in ON_DISK.items() if not any(f.name == "__init__.py" for f in files)] == []


def test_every_data_file_is_packed_into_the_wheel():
    patterns = SETUPTOOLS["package-data"]
    for package, files in ON_DISK.items():
        for file in files:
            if file.suffix != ".py":
                assert any(fnmatch(file.name, pattern) for pattern in patterns.get(package, [])), file


def test_no_other_folder_at_the_root_is_a_package():
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages - {"benchmarks"} == {folder for folder in MAPPING.values() if "/" not in folder}


def test_tests_mirror_the_floors():
    floors = {package.removeprefix("meshwright.") for package in MAPPING if package.count(".") == 1}
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.glob("test_*.py"))}
    assert folders <= floors | {"foundation", "fuzz", "schedulers"}


def test_modules_are_named_for_what_they_hold():
    vague = {"utils", "util", "helpers", "helper", "common", "misc", "manager", "base", "core"}
    assert [file for files in ON_DISK.values() for file in files if file.suffix == ".py" and file.stem in vague] == []


def test_import_linter_knows_every_floor_and_module():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    layers = next(c["layers"] for c in contracts if c["type"] == "layers")
    named = {name.strip() for layer in layers for name in layer.split("|")}
    modules = {f"meshwright.{p.stem}" for p in FRONT_DOOR.iterdir() if p.suffix == ".py" and p.stem != "__init__"}
    floors = {package for package in ON_DISK if package.count(".") == 1}
    assert modules | floors <= named
