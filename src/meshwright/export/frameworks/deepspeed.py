"""DeepSpeed: a hostfile in rank order, the devices to include, and a configuration whose batch sizes agree.

DeepSpeed takes hosts in the hostfile's order, whatever ``--include`` says, and sorts a host's devices. It derives a local rank
as the rank modulo the processes of its host, which is wrong where hosts have unequal numbers. `assigned_places` follows these
rules, and a plan that they would change is refused. Each host gets its node rank from us (``--no_ssh --node_rank``), since pdsh
would pass a program's arguments through a shell unquoted.

Source:
    ``deepspeed/launcher/runner.py`` and ``launch.py`` of DeepSpeed 0.19.8, whose own parser reads what is written here
    in the tests.
"""

from __future__ import annotations

import shlex

from ... import files
from ...errors import ExportError
from ...plans.document import PlacementPlan
from ...plans.partition import Layout
from ..launchers import remote_shell
from ..operators.op_devices import as_equal_layers
from ..options import ExportOptions
from ..requirements import comma_separated, hosts_of, refuse_unrunnable, slots_of
from ..target import Files, FrameworkFile, Needs, joined
from ..training import zero_keys
from .model_arguments import huggingface_keys

HOSTFILE = "hostfile"
CONFIG = "ds_config.json"
MODEL = "model.json"

_MAX_ARGUMENT_BYTES = 100_000
"""Longest ``--include``; Linux passes no single argument of more than 131,071 bytes, and the command is one."""


def assigned_places(hosts: dict[str, list[int]]) -> list[tuple[str, int]]:
    """Return the host and device of each rank as DeepSpeed assigns them.

    Args:
        hosts: included devices of each host in the hostfile's order.
    """
    places: list[tuple[str, int]] = []
    for host, devices in hosts.items():
        included = sorted(devices)
        places += [(host, included[(len(places) + i) % len(included)]) for i in range(len(included))]
    return places


def needs(plan: PlacementPlan, options: ExportOptions, not_guaranteed: tuple[str, ...]) -> Needs:
    """Return the configuration, and the model where the plan holds its shape.

    Raises:
        ExportError: coordinates in another order than its topology's, a plan that does not say its batch sizes, or a schedule
            that DeepSpeed does not have.
    """
    hosts_of(plan)  # refuses what is no host name
    batch = _batch(plan)
    _check_topology(plan)
    model = plan.job.transformer
    rendered: Files = {} if model is None else {MODEL: files.json_text(huggingface_keys(model)) + "\n"}
    rendered[CONFIG] = files.json_text(_coded(plan, _config(batch, not_guaranteed))) + "\n"
    arguments = ("--deepspeed_config", FrameworkFile(CONFIG))
    return Needs(plan, arguments, files=rendered, not_guaranteed=not_guaranteed)


def launch(needed: Needs, options: ExportOptions, head: str) -> Files:
    """Return the hostfile, and the launcher over ssh.

    A script gets the configuration behind its own arguments; a command of the user's own is run as it is.

    Raises:
        ExportError: a rank that DeepSpeed would start elsewhere.
    """
    plan, hosts = needed.plan, hosts_of(needed.plan)
    _check_places(plan, hosts)
    include = "@".join(f"{host}:{comma_separated(sorted(devices))}" for host, devices in hosts.items())
    if len(include) > _MAX_ARGUMENT_BYTES:
        raise ExportError(f"{len(hosts)} hosts are too many for one --include", field="ranks")
    slots = "".join(f"{host} slots={count}\n" for host, count in slots_of(plan).items())
    program, config = options.torchrun_words, f" {joined(needed.arguments, '$there')}"
    if program[0] == "--no-python":
        program, config = ["--no_python", "--no_local_rank", *program[1:]], ""
    words = [f"--include={include}", "--no_ssh", f"--master_addr={plan.host_order[0]}", f"--master_port={options.master_port}"]
    variables = f"variables={shlex.quote(shlex.join(options.variables))}\n" if options.variables else ""
    script = remote_shell.script(
        head,
        starts="DeepSpeed's launcher",
        rows=HOSTFILE,
        columns="read -r host _",
        prepare=f"launch={shlex.quote(shlex.join(words))}\nprogram={shlex.quote(shlex.join(program))}\n{variables}",
        command=f"""
command="test -r $there/{HOSTFILE} && exec env MESHWRIGHT_HOST=$host CUDA_DEVICE_ORDER=PCI_BUS_ID"
command+="{" $variables" if variables else ""} deepspeed --hostfile=$there/{HOSTFILE} --node_rank=$node $launch $program{config}"
""",
    )
    rows = f"{head}# In rank order; slots state the hardware, --include says which of them are used.\n{slots}"
    return {HOSTFILE: rows, remote_shell.FILE_NAME: script}


