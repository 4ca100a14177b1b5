"""Arguments of FSDP2 in mesh.py: by hand, and four processes whose gradients are those of the whole model."""

from types import ModuleType

import pytest

from meshwright.clusters.cluster import Cluster, load_cluster
from meshwright.export import export
from meshwright.planning.search import search_layouts
from meshwright.plans import PlacementPlan

from ..launchers.test_torchrun import launch_here

# Hooks of FSDP hold references to the process group; Gloo aborts when the interpreter ends before they are freed.
PROGRAM = """
import gc, mesh, torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))
    x = torch.randn(4, 8)
    model(x).pow(2).mean().backward()
    whole = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    arguments = mesh.fully_shard_arguments("cpu")
    for block in (*model, model):
        fully_shard(block, **arguments)
    place = mesh.coordinates(dist.get_rank())["dp"]
    model(x[place : place + 1]).pow(2).mean().backward()
    for parameter, wanted in zip(model.parameters(), whole):
        assert torch.allclose(parameter.grad.full_tensor(), wanted, atol=1e-6)
    if place == 0:
        shape, micro_batch = tuple(arguments["mesh"].shape), mesh.SCRIPT["micro_batch"]
        print(arguments["mesh"].mesh_dim_names, shape, arguments["reshard_after_forward"], micro_batch)

dist.init_process_group("gloo")
main()
gc.collect()
dist.destroy_process_group()
"""


def planned(keys, launcher="fsdp2") -> PlacementPlan:
    data = load_cluster("preset:dgx-a100-8x8").to_data() | {"host_names": ["localhost", *(f"h{host}" for host in range(1, 8))]}
    keep = f"dp=4,micro_batch=2,{keys}"
    return search_layouts("zoo:gpt2-small", Cluster.from_data(data), devices="4", batch=16, launcher=launcher, keep=keep).plan


def module(plan) -> ModuleType:
    made = ModuleType("mesh")
    exec(compile(export(plan, "torchrun")["mesh.py"], "mesh.py", "exec"), made.__dict__)
    return made


def test_zero_2_keeps_parameters_and_the_script_is_told_the_rest():
    text = export(planned("zero=2,recompute=none"), "torchrun")["mesh.py"]
    assert '"reshard_after_forward": False' in text
    script = module(planned("zero=3,recompute=full")).SCRIPT
    keys = ("micro_batch", "num_micro_batches", "recompute", "precision")
    assert [script[key] for key in keys] == [2, 2, "full", "bf16"]
    assert "param_dtype=torch.bfloat16, reduce_dtype=torch.float32" in text


def test_layouts_of_other_frameworks_have_no_arguments_of_fsdp2():
    assert "fully_shard" not in export(planned("zero=3", launcher=None), "torchrun")["mesh.py"]


@pytest.mark.scheduler("torchrun")
@pytest.mark.parametrize(
    ("keys", "message"),
    [("zero=2", "('dp_shard',) (4,) False 2"), ("zero=3,shard_group=2", "('dp_replicate', 'dp_shard') (2, 2) True 2")],
)
def test_four_processes_sum_the_gradients_of_the_whole_model(tmp_path, keys, message):
    plan = planned(f"{keys},precision=fp32,attention=unfused,recompute=none")
    ran = launch_here(plan, PROGRAM, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [message]
