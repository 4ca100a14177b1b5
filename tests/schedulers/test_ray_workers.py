"""Episodes on a real Ray cluster of three nodes on this machine: the same records as in one process, whatever dies meanwhile.

``MESHWRIGHT_EPISODES=1000`` plays that many episodes; a few by default.
"""

import dataclasses
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from meshwright.envs.benchmark import load_benchmark
from meshwright.errors import ConfigError, MeshwrightError
from meshwright.evaluation.episodes import Player
from meshwright.evaluation.evaluate import evaluate
from meshwright.evaluation.workers import ray as workers_on_ray
from meshwright.evaluation.workers import ray_cluster
from meshwright.evaluation.workers.processes import Processes
from meshwright.evaluation.workers.ray import MOST_CRASHES
from meshwright.evaluation.workers.ray_cluster import BELOW, ray_workers

from . import processes

pytestmark = pytest.mark.scheduler("ray")

NUM_EPISODES = int(os.environ.get("MESHWRIGHT_EPISODES", "24"))
IS_LONG = NUM_EPISODES >= 1000
ROOT = Path(__file__).resolve().parents[2]
SMALL = ["scenario.num_jobs=60", "scenario.num_warmup_jobs=5"]


@pytest.fixture(scope="module")
def on_ray():
    if importlib.util.find_spec("ray") is None:
        pytest.skip(f"ray is not installed: {processes.why_absent('ray')}")
    with ray_workers("local:3") as workers:
        yield workers
    assert raylets() == []


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
    specs = ["fixed-4@best-fit", "random", "rollout(fixed-8)", *([str(network)] if IS_LONG else [])]
    return [(specs[seed % len(specs)], seed) for seed in range(NUM_EPISODES)]


@pytest.fixture(scope="module")
def played_here(benchmark, scenario, tasks):
    return Player(benchmark, scenario).play_all(tasks)


def children(of: int) -> list[int]:
    """Processes that another one has started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(words[1]) == of and words[0] != "Z":
            found.append(int(path.parent.name))
    return sorted(found)


def raylets() -> list[int]:
    """The processes of nodes that this process has started, the head's first."""
    return [pid for pid in children(os.getpid()) if b"raylet\0--raylet_socket_name" in command(pid)]


def command(pid: int) -> bytes:
    """The words of a process, each with a zero byte behind it; empty where it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def lose(node: int) -> None:
    """End all processes of a node at once, as the loss of its machine would: a worker whose raylet alone dies goes on."""
    found = [node]
    for pid in found:
        found += children(pid)
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def same(first, second) -> bool:
    pairs = ((getattr(first, field.name), getattr(second, field.name)) for field in dataclasses.fields(first))
    return all(
        a == b if isinstance(a, dict) else np.array_equal(a, b, equal_nan=np.asarray(a).dtype == np.float64) for a, b in pairs
    )


at_length = pytest.mark.skipif(not IS_LONG, reason="the long form: MESHWRIGHT_EPISODES=1000")


@at_length
def test_two_processes_give_the_records_of_one(benchmark, scenario, tasks, played_here):
    in_two = Player(benchmark, scenario, Processes(2)).play_all(tasks)
    assert all(same(a, b) for a, b in zip(played_here, in_two, strict=True))


def test_three_nodes_give_the_records_of_one_process(on_ray, benchmark, scenario, tasks, played_here):
    counts = []
    on_nodes = Player(benchmark, scenario, on_ray).play_all(tasks, lambda done, of: counts.append((done, of)))
    assert counts == [(done + 1, len(tasks)) for done in range(len(tasks))]
    assert all(same(a, b) for a, b in zip(played_here, on_nodes, strict=True))


def test_what_is_wrong_with_the_input_ends_everything_with_its_own_error(on_ray):
    with pytest.raises(ConfigError, match="no such benchmark and no such file"):
        on_ray.do(load_benchmark, ["quickstart", "no-such-one", "quickstart"], lambda task, found: None)


def test_what_only_a_bug_can_cause_is_raised_and_not_tried_again(on_ray):
    with pytest.raises(ValueError, match="invalid literal"):
        on_ray.do(int, ["1", "one"], lambda task, found: None)


def test_a_task_that_kills_every_worker_is_given_up(on_ray):
    with pytest.raises(MeshwrightError, match=f"^--ray: {MOST_CRASHES} worker processes died over one task; .*unexpectedly"):
        on_ray.do(os._exit, [7], lambda task, found: None)


def test_nodes_with_other_sources_are_refused(on_ray, monkeypatch):
    monkeypatch.setattr(workers_on_ray, "_sources", lambda: "others")
    with pytest.raises(MeshwrightError, match=f"^--ray: the node {socket.gethostname()} lacks the meshwright of this command"):
        on_ray.do(int, ["1"], lambda task, found: None)


def test_a_node_that_is_killed_in_the_middle_changes_nothing(on_ray, benchmark, scenario, tasks, played_here):
    before = raylets()
    assert len(before) == 4

    def kill(done: int, of: int) -> None:
        if done == of // 3:
            lose(before[-1])

    left = Player(benchmark, scenario, on_ray).play_all(tasks, kill)
    assert all(same(a, b) for a, b in zip(played_here, left, strict=True))
    assert before[-1] not in raylets()


def test_the_command_joins_a_running_cluster_and_prints_what_it_prints_without(on_ray, tmp_path):
    import ray

    address = ray.get_runtime_context().gcs_address
    words = ["evaluate", "--benchmark", "quickstart", "min", "--seeds", "2", "--json", "-", "--ray", address]
    sets = [part for change in [*SMALL, "policies=[random]"] for part in ("--set", change)]
    program = [sys.executable, "-c", "from meshwright.cli import main; main()"]
    ran = subprocess.run([*program, *words, *sets], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert ran.returncode == 0, ran.stderr
    benchmark = load_benchmark("quickstart", changes=[*SMALL, "policies=[random]"])
    here = evaluate(benchmark, ["min"], num_seeds=2).results
    assert json.loads(ran.stdout) | {"timing": None} == json.loads(json.dumps(here)) | {"timing": None}


def test_who_is_no_cluster_is_told_in_time(on_ray, monkeypatch):
    monkeypatch.setattr(ray_cluster, "ANSWER_S", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(MeshwrightError, match=r"^--ray: no Ray cluster answers within 2 s"), ray_workers(address):
            pass
    with pytest.raises(MeshwrightError, match=r"^--ray: nobody listens there"), ray_workers(address):
        pass


@at_length
def test_an_interrupt_leaves_nothing_behind(tmp_path):
    program = [sys.executable, "-c", "from meshwright.cli import main; main()"]
    words = ["evaluate", "--ray", "local:1", "--seeds", "100", "rollout", "--json", str(tmp_path / "found.json")]
    process = subprocess.Popen([*program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        processes.wait_for(lambda: any(BELOW.glob(f".r.*/new/session_*_{process.pid}/logs/worker-*.out")), "a worker")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert told == "meshwright: interrupted\n"
