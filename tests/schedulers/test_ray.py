"""The Ray export in a real cluster of four nodes on this machine: bundles are where the plan puts them, in order.

A rank's node is found without Ray's help too: the node's raylet is the ancestor of all processes that it starts.
"""

import json
import shlex
import signal
import sys
from pathlib import Path

import pytest

from meshwright.cli import run_command_line as meshwright
from meshwright.export import export, read_places, verify, write
from meshwright.live.keeping import KeptState
from meshwright.plans.document import PlacementPlan

from . import processes
from .ray_cluster import ancestors

pytestmark = pytest.mark.scheduler("ray")

# Neither sorted nor grouped, and unequal: every device of three hosts.
DEVICES = ["gpu-10/1", "gpu-03/0", "gpu-10/0", "gpu-07/0", "gpu-03/1"]
GPUS = {"gpu-03": 2, "gpu-07": 1, "gpu-10": 2}

SHOW = """
import json, os, pathlib, time
names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "MESHWRIGHT_TP")
folder, rank = pathlib.Path(__file__).parent, os.environ["RANK"]
part = folder / f"part{rank}"
part.write_text(json.dumps([os.environ.get(name) for name in names] + [os.getpid()]))
part.rename(folder / rank)
while not (folder / "seen").exists():  # the test looks at the process while it is there
    time.sleep(0.1)
"""

REDUCE = """
import os, pathlib, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([10 ** dist.get_rank()])
dist.all_reduce(total)
(pathlib.Path(__file__).parent / os.environ["RANK"]).write_text(str(total.item()))
dist.destroy_process_group()
"""


@pytest.fixture
def driver_for(tmp_path):
    """``driver_for(devices, **options)``: the plan, and its exported driver."""

    def make(devices, **options):
        ranks = []
        for rank, device in enumerate(devices):
            host, _, local = device.partition("/")
            place = dict.fromkeys(("pp", "dp", "cp", "ep"), 0) | {"tp": rank}
            ranks.append({"rank": rank, "host": host, "local_rank": int(local), "device": int(local), "coordinates": place})
        plan = PlacementPlan.model_validate({"job": {"name": "proof"}, "ranks": ranks})
        folder = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
        write(export(plan, "ray", {"wait_s": 60, **options}), folder)
        return plan, folder / "driver.py"

    return make


@pytest.fixture
def said(tmp_path):
    folder = tmp_path / "said"
    folder.mkdir()
    return folder


def test_bundles_are_on_the_planned_nodes_in_order(loopback_ray, driver_for, said):
    plan, driver = driver_for(DEVICES, command=_program(said, SHOW))
    job = loopback_ray.start(driver)
    try:
        processes.wait_for(lambda: len(list(said.glob("[0-9]"))) == len(DEVICES), "every rank's word")
        result = {int(path.name): json.loads(path.read_text()) for path in said.glob("[0-9]")}
        for rank, host in enumerate(["gpu-10", "gpu-03", "gpu-10", "gpu-07", "gpu-03"]):
            above = ancestors(result[rank][-1])
            assert {name for name, raylet in loopback_ray.raylets.items() if raylet in above} == {host}
    finally:
        (said / "seen").touch()
        printed, message = job.communicate(timeout=60)
    assert job.returncode == 0, message
    # rank, world, local rank, ranks of the host, port, devices of the host in the order of its ranks, tp
    assert [result[rank][:-1] for rank in range(5)] == [
        ["0", "5", "0", "2", "29500", "1,0", "0"],
        ["1", "5", "0", "2", "29500", "0,1", "1"],
        ["2", "5", "1", "2", "29500", "1,0", "2"],
        ["3", "5", "0", "1", "29500", "0", "3"],
        ["4", "5", "1", "2", "29500", "0,1", "4"],
    ]
    verified = verify(plan, "ray", read_places(printed))
    assert verified.agrees, verified.first
    assert verified.compared == ("device", "coordinates", "world")


def test_the_probe_says_the_same_from_within_the_ranks(loopback_ray, driver_for):
    plan, driver = driver_for(DEVICES, probe=True)
    ran = loopback_ray.run(driver)
    assert ran.returncode == 0, ran.stderr
    from_ranks = "\n".join(line for line in ran.stdout.splitlines() if "(RankActor pid=" in line)
    assert sorted(place.rank for place in read_places(from_ranks)) == [0, 1, 2, 3, 4]
    assert verify(plan, "ray", read_places(from_ranks)).agrees


def test_the_ranks_form_one_group(loopback_ray, driver_for, said):
    [port] = processes.free_ports(1)
    _, driver = driver_for(["gpu-10/0", "gpu-03/1", "gpu-03/0"], command=_program(said, REDUCE), master_port=port)
    ran = loopback_ray.run(driver)
    assert ran.returncode == 0, ran.stderr
    assert [(said / str(rank)).read_text() for rank in range(3)] == ["111"] * 3  # 1 + 10 + 100


