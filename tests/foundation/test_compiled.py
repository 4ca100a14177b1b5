import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import float64, int64

from meshwright.budget_clock import budgets_by, clock_s
from meshwright.compile_cache import function_digest
from meshwright.compiled import for_types_of, njit
from meshwright.compiling import LOADING, CompileTimer, watched
from meshwright.costs.formulas import ring_all_reduce_s

ROOT = Path(__file__).resolve().parents[2]

MODULES = (
    "simulation.step.kernel",
    "simulation.contention.concurrent_kernel",
    "simulation.cluster.dynamics",
    "costs.formulas",
    "envs.batch",
)
# Digests of the compiled functions of these modules, and of a type that writes code itself.
ASK_DIGESTS = f"""
import importlib, json, sys
import numba.extending
from meshwright.budget_clock import budgets_by, clock_s
from meshwright.compile_cache import _types_digest, function_digest
from meshwright.numba_records import Address
digests = {{"Address": _types_digest((Address(dict, {{}}),))}}
for name in {MODULES}:
    module = importlib.import_module(f"meshwright.{{name}}")
    for key, value in vars(module).items():
        if numba.extending.is_jitted(value) and value.py_func.__module__ == module.__name__:
            digests[f"{{name}}.{{key}}"] = function_digest(value)
"""
TELL_DIGESTS = f"{ASK_DIGESTS}\njson.dump(digests, sys.stdout)"

# Calls a compiled function and prints how often it came from the cache, and how often not.
ASK_HITS = """
from meshwright.costs.formulas import ring_all_reduce_s as f
f(1e9, 4, 100e9, 1e-6)
print(sum(f.stats.cache_hits.values()), sum(f.stats.cache_misses.values()))
"""


def _ask(code, tree, **variables):
    env = os.environ | {"PYTHONPATH": str(tree)} | variables
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the package whose files may be edited."""
    made = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "src" / "meshwright", made / "meshwright", ignore=shutil.ignore_patterns("__pycache__"))
    return made


def test_only_an_edit_that_a_function_reaches_changes_its_digest(tree):
    here: dict[str, dict[str, str]] = {}
    exec(ASK_DIGESTS, here)  # where names are hashed by another seed
    before = here["digests"]

    def edit(name, old, new):
        path = tree / "meshwright" / name
        text = path.read_text()
        assert old in text, (name, old)
        later = path.stat().st_mtime + 10  # Python takes a file of the same size and second for the one that it compiled
        path.write_text(text.replace(old, new, 1))
        os.utime(path, (later, later))

    # Another folder, a comment, a docstring and blank lines change nothing.
    edit("simulation/step/kernel.py", '"""Merge two leftist heaps', '\n    """Melt two leftist heaps')
    edit("envs/reward.py", "\n\n\n", "\n\n\n# A remark.\n\n\n")
    # An edit changes what reaches it, in the file of another function too, and nothing else.
    edit("simulation/step/kernel.py", "size + 1", "1 + size")
    edit("numba_records.py", "Tuples of arrays", "Tuples of some arrays")
    edit("envs/batch.py", "OVER = 0, 1, 2, 3", "OVER = 0, 1, 2, 4")
    # Numba itself looks at the file of the outermost function only.
    edit("envs/reward.py", "return value\n", "return 0.0 + value\n")
    after = json.loads(_ask(TELL_DIGESTS, tree, PYTHONHASHSEED="2"))
    now_changed = {name for name in before if after[name] != before[name]}
    assert {"simulation.step.kernel._schedule", "simulation.step.kernel._push", "Address"} < now_changed
    assert "simulation.contention.concurrent_kernel.run_concurrent_jobs" in now_changed
    assert {name for name in now_changed if name.startswith("envs.")} == {"envs.batch._step"}
    stored = {"simulation.step.kernel._merge", "simulation.cluster.dynamics.decide", "costs.formulas.ring_all_reduce_s"}
    assert not stored & now_changed


def test_what_a_constant_holds_is_part_of_the_digest():
    def made(constant):
        def function(x):
            return x + constant

        return function_digest(function)

    assert made(1) == made(1)
    assert len({made(value) for value in (1, 2, 1.0, True, None, "1", (1, 2), np.arange(2), np.arange(2.0), np.arange(3))}) == 10
    with pytest.raises(TypeError, match="no stable spelling"):
        made(object())


def test_a_second_process_takes_what_the_first_compiled_and_a_torn_file_is_compiled_anew(tmp_path, monkeypatch):
    def hits_and_misses(folder):
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(folder))
        again = njit(ring_all_reduce_s.py_func)
        assert again(1e9, 4, 100e9, 1e-6) == ring_all_reduce_s(1e9, 4, 100e9, 1e-6)
        return sum(again.stats.cache_hits.values()), sum(again.stats.cache_misses.values())

    assert hits_and_misses(tmp_path) == (0, 1)
    assert _ask(ASK_HITS, ROOT / "src", NUMBA_CACHE_DIR=str(tmp_path)).split() == ["1", "0"]
    (stored,) = tmp_path.rglob("*.nbc")
    stored.write_bytes(stored.read_bytes()[:100])
    assert hits_and_misses(tmp_path) == (0, 1)
    (tmp_path / "file").write_text("")
    assert hits_and_misses(tmp_path / "file" / "below") == (0, 1)


def test_what_was_stored_loads_numbas_registries_only_where_it_calls_them(tmp_path):
    code = """
