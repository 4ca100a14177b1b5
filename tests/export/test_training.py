"""Training strategies in exports: what each target says, what it refuses, and the snippets run by two processes."""

import importlib
import importlib.util
import json
import socket
import subprocess
import sys

import pytest

from meshwright.errors import ExportError
from meshwright.export.training import SNIPPET, STRATEGY, snippet
from meshwright.export.writer import export
from meshwright.planning.search import search_layouts
from meshwright.plans.compression import LowRank, Quantise
from meshwright.plans.document import PlacementPlan
from meshwright.plans.training import DiLoCo, Gossip, LocalSgd, PostLocalSgd

LOCAL = LocalSgd(every=2)


@pytest.fixture(scope="module")
def plan():
    return search_layouts("zoo:gpt2-small", "preset:host-8", batch=8, keep="zero=0,pp=1,tp=1,cp=1", devices="2").plan


def _with(plan, **keys):
    return plan.model_copy(update=keys)


@pytest.mark.parametrize("training", [LOCAL, PostLocalSgd(every=2, warmup_steps=1), DiLoCo(every=9), Gossip(topology="aer")])
def test_launchers_of_scripts_get_the_strategy_and_a_snippet(plan, training):
    rendered = export(_with(plan, training=training), "torchrun")
    assert json.loads(rendered[STRATEGY])["training"]["kind"] == training.kind
    compile(rendered[SNIPPET], SNIPPET, "exec")
    assert set(export(plan, "torchrun")) == set(rendered) - {STRATEGY, SNIPPET}
    with pytest.raises(ExportError, match="nearest plan"):
        export(_with(plan, training=training), "megatron")


def test_a_plan_with_a_strategy_is_kept_whole_and_one_without_reads_as_before(plan, tmp_path):
    made = _with(plan, training=LOCAL, compression=None)
    made.save(tmp_path / "plan.json")
    read = PlacementPlan.model_validate(json.loads((tmp_path / "plan.json").read_text()))
    assert read.training == LOCAL
    assert "training" not in plan.model_dump(mode="json", exclude_none=True)


RUN = """
import gc, os, sys, torch, torch.distributed as dist
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + sys.argv[2], rank=int(sys.argv[1]), world_size=2)
torch.manual_seed(0); import {module} as strategy
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 1))
model = net if {bare} else torch.nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{prepare}
for step in range(7):  # averages follow steps 0, 2, 4 and 6
    optimizer.zero_grad()
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * step + int(sys.argv[1])))
    (model(x) ** 2).mean().backward()
    optimizer.step()
    {after}
mine = torch.cat([p.detach().flatten() for p in net.parameters()])
every = [torch.empty_like(mine) for _ in range(2)]
dist.all_gather(every, mine)
assert torch.allclose(every[0], every[1], atol=1e-6), (every[0] - every[1]).abs().max()
assert torch.isfinite(mine).all()
del model, net, optimizer; gc.collect(); dist.destroy_process_group()  # Gloo aborts if they outlive the interpreter
"""


