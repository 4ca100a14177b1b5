"""schedule.csv: torch's own runtime reads it, adds what is sent and runs it to its end."""

import subprocess
import sys

import pytest

from meshwright.errors import ExportError
from meshwright.export import export
from meshwright.export.launchers.torchrun import compute_rows
from meshwright.plans import Layout

from ..frameworks.test_deepspeed import plan_of

EAGER = Layout(pp=2, dp=1, micro_batch=1, global_batch=4, schedule="eager-1f1b", overlap_pp=True)

RUN = """
import sys
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

rank, rendezvous, schedule_csv = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method="file://" + rendezvous, rank=rank, world_size=2)
torch.manual_seed(0)
layers = [torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)]
stage = PipelineStage(layers[rank], rank, 2, torch.device("cpu"))
runtime = _PipelineScheduleRuntime([stage], 4, loss_fn=torch.nn.functional.mse_loss)
runtime._load_csv(schedule_csv)
x, target = torch.randn(8, 3), torch.randn(8, 3)
runtime.step(x) if rank == 0 else runtime.step(target=target)
whole = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in layers))
whole.load_state_dict({f"{i}.{name}": value for i, one in enumerate(layers) for name, value in one.state_dict().items()})
torch.nn.functional.mse_loss(whole(x), target).backward()
torch.testing.assert_close(layers[rank].weight.grad, whole[rank].weight.grad)
dist.destroy_process_group()
"""


def test_two_stages_worked_by_hand():
    assert compute_rows(EAGER) == "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n"


def test_only_plans_that_torch_has_no_schedule_for_have_the_file():
    hosts, devices = ["a", "a"], [0, 1]
    assert export(plan_of(hosts, devices, EAGER), "torchrun")["schedule.csv"] == compute_rows(EAGER)
    plain = EAGER.model_copy(update={"schedule": "1f1b"})
    assert "schedule.csv" not in export(plan_of(hosts, devices, plain), "torchrun")


@pytest.mark.parametrize("target", ["megatron", "deepspeed"])
def test_launchers_without_the_schedule_name_the_nearest_plan(target):
    with pytest.raises(ExportError, match="schedule=1f1b with overlap_pp=false is the nearest"):
        export(plan_of(["a", "a"], [0, 1], EAGER), target)


@pytest.mark.parametrize(("p", "m"), [(2, 1), (2, 5), (4, 3), (4, 8), (8, 20)])
def test_torch_can_add_what_is_sent_without_a_deadlock(p, m):
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules", reason="PyTorch is not installed")
    layout = Layout(pp=p, micro_batch=1, global_batch=m, schedule="eager-1f1b", overlap_pp=True)
    rows = compute_rows(layout).splitlines()  # which torch reads by private names alone
    passes = {stage: [schedules._Action.from_str(cell) for cell in row.split(",")] for stage, row in enumerate(rows)}
    with_sends = schedules._add_send_recv(passes, stage_to_rank=lambda stage: stage, num_stages=p)
    assert sum(len(row) for row in with_sends.values()) == 2 * m * p + 4 * m * (p - 1)
    assert schedules._simulate_comms_compute(with_sends, stage_to_rank=lambda stage: stage, num_stages=p)


@pytest.mark.slow
def test_torch_runs_the_file_and_finds_the_gradients_of_the_whole_model(tmp_path):
    pytest.importorskip("torch.distributed.pipelining", reason="PyTorch is not installed")
    (tmp_path / "schedule.csv").write_text(compute_rows(EAGER))
    (tmp_path / "run.py").write_text(RUN)
    words = [sys.executable, str(tmp_path / "run.py")]
    given = [str(tmp_path / "rendezvous"), str(tmp_path / "schedule.csv")]
    started = [subprocess.Popen([*words, str(rank), *given], stderr=subprocess.PIPE, text=True) for rank in range(2)]
    ended = [process.communicate(timeout=120)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], ended