import sys, numpy as np; from meshwright.compiled import njit
for f in (njit(lambda x: x[0] + 1), njit(lambda x: x @ x + {1.5: 2.0}[1.5])):
    print(f(np.ones(1)), sum(f.stats.cache_hits.values()), "numba.np.linalg" in sys.modules)
"""
    first, second = (_ask(code, ROOT / "src", NUMBA_CACHE_DIR=str(tmp_path)).splitlines() for _ in range(2))
    assert (first, second) == (["2.0 0 True", "3.0 0 True"], ["2.0 1 False", "3.0 1 True"])


def test_every_compiled_function_is_made_by_the_one_door():
    roots = [ROOT / "src" / "meshwright", *(floor for floor in ROOT.iterdir() if (floor / "__init__.py").is_file())]
    for path in (path for root in roots for path in root.rglob("*.py")):
        assert "from numba import njit" not in path.read_text(), path


def test_a_function_for_types_gives_what_the_function_gives():
    arguments = (1e9, 4, 100e9, 1e-6)
    assert for_types_of(ring_all_reduce_s, *arguments)(*arguments) == ring_all_reduce_s(*arguments)
    assert for_types_of(len, "abc") is len


def test_constants_at_a_call_compile_nothing_more(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    @njit
    def power(base, exponent=1, scale=1.0):
        return scale * base**exponent

    @njit
    def powers(base, exponent):
        return power(base, exponent, 2.0), power(base, 0, 2.0), power(base, exponent=3, scale=0.5), power(2, 3, scale=base)

    assert powers(3, 2) == (18.0, 2.0, 13.5, 24.0)
    assert set(power.overloads) == {(int64, int64, float64), (int64, int64, int64)}


def test_the_innermost_watcher_is_told_and_nested_functions_count_once_in_time(monkeypatch):
    clock = iter([0.0, 0.0, 3.0, 5.0, 7.0, 7.5]).__next__
    monkeypatch.setattr("meshwright.compiling.time.monotonic", clock)
    outer, inner = [], []
    stopwatch = CompileTimer()
    with watched(lambda *message: outer.append(message)), watched(lambda *message: inner.append(message)):
        stopwatch.begin("caller")  # at 0 s
        stopwatch.begin("callee")  # at 3 s
        stopwatch.end()
        stopwatch.end()  # at 5 s
        stopwatch.begin("next")  # at 7 s
    assert inner == [("caller", 1, 0.0), ("callee", 2, 3.0), ("next", 3, 5.5)]
    assert not outer


@pytest.mark.parametrize("clock", ["wall", "cpu"])
def test_the_clock_of_budgets_stops_while_code_is_compiled(clock, monkeypatch):
    monkeypatch.setattr("time.perf_counter", lambda: 7.0)
    monkeypatch.setattr("time.process_time", lambda: 7.0)
    with budgets_by(clock):
        begun_s = clock_s()
        monkeypatch.undo()
        spent_s = LOADING.spent_s[clock]
        compiled = njit(lambda x: x + 1)
        assert compiled(1) == 2
        loaded_s = LOADING.spent_s[clock] - spent_s
        assert compiled(2) == 3
        assert LOADING.spent_s[clock] - spent_s == loaded_s > 0
        monkeypatch.setattr("time.perf_counter", lambda: 9.0 + loaded_s)
        monkeypatch.setattr("time.process_time", lambda: 9.0 + loaded_s)
        assert clock_s() - begun_s == pytest.approx(2.0)
