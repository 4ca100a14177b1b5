"""Every key of ``--set`` that belongs to a command and not to a YAML, by command; loaded only where one is used or shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ..settings import Settings


class JobKeys(Settings):
    """How a job is read; `jobs.load.JobSource` explains it."""

    graphs: Path | None = Field(None, description="folder of profiles: DIR/NAME/graph.txt is the job NAME")
    keep_input_ops: bool = Field(False, description="count the Input ops of a profile, which time the data loader")
    profile_batch: int | None = Field(None, description="samples for which a profile's times hold; else the batch of a step")

    def arguments(self) -> dict[str, Any]:
        """Return the keys as keyword arguments of `estimate`, `plan` and `search_layouts`.

        Raises:
            GraphError: the folder is missing or holds no profile.
        """
        from ..jobs.load import profile_names

        if self.graphs is not None:
            profile_names(self.graphs)
        return {"graphs_dir": self.graphs, "keep_input_ops": self.keep_input_ops, "profile_batch": self.profile_batch}


class CollectiveKeys(Settings):
    """Keys of tables of collectives."""

    name: str | None = Field(None, description="of the system; by default its device's")
    operation: str | None = Field(None, description="of an nccl-tests file that does not name its collective")
    device: str | None = Field(None, description="which devices, where the files have several or none")
    library_version: str | None = Field(None, description="which version of the library, where the files have several")
    half: bool = Field(False, description="keep every second size only, to hold the others against")


class KernelKeys(Settings):
    """Keys of the constants of kernels; of tables of products and attention alone."""

    device: str | None = Field(None, description="device type on which tables of products and attention were measured")
    start: str | None = Field(None, description="constants, by name or file, for those that the tables do not give")
    multiprocessors: int | None = Field(None, ge=1, description="of that device; by default those of the start")


class MeasureKeys(Settings):
    """Keys of a measurement."""

    device: str | None = Field(None, description="device type; by default the one that the GPU's name holds")
    quick: bool = Field(False, description="a few items of each family, in seconds")
    seed: int = Field(0, ge=0, description="of the random operands")


class SharingKeys(Settings):
    """Keys of the constants of shared links."""

    sets: int = Field(250, ge=2, description="sets of jobs to simulate, half of either seed")
    keep: Path | None = Field(None, description="folder that keeps simulated sets, so that a later call continues")


class ReplayKeys(Settings):
    """Further keys of a replay."""

    queue: int | None = Field(None, ge=0, le=10_000, description="jobs that may wait; all by default, with 0 they are refused")
    as_served: bool = Field(False, description="policies of fleets decide as in the service, which offers free devices only")
    graphs: Path | None = Field(None, description="folder of profiles: DIR/NAME/graph.txt is the job NAME")


class ServeKeys(Settings):
    """Further keys of a service."""

    names: tuple[str, ...] = Field((), description="further names of it, as that of a proxy: [a.example, b.example]")
    tls_cert: Path | None = Field(None, description="certificate, with tls_key")
    tls_key: Path | None = Field(None, description="its key")
    sharing: Literal["devices", "hosts"] = Field(
        "devices", description="devices: jobs share hosts; hosts: each job holds its hosts whole"
    )
    lease_s: float = Field(600.0, ge=1, description="how long devices wait for a job to be handed over")
    resync_s: float = Field(30.0, ge=0.1, description="between two listings of the source")
    max_age_s: float = Field(120.0, ge=0.1, description="age of a listing beyond which nothing is decided")
    graphs: Path | None = Field(None, description="folder in which bare names of jobs are looked up")
    slurm_token_file: Path | None = Field(None, description="slurmrestd's token; by default that of SLURM_JWT")
    kueue_check: str | None = Field(None, description="answer for this AdmissionCheck of Kueue; with --source kubernetes")
    seed: int = Field(0, ge=0, description="of policies that draw")
    feedback: bool = Field(True, description="hold deadlines by earlier runs' measured times, where that is better")
    keep_days: int = Field(90, ge=0, description="days of the past that are kept, 0: all; running jobs are always kept")
    pricing_limit_s: float = Field(600.0, ge=1, description="longest that the pricing of a new job may take")


class SubmitKeys(Settings):
    """Further keys of a submission."""

    max_devices: int | None = Field(None, description="most devices")
    name: str | None = Field(None, description="of the job, for people; by default the model's")
    owner: str | None = Field(None, description="whose job it is, for people")
    key: str | None = Field(None, description="a word of yours, by which the job is submitted only once")
    sharing: Literal["devices", "hosts"] | None = Field(
        None, description="devices: others may use the rest of its hosts; hosts: none may"
    )
    time_minutes: int | None = Field(None, description="of Slurm: limit of the run time")
    partition: str | None = Field(None, description="of Slurm")
    account: str | None = Field(None, description="of Slurm")
    qos: str | None = Field(None, description="of Slurm")


class StageKeys(Settings):
    """Further keys of arranged stages; by default those of the file."""

    num_stages: int | None = Field(None, description="stages of the pipeline; by default the file's")
    gradient_bytes: float | None = Field(None, description="gradients of a stage; by default the file's")
    activation_bytes: float | None = Field(None, description="sent by a replica to the next stage; by default the file's")
    seed: int = Field(0, ge=0, description="of random draws")


class CompareKeys(JobKeys):
    """Further keys of a comparison."""

    sequence_length: int | None = Field(None, description="tokens of a sequence; else the model's, 2,048 at most")


class EstimateKeys(JobKeys):
    """Further keys of an estimate."""

    compression: str | None = Field(None, description="also price coded gradients, as 'kind=top-k,fraction=0.01|0.1'")


class OpKeys(JobKeys):
    """Further keys of placing ops."""

    optimizer: str = Field("adam", description="adam holds 4 bytes for each byte of parameters, sgd 2")
    forward_only: bool = Field(False, description="only the forward pass runs, and nothing is trained")
    in_flight: int | None = Field(
        None, description="micro-batches whose outputs a device holds; a trained pipeline's one for each device, else 1"
    )
    seed: int = Field(0, ge=0, description="of planners that draw")


class LiveKeys(Settings):
    """Further keys of a plan by a service."""

    max_degree: int | None = Field(None, description="most devices")


class PolicyKeys(JobKeys):
    """Further keys of a plan by a policy."""

    max_degree: int | None = Field(None, description="most ranks that the job may be cut into; 16 by default")


class SearchKeys(JobKeys):
    """Further keys of a search."""

    top: int = Field(10, description="layouts to rank")
    front: int = Field(10, ge=0, description="rows of the Pareto front; 0: none. --all writes the whole of it")
    order: str | None = Field(None, description="the only rank order to try, as tp-cp-dp-pp; all by default")
    arrange: str = Field("fast", description="order of hosts on an uneven network: none, fast or thorough")
    recipes: Path | None = Field(None, description="recipes of your own, as configs/recipes.yaml, in addition")
    compression: str | None = Field(None, description="also price coded gradients, as 'kind=top-k,fraction=0.01|0.1'")


class ProfileKeys(Settings):
    """Further keys of a profile."""

    sequence_length: int | None = Field(None, description="tokens of a sequence; else the model's, 2,048 at most")
    dtype: str = Field("bf16", description="of weights: bf16, fp16 or fp32")
    eager: bool = Field(False, description="keep element-wise calls as ops of their own")


class ReadKeys(Settings):
    """Further keys of a listing."""

    slurm_token_file: Path | None = Field(None, description="slurmrestd's token; by default that of SLURM_JWT")
    resource: str = Field("nvidia.com/gpu", description="of Kubernetes: a node's accelerators in its allocatable resources")
    context: str | None = Field(None, description="of Kubernetes: context of kubectl; by default the current one")
    address: str = Field("auto", description="of Ray: the cluster, host:port; auto looks for one on this machine")
    host_label: str = Field("host", description="of Ray: label of a node that holds its host's name, as in an export")


class HeldCollectiveKeys(Settings):
    """Keys of the comparison of collectives."""

    operation: str | None = Field(None, description="of an nccl-tests file that does not name its collective")
    max_mean_error: float | None = Field(None, ge=0, description="mean relative error of the sizes left out; exit 1 above it")
    max_mean_group_error: float | None = Field(None, ge=0, description="the same of the group sizes left out")


class FlowKeys(Settings):
    """Keys of the comparison of flows."""

    max_error: float | None = Field(None, ge=0, description="relative error up to which a finish time agrees; by default 1e-9")
    latency_first: bool = Field(False, description="a flow takes its share only once its first byte has arrived")


class HeldKernelKeys(Settings):
    """Keys of the comparison of kernels."""

    max_mean_error: float | None = Field(None, ge=0, description="mean relative error of each family of layers; exit 1 above it")
    constants: str | None = Field(
        None, description="a file of calibrate kernels, or a device's name; by default the device's own"
    )
    device: str | None = Field(None, description="device type on which a table of products or attention was measured")
    plot: Path | None = Field(None, description="draw what products reach, and predicted over measured, as .svg")


class PacmlKeys(Settings):
    """Keys of the comparison with PAC-ML."""

    graphs: Path = Field(description="folder of the profiles DIR/NAME/graph.txt")
    statistics: bool = Field(False, description="also play the published policies on episodes of our own")
    seeds: int = Field(10, ge=1, description="episodes of each policy, with statistics")


class PlacementKeys(Settings):
    """Keys of the comparison of placements."""

    graphs: Path | None = Field(None, description="PipeDream's profiles NAME/graph.txt; by default next to the folder")
    placement: Path | None = Field(None, description="with one instance: the device of each op, or stages, as JSON")
    search_s: float = Field(60.0, ge=0.1, le=86_400, description="seconds for each search without an end")


class HeldSharingKeys(Settings):
    """Keys of the comparison of shared links."""

    sets: int = Field(20, ge=1, description="sets of 2 to 8 jobs to simulate")
    keep: Path | None = Field(None, description="folder that keeps simulated sets, so that a later call continues")
    max_mean_error: float | None = Field(None, ge=0, description="mean relative error of the step times; exit 1 above it")
    max_p95_error: float | None = Field(None, ge=0, description="95th percentile of their errors; exit 1 above it")


class StepTimeKeys(Settings):
    """Keys of the comparison of steps."""

    max_mean_error: float | None = Field(None, ge=0, description="mean relative error of each family; exit 1 above it")


class StrategyKeys(Settings):
    """Keys of the comparison of strategies."""

    only: tuple[str, ...] = Field((), description="families of figures: [NAME, NAME]; by default all")
    reference: Path | None = Field(None, description="folder of reference data, for the families that read files of it")


class NoKeys(Settings):
    """Keys of a kind that has none."""