def run_twice(folder):
    """Run the folder's ``run.py`` in two processes, which find each other at a free port."""
    with socket.socket() as result:
        result.bind(("127.0.0.1", 0))
        port = str(result.getsockname()[1])
    runs = [
        subprocess.Popen([sys.executable, "run.py", str(rank), port], cwd=folder, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    messages = [run.communicate(timeout=120)[1] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], messages


@pytest.mark.parametrize(
    ("keys", "bare", "prepare", "after"),
    [
        ((LOCAL, None), True, "", "strategy.average(model.parameters())"),
        ((PostLocalSgd(every=2, warmup_steps=2), None), False, "optimizer = strategy.prepare(model, optimizer)", ""),
        ((None, Quantise(bits=16)), False, "strategy.code_gradients(model)", ""),
        ((None, LowRank(rank=1)), False, "strategy.code_gradients(model)", ""),
        ((None, Quantise(bits=8)), False, "strategy.code_gradients(model)", ""),
    ],
    ids=["local-sgd", "post-local-sgd", "quantise-16", "low-rank", "quantise-8"],
)
@pytest.mark.slow
def test_a_snippet_runs_in_two_processes(keys, bare, prepare, after, tmp_path):
    pytest.importorskip("torch")
    if keys[1] == Quantise(bits=8):
        torch = sys.modules["torch"]
        if not torch.cuda.is_available():
            pytest.skip("torch's quantisation hooks move scales to a CUDA device")
    (tmp_path / "strategy.py").write_text(snippet(*keys))
    (tmp_path / "run.py").write_text(RUN.format(module="strategy", bare=bare, prepare=prepare, after=after or "pass"))
    run_twice(tmp_path)


@pytest.mark.parametrize(("package", "training"), [("torchft", DiLoCo(every=2)), ("decent_dp", Gossip(topology="aer"))])
def test_a_snippet_of_another_package_imports(package, training):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    exec(compile(snippet(training, None), SNIPPET, "exec"), {})


GOSSIP_RUN = """
import os, sys
import torch
import torch.distributed as dist
from strategy import decentralised

torch.set_num_threads(1)
rank, port = int(sys.argv[1]), sys.argv[2]
os.environ["LOCAL_WORLD_SIZE"] = "1"
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
torch.manual_seed(0)
model = decentralised(torch.nn.Linear(4, 2), lambda named: torch.optim.SGD([one for _, one in named], lr=0.1))
for _ in range(4):
    model(torch.randn(3, 4) + rank).pow(2).mean().backward()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("topology", ["one-peer-exp", "ring", "complete"])
@pytest.mark.slow
def test_gossip_runs_in_two_processes(topology, tmp_path):
    if importlib.util.find_spec("decent_dp") is None:
        pytest.skip("decent_dp is not installed")
    (tmp_path / "strategy.py").write_text(snippet(Gossip(topology=topology), None))
    (tmp_path / "run.py").write_text(GOSSIP_RUN)
    run_twice(tmp_path)


DILOCO_RUN = """
import datetime, os, sys, time
import torch
import torch.distributed as dist
from strategy import diloco
from torchft import Manager, ProcessGroupGloo
from torchft.coordination import LighthouseServer

torch.set_num_threads(1)
rank, port = int(sys.argv[1]), sys.argv[2]
if rank == 0:
    lighthouse = LighthouseServer(bind=f"127.0.0.1:{port}", min_replicas=2, join_timeout_ms=10_000)
store = dist.TCPStore("127.0.0.1", 0, is_master=True)
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
inner = torch.optim.SGD(model.parameters(), lr=0.1)
outer = torch.optim.SGD(model.parameters(), lr=1.0)  # takes the mean of both
wait = datetime.timedelta(seconds=60)
where = {"store_addr": "127.0.0.1", "store_port": store.port, "lighthouse_addr": f"http://127.0.0.1:{port}"}
manager = Manager(
    pg=ProcessGroupGloo(), load_state_dict=None, state_dict=None, min_replica_size=2, use_async_quorum=False, init_sync=False,
    rank=0, world_size=1, replica_id=f"replica_{rank}", hostname="127.0.0.1",
    timeout=wait, quorum_timeout=wait, connect_timeout=wait, **where,
)
drawn = torch.Generator().manual_seed(1 + rank)
with diloco(manager, model, inner, outer):
    for _ in range(4):
        inner.zero_grad()
        model(torch.randn(3, 4, generator=drawn)).pow(2).mean().backward()
        inner.step()
torch.save(model.state_dict(), f"{rank}.pt")
while rank == 0 and not os.path.exists("1.pt"):  # the lighthouse is in this process
    time.sleep(0.1)
manager.shutdown(wait=False)
os._exit(0)
"""


@pytest.mark.slow
def test_diloco_runs_in_two_processes_and_averages_after_each_period(tmp_path):
    if importlib.util.find_spec("torchft") is None:
        pytest.skip("torchft is not installed")
    torch = pytest.importorskip("torch")
    (tmp_path / "strategy.py").write_text(snippet(DiLoCo(every=2), None))
    (tmp_path / "run.py").write_text(DILOCO_RUN)
    run_twice(tmp_path)
    torch.manual_seed(0)
    held = torch.nn.Linear(4, 2).state_dict()
    drawn = [torch.Generator().manual_seed(1 + rank) for rank in range(2)]
    for _ in range(2):  # two steps of each by itself, then the mean
        both = []
        for numbers in drawn:
            model = torch.nn.Linear(4, 2)
            model.load_state_dict(held)
            inner = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(2):
                inner.zero_grad()
                model(torch.randn(3, 4, generator=numbers)).pow(2).mean().backward()
                inner.step()
            both.append({name: value.detach().clone() for name, value in model.state_dict().items()})
        held = {name: (both[0][name] + both[1][name]) / 2 for name in held}
    for rank in range(2):
        for name, value in torch.load(tmp_path / f"{rank}.pt").items():
            assert torch.allclose(value, held[name], atol=1e-6)