@pytest.mark.parametrize(
    ("devices", "reasons"),
    [
        (
            ["gpu-10/0", "gpu-99/0", "gpu-98/0", "gpu-99/1"],
            ["1, 3: no node carries host=gpu-99", "2: no node carries host=gpu-98"],
        ),
        (["gpu-07/0", "gpu-03/0", "gpu-07/1"], ["0, 2: 2 GPUs are wanted and gpu-07 has 1"]),
    ],
)
def test_bundles_that_cannot_be_placed_are_named_in_time(loopback_ray, driver_for, devices, reasons):
    _, driver = driver_for(devices, command="true", wait_s=2)
    ran = loopback_ray.run(driver)
    assert ran.returncode == 1
    assert ran.stdout == ""
    (line,) = [line for line in ran.stderr.splitlines() if line.startswith("driver.py")]
    assert line == f"driver.py: not placed within 2 s: {'; '.join(f'bundles {reason}' for reason in reasons)}"


def test_a_driver_that_is_ended_ends_its_ranks_and_until_then_their_devices_are_in_use(
    loopback_ray, driver_for, said, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    _, first = driver_for(["gpu-07/0"], command=_program(said, SHOW), decision="mine")
    job = loopback_ray.start(first)
    try:
        processes.wait_for((said / "0").exists, "the rank's word")
        _, second = driver_for(["gpu-03/0", "gpu-07/0"], command="true", wait_s=2)
        ran = loopback_ray.run(second)
        assert ran.returncode == 1
        assert "bundles 1: GPUs of gpu-07 are in use" in ran.stderr
        ledger = KeptState(tmp_path / "state.db")
        assert meshwright(["state", "read", "ray", "--state", str(ledger.path), "--set", f"address={loopback_ray.address}"]) == 0
        assert [(held.decision, dict(held.devices)) for held in ledger.read().jobs] == [("mine", {"gpu-07": (0,)})]
        pid = json.loads((said / "0").read_text())[-1]
        job.send_signal(signal.SIGTERM)
        _, message = job.communicate(timeout=60)
        assert job.returncode == 143, message
        processes.wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the rank's end")
    finally:
        job.kill()
        job.communicate()
    _, third = driver_for(["gpu-03/0", "gpu-07/0"], command="true")
    assert loopback_ray.run(third).returncode == 0


def test_a_rank_that_fails_ends_the_job(loopback_ray, driver_for, said):
    script = "echo $$ >part$RANK; mv part$RANK $RANK; [ $RANK = 0 ] || { until [ -f 0 ]; do sleep 0.1; done; exit 7; }; sleep 99"
    command = shlex.join(["env", f"--chdir={said}", "bash", "-c", script])
    _, driver = driver_for(["gpu-10/0", "gpu-03/1"], command=command)
    ran = loopback_ray.run(driver)
    assert ran.returncode == 1
    assert "driver.py: rank 1 on gpu-03 ended with status 7" in ran.stderr
    other = (said / "0").read_text().strip()
    processes.wait_for(lambda: not Path(f"/proc/{other}").exists(), "the other rank's end")


def test_a_program_that_is_not_there_is_named(loopback_ray, driver_for):
    _, driver = driver_for(["gpu-10/0"], command="no-such-program")
    ran = loopback_ray.run(driver)
    assert ran.returncode == 1
    assert "rank 0 on gpu-10 ended with status 127" in ran.stderr
    assert "no-such-program: No such file or directory" in ran.stdout + ran.stderr


HOLD = """
import pathlib, ray, time
ray.init(log_to_driver=False)
group = ray.util.placement_group([{"GPU": 1}, {"GPU": 2}], strategy="STRICT_SPREAD", name="mw:mine")
ray.get(group.ready())
waits = ray.util.placement_group([{"GPU": 4}])
@ray.remote(num_gpus=1)
class Outside:
    def is_there(self):
        return True
outside = Outside.options(label_selector={"host": "gpu-07"}).remote()
ray.get(outside.is_there.remote())
(pathlib.Path(__file__).parent / "0").touch()
time.sleep(600)
"""


def test_the_state_is_who_holds_what_and_a_second_listing_changes_nothing(loopback_ray, said, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONWARNINGS", "ignore")
    ledger = KeptState(tmp_path / "state.db")
    words = ["state", "read", "ray", "--state", str(ledger.path), "--set", f"address={loopback_ray.address}"]
    (said / "hold.py").write_text(HOLD)
    job = loopback_ray.start(said / "hold.py")
    try:
        processes.wait_for((said / "0").exists, "the group and the actor")
        assert meshwright(words) == 0
        assert "Ray reports how many GPUs of a node a group holds, not which: indices are assumed" in capsys.readouterr().out
        state = ledger.read()
        group, actor = state.jobs
        assert (group.name, group.decision) == ("mw:mine", "mine")
        assert sorted(group.devices.values()) == [(0,), (0, 1)]
        assert set(group.devices) == {"gpu-03", "gpu-10"}
        assert (actor.id, dict(actor.devices)) == ("unlisted/gpu-07", {"gpu-07": (0,)})
        assert {name: state.hosts[name].num_devices for name in GPUS} == GPUS
        assert meshwright(words) == 0
        assert "nothing changed" in capsys.readouterr().out
        assert len(ledger.changes()) == 1
    finally:
        job.terminate()
        job.communicate(timeout=60)

    def is_free() -> bool:
        return meshwright(words) == 0 and ledger.read().jobs == ()

    processes.wait_for(is_free, "free devices")


def _program(folder: Path, text: str) -> str:
    """The command that runs a program's text."""
    (folder / "program.py").write_text(text)
    return shlex.join([sys.executable, str(folder / "program.py")])
