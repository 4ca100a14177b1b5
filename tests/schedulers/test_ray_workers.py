"""Episodes on a real Ray cluster of several nodes on this machine: the records of one process, whatever dies meanwhile.

``MESHWRIGHT_EPISODES=1000`` plays that many episodes; a few by default.
"""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from meshwright.envs.benchmark import load_benchmark
from meshwright.errors import ConfigError, MeshwrightError
from meshwright.evaluation import workers
from meshwright.evaluation.cluster.episodes import carried, play_episodes
from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.playing import play_all
from meshwright.evaluation.workers import Workers, worker_count

from . import processes

pytestmark = pytest.mark.scheduler("ray")

GPUS = {"first": 0, "second": 0}
NUM_EPISODES = int(os.environ.get("MESHWRIGHT_EPISODES", "24"))
IS_LONG = NUM_EPISODES >= 1000
ROOT = Path(__file__).resolve().parents[2]
SMALL = ["scenario.num_jobs=60", "scenario.num_warmup_jobs=5"]


@pytest.fixture(scope="module")
def on_ray(loopback_ray):
    with worker_count(loopback_ray.address) as joined:
        yield joined


@pytest.fixture(scope="module")
def benchmark():
    return load_benchmark("quickstart", changes=SMALL)


@pytest.fixture(scope="module")
def scenario(benchmark):
    return benchmark.build()


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """A rule, one with random numbers and a planner; at length a trained policy by its file too."""
    from meshwright.planning.policies import policy_file

    network = tmp_path_factory.mktemp("run") / "policy.pt"
    shutil.copy(policy_file("shipped:quickstart"), network)
    return ["fixed-4@best-fit", "random", "rollout(fixed-8)", *([str(network)] if IS_LONG else [])]


def records(scenario, specs, workers=Workers(), progress=None):  # noqa: B008
    """Of an equal part of all episodes for each policy."""
    seeds = range(NUM_EPISODES // len(specs))
    result = play_all(play_episodes, scenario, carried(specs, scenario), seeds, workers=workers, progress=progress)
    return [record for one in result.values() for record in one.records]


@pytest.fixture(scope="module")
def played_here(scenario, tasks):
    return records(scenario, tasks)


def children(of: int) -> list[int]:
    """Processes that another one has started."""
    results = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(words[1]) == of and words[0] != "Z":
            results.append(int(path.parent.name))
    return sorted(results)


def lose(node: int) -> None:
    """End all processes of a node at once, as the loss of its machine would: a worker whose raylet alone dies keeps running."""
    results = [node]
    for pid in results:
        results += children(pid)
    for pid in results:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def same(first, second) -> bool:
    pairs = ((getattr(first, field.name), getattr(second, field.name)) for field in dataclasses.fields(first))
    return all(
        a == b if isinstance(a, dict) else np.array_equal(a, b, equal_nan=np.asarray(a).dtype == np.float64) for a, b in pairs
    )


at_length = pytest.mark.skipif(not IS_LONG, reason="the long form: MESHWRIGHT_EPISODES=1000")


@at_length
def test_two_processes_give_the_records_of_one(scenario, tasks, played_here):
    in_two = records(scenario, tasks, Workers(2))
    assert all(same(a, b) for a, b in zip(played_here, in_two, strict=True))


def test_a_node_that_is_killed_in_the_middle_changes_nothing(loopback_ray, on_ray, scenario, tasks, played_here):
    counts = []

    def kill(done: int, of: int) -> None:
        counts.append((done, of))
        if done == of // 3:
            lose(loopback_ray.raylets["second"])

    left = records(scenario, tasks, on_ray, kill)
    assert all(same(a, b) for a, b in zip(played_here, left, strict=True))
    assert counts == [(done + 1, len(left)) for done in range(len(left))]
    assert not Path(f"/proc/{loopback_ray.raylets['second']}/fd/0").exists()


def test_an_error_of_a_task_is_raised_as_it_is(on_ray):
    with pytest.raises(ConfigError, match="no such benchmark and no such file"):
        on_ray.do(load_benchmark, ["quickstart", "no-such-one", "quickstart"], lambda task, result: None)


def test_a_task_that_kills_every_worker_is_given_up(on_ray, loopback_ray):
    with pytest.raises(MeshwrightError, match=rf"^--jobs: .*\(got '{loopback_ray.address}'\)$"):
        on_ray.do(os._exit, [7], lambda task, result: None)


def test_nodes_with_other_sources_are_refused(on_ray, monkeypatch):
    monkeypatch.setattr(workers, "_sources", lambda: "others")
    with pytest.raises(MeshwrightError, match="has other sources of meshwright than this command"):
        on_ray.do(int, ["1"], lambda task, result: None)


def test_an_address_where_nobody_listens_is_refused(on_ray):
    with pytest.raises(MeshwrightError, match=r"^--jobs: no cluster: .*refused"), worker_count("127.0.0.1:1"):
        pass


def words_of(*words: str) -> list[str]:
    return [sys.executable, "-c", "from meshwright.cli import main; main()", "evaluate", *words]


def test_the_command_starts_ray_and_prints_what_it_prints_without(on_ray, tmp_path):
    words = ["--benchmark", "quickstart", "min", "--seeds", "2", "--json", "-", "--jobs", "local:2"]
    sets = [part for change in [*SMALL, "policies=[random]"] for part in ("--set", change)]
    ran = subprocess.run(words_of(*words, *sets), capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert ran.returncode == 0, ran.stderr
    benchmark = load_benchmark("quickstart", changes=[*SMALL, "policies=[random]"])
    here = evaluate(benchmark, ["min"], num_seeds=2).results
    assert json.loads(ran.stdout) | {"timing": None} == json.loads(json.dumps(here)) | {"timing": None}


@at_length
def test_an_interrupt_leaves_nothing_behind(on_ray, tmp_path):
    words = words_of("--jobs", "local:1", "--seeds", "100", "rollout", "--json", str(tmp_path / "found.json"))
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        processes.wait_for(lambda: any(Path("/tmp").glob(f"ray-*/session_*_{process.pid}/logs/worker-*.out")), "a worker")
        begun = children(process.pid)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, said) == (130, "meshwright: interrupted\n")
    processes.wait_for(lambda: not any(Path(f"/proc/{pid}/fd").exists() for pid in begun), "the end of Ray's processes")
    assert not list(Path("/tmp").glob(f"ray-*/session_*_{process.pid}"))
