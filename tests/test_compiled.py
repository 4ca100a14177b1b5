import os
import shutil
import subprocess
import sys
from pathlib import Path

from meshwright.compiled import for_types_of
from meshwright.costs.formulas import ring_all_reduce_s

ROOT = Path(__file__).resolve().parents[1]
ASK = "from meshwright import compiled; print(compiled.sources_digest())"


def _digest(tree):
    env = os.environ | {"PYTHONPATH": str(tree)}
    return subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, text=True, check=True).stdout.strip()


def test_any_change_of_a_compiled_source_leads_to_another_cache(tmp_path):
    # numba itself looks at the file of the outermost function only: envs/batch.py compiles envs/reward.py in.
    shutil.copytree(ROOT / "src" / "meshwright", tmp_path / "meshwright", ignore=shutil.ignore_patterns("__pycache__"))
    before = _digest(tmp_path)
    assert _digest(tmp_path) == before
    for name in (
        "envs/reward.py",
        "simulation/dynamics.py",
        "simulation/by_reference.py",
        "simulation/pacml/lookahead.py",
        "costs/formulas.py",
    ):
        path = tmp_path / "meshwright" / name
        path.write_text(path.read_text() + "\n")
        after = _digest(tmp_path)
        assert after != before, name
        before = after


def test_every_compiled_function_is_made_by_the_one_door():
    for path in (path for floor in ROOT.iterdir() if (floor / "__init__.py").is_file() for path in floor.rglob("*.py")):
        assert "from numba import njit" not in path.read_text(), path


def test_every_floor_with_compiled_code_is_hashed():
    from meshwright.compiled import FLOORS

    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for floor in ROOT.iterdir()
        if (floor / "__init__.py").is_file() and floor.name not in ("tests", "benchmarks")
        for path in floor.rglob("*.py")
        if "import njit" in path.read_text()
    }
    assert found == set(FLOORS)


def test_a_function_for_types_gives_what_the_function_gives():
    arguments = (1e9, 4, 100e9, 1e-6)
    assert for_types_of(ring_all_reduce_s, *arguments)(*arguments) == ring_all_reduce_s(*arguments)


def test_a_plain_function_is_taken_as_it_is():
    assert for_types_of(len, "abc") is len