def _check_places(plan: PlacementPlan, hosts: dict[str, list[int]]) -> None:
    for rank, (host, device) in zip(plan.ranks, assigned_places(hosts), strict=True):
        field = f"rank {rank.rank}"
        if rank.host != host:
            problem = f"DeepSpeed numbers ranks host by host and would start this one on {host}"
            raise ExportError(problem, field=field, value=rank.host)
        if rank.local_rank != device:
            problem = (
                "DeepSpeed sorts the devices of a host and counts by the rank modulo its processes; this rank would get "
                f"device {device}"
            )
            raise ExportError(problem, field=field, value=rank.local_rank)


def _check_topology(plan: PlacementPlan) -> None:
    if (layout := plan.layout()) is None:
        return
    for rank in plan.ranks:
        if rank.coordinates != layout.coordinates(rank.rank):
            problem = "DeepSpeed's topology numbers ranks by pipeline stage, then replica, then model slice; its place would be "
            words = " ".join(f"{axis}={at}" for axis, at in layout.coordinates(rank.rank))
            raise ExportError(problem + words, field=f"rank {rank.rank}")


def _batch(plan: PlacementPlan) -> Layout:
    """Return how the samples of a step are divided: the plan's own layout, or that of replicas alone."""
    layout, splits = plan.layout(), plan.op_splits()
    if layout is not None:
        refuse_unrunnable(plan, "deepspeed")
        return layout
    placed = plan.op_placement()
    if placed is None and splits is None:
        raise ExportError("has neither a layout nor op splits, so its batch sizes are unknown", field="partition")
    as_equal_layers(plan, "DeepSpeed")
    if splits is not None and len(uneven := (splits.splits != splits.degree).nonzero()[0]):
        problem = f"DeepSpeed splits every op equally, here {splits.degree} ways"
        raise ExportError(problem, field=f"partition.splits.{uneven[0]}", value=int(splits.splits[uneven[0]]))
    samples = (plan.job.graph or {}).get("samples_per_step")
    if samples is None:
        raise ExportError("does not say how many samples a step has, so the batch sizes are unknown", field="job.graph")
    if placed is not None:  # figures of the job are those of a micro-batch; as many follow each other as the plan holds at once
        replicas, accumulation = placed.groups[0].replicas, plan.micro_batches or placed.in_flight
        return Layout(dp=replicas, micro_batch=samples, global_batch=samples * accumulation * replicas)
    assert splits is not None
    if samples % splits.degree:
        raise ExportError(f"is no multiple of {splits.degree} ranks", field="job.graph.samples_per_step", value=samples)
    return Layout(dp=splits.degree, micro_batch=samples // splits.degree, global_batch=samples)


def _config(batch: Layout, not_guaranteed: tuple[str, ...]) -> dict[str, object]:
    """Return the keys of the configuration. DeepSpeed passes over keys that it does not know, as the first one here."""
    zero: dict[str, object] = {"stage": batch.zero}
    if batch.zero > 0:
        zero["overlap_comm"] = batch.overlap_dp
    if batch.offload == "optimizer":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    # Without ZeRO DeepSpeed sums gradients in the precision of the weights alone.
    is_summed_apart = batch.zero > 0 and batch.fp32_gradients and batch.precision != "fp32"
    return {
        "_not_guaranteed": list(not_guaranteed),
        "train_batch_size": batch.micro_batch * batch.num_micro_batches * batch.dp,
        "train_micro_batch_size_per_gpu": batch.micro_batch,
        "gradient_accumulation_steps": batch.num_micro_batches,
        "zero_optimization": zero,
        **({} if batch.precision == "fp32" else {batch.precision: {"enabled": True}}),
        **({"data_types": {"grad_accum_dtype": "fp32"}} if is_summed_apart else {}),
    }


def _coded(plan: PlacementPlan, config: dict[str, object]) -> dict[str, object]:
    """Run with the optimizer of one bit, where gradients are coded by their signs, or coded ZeRO-3; others are refused before."""
    if plan.compression is None:
        return config
    zero, sentences = config["zero_optimization"], config["_not_guaranteed"]
    assert isinstance(zero, dict)
    assert isinstance(sentences, list)
    if keys := zero_keys(plan.compression):
        notes = [*sentences, "Codes: the numbers that share a scale, and what was lost, are DeepSpeed's own choices."]
        return config | {"zero_optimization": {**zero, **keys}, "_not_guaranteed": notes}
    parameters = {"lr": 1e-4, "freeze_step": 1000, "cuda_aware": False, "comm_backend_name": "nccl"}
    notes = [*sentences, "Optimizer: the learning rate and the steps before signs are sent are examples."]
    return config | {"optimizer": {"type": "OneBitAdam", "params": parameters}, "_not_guaranteed": notes}
