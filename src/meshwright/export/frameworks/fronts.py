"""The front of each training framework: what it asks of an export whoever starts its ranks, and its own format over ssh."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...plans.document import PlacementPlan
from ..launchers import remote_shell
from ..options import ExportOptions
from ..target import Files, Needs, Target, header
from . import deepspeed, device_mesh, megatron, meshed_stages, torchtitan


@dataclass(frozen=True)
class FrameworkFront:
    """A training framework as an export sees it.

    Attributes:
        name: as ``--framework`` spells it.
        title: as heads of files spell it.
        needs: its arguments, variables, files and rank numbers; raises `ExportError` where it does not run the plan.
        not_guaranteed: what it does not keep, whoever starts its ranks.
        over_ssh: the same of its own format.
        launch: what starts it over ssh, of its part, options and comment lines; absent where it has no format of its own.
        summary: of its own format.
        guaranteed: by its own format.
    """

    name: str
    title: str
    needs: Callable[[PlacementPlan, ExportOptions, tuple[str, ...]], Needs]
    not_guaranteed: tuple[str, ...]
    over_ssh: tuple[str, ...] = ()
    launch: Callable[[Needs, ExportOptions, str], Files] | None = None
    summary: str = ""
    guaranteed: tuple[str, ...] = ()

    def part(self, plan: PlacementPlan, options: ExportOptions) -> Needs:
        """Return its part of an export, whoever starts its ranks; raises as `needs`."""
        return self.needs(plan, options, self.not_guaranteed)

    def render(self, plan: PlacementPlan, options: ExportOptions) -> Files:
        """Return the files of its own format.

        Raises:
            ExportError: as `part`, or a rank that its launcher would start elsewhere.
        """
        assert self.launch is not None, "it has a format"
        needs = self.needs(plan, options, self.over_ssh)
        head = header(options.job_name(plan), plan, self.title, self.over_ssh)
        return {**needs.files, **self.launch(needs, options, head)}

    def target(self) -> Target:
        """Return its own format: the framework on hosts that a shell reaches."""
        return Target(
            name=self.name,
            summary=self.summary,
            guaranteed=self.guaranteed,
            not_guaranteed=self.over_ssh,
            render=self.render,
            as_launched=lambda plan: self.part(plan, ExportOptions()).plan,
        )


_ALLOCATION = "Allocation: nothing reserves the hosts; that they are free and reachable is up to whoever starts the launcher."
_BY_TORCHRUN = (_ALLOCATION, remote_shell.GPU_NUMBERING, remote_shell.RESTARTS)

_OF_MEGATRON = (
    "Rank numbers: Megatron's own, which need not be the plan's; ranks.tsv has both.",
    "Model: its arguments are those of the plan's job where the plan holds its shape; comments say what they leave out. Data and "
    "tokenizer, and what is left out, are for the script's other arguments.",
    "Versions: the rank order is that of megatron-core 0.16.1; --pipeline-model-parallel-layout is experimental there.",
    "Experts: their tensor-parallel degree is that of the dense layers.",
)

_OF_TORCHTITAN = (
    "Rank numbers: torchtitan's own, which need not be the plan's; ranks.tsv has both.",
    f"Model: torchtitan takes flavors by name; register one made of {torchtitan.MODEL}, or name one of its own that is the "
    "plan's model.",
    "Overlap: under DualPipeV torchtitan 0.2 hides experts' exchange by pipeline_parallel_expert_parallel_overlap, 0.3 in its "
    "graph trainer alone.",
    "Stages: named where torchtitan would cut others than the planned ones; without a model in the plan it cuts them itself.",
    "Versions: the keys are those of torchtitan 0.2.2; 0.3 is configured in Python, takes most of the same values, and cuts "
    "experts by expert parallelism alone.",
)

_OF_DEEPSPEED = (
    "Groups: DeepSpeed gets hosts, devices and batch sizes; tensor, pipeline, context and expert groups are made by the "
    "script, in this rank order.",
)

_MEGATRON = FrameworkFront(
    name="megatron",
    title="Megatron-LM",
    needs=megatron.needs,
    not_guaranteed=_OF_MEGATRON,
    over_ssh=(
        *_OF_MEGATRON[:2],
        "Commands: a script gets megatron.args behind its own arguments; a command of the user's own must pass them itself.",
        *_OF_MEGATRON[2:],
        *_BY_TORCHRUN,
    ),
    launch=megatron.launch,
    summary="Megatron-LM's arguments of layout and model, and hosts and devices in the order of its ranks",
    guaranteed=(
        "Megatron's groups along tp, cp, ep, dp and pp are the plan's: each device has the planned coordinates.",
        "The master address is the host of Megatron's rank 0.",
        "LOCAL_RANK i means the i-th device of the host in Megatron's order.",
        "Pipeline stages hold the planned layers, where the plan names them.",
    ),
)

_TORCHTITAN = FrameworkFront(
    name="torchtitan",
    title="torchtitan",
    needs=torchtitan.needs,
    not_guaranteed=_OF_TORCHTITAN,
    over_ssh=(
        *_OF_TORCHTITAN[:4],
        f"Commands: a script gets --job.config_file {torchtitan.CONFIG} behind its own arguments; a command of the user's own "
        "must read it itself.",
        *_OF_TORCHTITAN[4:],
        *_BY_TORCHRUN,
    ),
    launch=torchtitan.launch,
    summary="torchtitan's configuration, the model's arguments, and hosts and devices in the order of its ranks",
    guaranteed=(
        "torchtitan's mesh is the plan's: each device has the planned coordinates.",
        "The master address is the host of torchtitan's rank 0.",
        "LOCAL_RANK i means the i-th device of the host in torchtitan's order.",
        "global_batch_size, and the samples of a replica, are the plan's; FSDP shards over the planned ranks.",
    ),
)

_DEEPSPEED = FrameworkFront(
    name="deepspeed",
    title="DeepSpeed",
    needs=deepspeed.needs,
    not_guaranteed=_OF_DEEPSPEED,
    over_ssh=(
        *_OF_DEEPSPEED,
        "Commands: a script gets --deepspeed_config behind its own arguments; a command of the user's own must read it itself.",
        "Files: every host must see this folder and the script under the same path; without its hostfile DeepSpeed would look "
        "for local devices.",
        "Slots: they state the hosts' hardware as the plan's cluster describes it, or as far as its devices reach.",
        _ALLOCATION,
        "GPU numbering: DeepSpeed sets CUDA_VISIBLE_DEVICES to the included numbers, by PCI order as the host's driver sees "
        "them.",
        "Other launchers: with --launcher slurm, openmpi, mpich, impi or mvapich the order is theirs.",
    ),
    launch=deepspeed.launch,
    summary="a hostfile in rank order, the devices to include, a configuration and a launcher over ssh",
    guaranteed=(
        "Each rank runs on its host and device, in order.",
        "The master address is the host of rank 0.",
        "train_batch_size is micro-batch times accumulation times replicas; ZeRO has the planned stage.",
    ),
)

_FSDP2 = FrameworkFront(
    name="fsdp2",
    title="FSDP2",
    needs=meshed_stages.needs,
    not_guaranteed=(f"Sharding: the script calls fully_shard with fully_shard_arguments of {device_mesh.FILE_NAME}.",),
)

FRONTS: dict[str, FrameworkFront] = {front.name: front for front in (_MEGATRON, _TORCHTITAN, _DEEPSPEED, _FSDP2)}
"""Every framework, by the name that ``--framework`` takes."""
