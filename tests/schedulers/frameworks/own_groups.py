"""The groups that the frameworks' own code makes of each rank's words and number, run as a program.

``python own_groups.py`` reads plans, one a line: framework, degrees that a DeepSpeed script says itself, the
export's folder, and of each rank its words. It prints the ranks of each rank's groups, by axis. Parsers of words:
Megatron-LM's argument parser (at ``MEGATRON_LM``), torchtitan's ``JobConfig`` and DeepSpeed's configuration class.
Makers of groups: the megatron-core of that parser, torchtitan's ``ParallelDims``, DeepSpeed's topology and the exported
``mesh.py``, over PyTorch's fake process group.
"""

import argparse
import importlib.util
import json
import os
import sys
import tomllib
import types
import warnings
from functools import cache
from pathlib import Path

import torch.distributed as dist
from torch.distributed import get_process_group_ranks as ranks_of

MEGATRON_LM = os.environ.get("MEGATRON_LM", f"{sys.prefix}/launchers/megatron-lm")
"""A checkout, or a wheel since 0.17, which has its parser."""


@cache
def megatron_parser():
    """Megatron-LM's own; of its package only what it needs of the machine is stood in for."""
    from deepspeed_launch import stand_in

    sys.path.insert(0, MEGATRON_LM)
    stand_in("megatron.training", f"{MEGATRON_LM}/megatron/training")
    request = ("get_device_arch_version", "update_use_dist_ckpt", "print_rank_0", "warn_rank_0")
    stand_in("megatron.training.utils", **dict.fromkeys(request))
    from megatron.training.arguments import add_megatron_arguments

    return add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))


def megatron(words, plan):
    """As ``megatron/training/initialize.py`` calls it."""
    read = megatron_parser().parse_args(words)
    from megatron.core import parallel_state as state

    sizes = ("tensor_model", "pipeline_model", "context", "expert_model", "expert_tensor")
    options = {f"{size}_parallel_size": getattr(read, f"{size}_parallel_size") for size in sizes}
    order = "tp-cp-ep-pp-dp" if read.use_tp_pp_dp_mapping else "tp-cp-ep-dp-pp"
    state.destroy_model_parallel()
    state.initialize_model_parallel(**options, order=order, create_gloo_process_groups=False)
    made = {"tp": state.get_tensor_model_parallel_group(), "pp": state.get_pipeline_model_parallel_group()}
    made |= {"dp": state.get_data_parallel_group(), "cp": state.get_context_parallel_group()}
    return made | {"ep": state.get_expert_model_parallel_group()}


def torchtitan(words, plan):
    from torchtitan_modules import module, read_table

    assert words[0] == "--job.config_file"
    read = read_table(module("config.job_config").JobConfig, tomllib.loads(Path(words[1]).read_text())).parallelism
    dims = module("distributed.parallel_dims").ParallelDims(
        dp_replicate=read.data_parallel_replicate_degree,
        dp_shard=read.data_parallel_shard_degree,
        **{"cp": read.context_parallel_degree, "tp": read.tensor_parallel_degree, "pp": read.pipeline_parallel_degree},
        **{"ep": read.expert_parallel_degree, "etp": read.expert_tensor_parallel_degree, "world_size": plan["world"]},
    )
    dims.build_mesh()
    meshes = {axis: dims.get_optional_mesh(name) for axis, name in zip(AXES, ("pp", "batch", "cp", "ep", "tp"), strict=True)}
    assert all((mesh is None) == (plan["degrees"][axis] == 1) for axis, mesh in meshes.items())
    return {axis: [plan["rank"]] if mesh is None else mesh.get_group() for axis, mesh in meshes.items()}


def deepspeed(words, plan):
    from deepspeed.runtime import config
    from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

    assert words[0] == "--deepspeed_config"
    config.dist.get_rank = lambda: 0  # its own backend would be compiled first
    degrees = plan["degrees"]
    read = config.DeepSpeedConfig(words[1], mpu=types.SimpleNamespace(get_data_parallel_world_size=lambda: degrees["dp"]))
    assert read.zero_optimization_stage == plan["zero"]
    own = PipeModelDataParallelTopology(num_pp=degrees["pp"], num_mp=degrees["tp"], num_dp=degrees["dp"])
    at = own.get_coord(plan["rank"])._asdict()
    places = {axis: {other: value for other, value in at.items() if other != axis} for axis in at}
    return {axis: own.filter_match(**places[name]) for axis, name in (("pp", "pipe"), ("dp", "data"), ("tp", "model"))}


def fsdp2(words, plan):
    (file,) = Path(plan["folder"]).rglob("mesh.py")
    spec = importlib.util.spec_from_file_location("mesh", file)
    mesh = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mesh)
    assert mesh.fully_shard_arguments("cpu")["mesh"].size() == plan["world"]
    dp = mesh.device_mesh("cpu")["dp"]
    order = dp.mesh.tolist()
    assert ranks_of(dp.get_group()) == sorted(order)
    return {"dp": order}


AXES = ("pp", "dp", "cp", "ep", "tp")
OWN = {"megatron": megatron, "torchtitan": torchtitan, "deepspeed": deepspeed, "fsdp2": fsdp2}


def main():
    warnings.simplefilter("ignore")
    os.environ["DS_ACCELERATOR"] = "cpu"
    sys.path.append(str(Path(__file__).parents[2] / "export/frameworks"))
    for line in sys.stdin:
        plan, results = json.loads(line), []
        for rank, words in enumerate(plan["words"]):
            dist.init_process_group("fake", rank=rank, world_size=plan["world"])
            made = OWN[plan["framework"]](words, plan | {"rank": rank})
            results.append({axis: one if isinstance(one, list) else sorted(ranks_of(one)) for axis, one in made.items()})
            dist.destroy_process_group()
        sys.stdout.write(f"made {json.dumps(results)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
