"""Training strategies: how the replicas of a job agree on their parameters; `Training` is the union of all kinds.

A kind that is not exact changes the mathematics: it may need more steps than synchronous training does. How many more cannot be
computed, so the user declares a ``multiplier`` with its source. A strategy without one is priced but never ranked. `TRAININGS` is
the registry. A kind's additional bytes are here, its time in `costs.training`.

Legend: ``W`` bytes of a replica's gradients, ``n`` replicas, ``H`` local steps.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from ..errors import PlanError
from ..jobs.masked import Core
from ..settings import Count, Index, Switch
from .partition import Layout
from .strategies.declared_steps import DeclaredSteps, Exactness, build_strategy, kinds_of, split_strategies
from .strategies.local_update import LocalUpdate


class Synchronous(DeclaredSteps):
    """Gradients are summed over all replicas in every step."""

    exactness: ClassVar[Exactness] = "exact"

    kind: Literal["synchronous"] = "synchronous"

    @model_validator(mode="after")
    def _is_one(self) -> Synchronous:
        if self.multiplier not in (None, 1.0):
            raise ValueError("synchronous training is what steps are counted in: its multiplier is 1")
        return self


class LocalSgd(DeclaredSteps):
    """Each replica goes ``every`` steps by itself, then parameters are averaged in place.

    Source:
        Stich, "Local SGD converges fast and communicates little", 2019.
    """

    kind: Literal["local-sgd"] = "local-sgd"
    every: Count = Field(description="local steps between two averages")


class PostLocalSgd(DeclaredSteps):
    """Synchronous for ``warmup_steps``, then as local SGD.

    Source:
        Lin et al., "Don't use large mini-batches, use local SGD", 2020.
    """

    kind: Literal["post-local-sgd"] = "post-local-sgd"
    every: Count = Field(description="local steps between two averages, after the warm-up")
    warmup_steps: Index = Field(description="synchronous steps at the beginning")
    num_steps: Count = Field(default=10_000, description="steps of the whole training, over which the warm-up extends")

    @model_validator(mode="after")
    def _warms_up_within(self) -> PostLocalSgd:
        if self.warmup_steps > self.num_steps:
            raise ValueError(f"warmup_steps={self.warmup_steps} are more than num_steps={self.num_steps}")
        return self


class DiLoCo(DeclaredSteps):
    """Local steps, then an outer step on the averaged difference of parameters.

    Source:
        Douillard et al., "DiLoCo: distributed low-communication training of language models", 2023. Fragments and overlap:
        Douillard et al., "Streaming DiLoCo with overlapping communication", 2025.
    """

    kind: Literal["diloco"] = "diloco"
    every: Count = Field(description="local steps between two outer steps; published 100 to 500")
    outer: Literal["nesterov"] = Field(default="nesterov", description="optimizer of the outer step")
    quantise_bits: Literal[32, 8, 4] = Field(default=32, description="bits of each number of the difference on the wire")
    overlap: Switch = Field(default=False, description="whether local steps continue while differences are averaged")
    fragments: Count = Field(default=1, description="parts of the parameters, averaged at times of their own within the steps")
    offload: Switch = Field(default=False, description="whether the outer parameters and momentum stay in the host's memory")

    @model_validator(mode="after")
    def _parts_have_steps(self) -> DiLoCo:
        if self.fragments > self.every:
            raise ValueError(f"fragments={self.fragments} are more than every={self.every}, one after a step at most")
        return self

    def extra_bytes(self, gradient_bytes: float, num_replicas: int) -> float:
        """Return outer parameters and outer momentum, ``2 W``; none on the device where the host holds them."""
        return 0.0 if self.offload or num_replicas == 1 else 2.0 * gradient_bytes


class StaleSynchronous(DeclaredSteps):
    """A parameter server, and workers that are at most ``staleness`` steps ahead of the slowest one.

    Source:
        Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", 2013.
    """

    exactness: ClassVar[Exactness] = "bounded"

    kind: Literal["ssp"] = "ssp"
    staleness: Index = Field(description="steps that a worker may be ahead of the slowest")
    servers: Count = Field(default=1, description="hosts that hold the parameters, an equal part each")


class Asynchronous(DeclaredSteps):
    """A parameter server, and workers that wait for nobody.

    Source:
        Dean et al., "Large scale distributed deep networks", 2012.
    """

    kind: Literal["asp"] = "asp"
    servers: Count = Field(default=1, description="hosts that hold the parameters, an equal part each")


class Gossip(DeclaredSteps):
    """After a step a replica averages its parameters with a few others, while it already takes the next step.

    Source:
        Wang et al., "From promise to practice: realizing high-performance decentralized training", 2024.
    """

    kind: Literal["gossip"] = "gossip"
    topology: Literal["ring", "one-peer-exp", "aer", "complete"] = Field(
        description="who averages with whom: neighbours in turn, peers at powers of two, whole hosts at powers of two, or all"
    )
    optimizer: Literal["adam", "accum-adam"] = Field(default="adam", description="Adam, or its accumulating form")
    accum_iter: Count = Field(default=4, description="steps between two updates of the moments (accum-adam)")

    def extra_bytes(self, gradient_bytes: float, num_replicas: int) -> float:
        """Return the parameters in flight, ``W``, and the gradients that accumulating Adam sums, ``W``."""
        return (2.0 if self.optimizer == "accum-adam" else 1.0) * gradient_bytes if num_replicas > 1 else 0.0


class IndependentSubnets(DeclaredSteps):
    """Hidden neurons are dealt among the replicas anew each round; each trains its narrow subnet for ``every`` steps.

    Source:
        Yuan et al., "Distributed learning of fully connected neural networks using independent subnet training", 2022. Its bias:
        Shulgin and Richtarik, "Towards a better theoretical understanding of independent subnetwork training", 2023.
    """

    kind: Literal["ist"] = "ist"
    every: Count = Field(description="local steps of a round")
    server: Literal["sharded", "central"] = Field(default="sharded", description="who holds the whole between rounds")

    def extra_bytes(self, gradient_bytes: float, num_replicas: int) -> float:
        """Return the share of the whole that a replica holds between rounds; a central server is a host of its own."""
        return gradient_bytes / num_replicas if self.server == "sharded" and num_replicas > 1 else 0.0


class Masked(DeclaredSteps):
    """A cycle of ``core_steps`` steps of the core, whose other weights are masked, and ``full_steps`` of the whole model.

    Gradients are summed in every step, those of the core in its steps, so that layouts may shard what they like.

    Source:
        Mohtashami, Jaggi and Stich, "Masked training of neural networks with partial gradients", 2022, arXiv 2106.08895.
    """

    kind: Literal["masked"] = "masked"
    core: Core = Field(description="the part of the model that trains: a share of its width, or matrices of a rank")
    core_steps: Count = Field(description="steps of the core in a cycle")
    full_steps: Count = Field(description="steps of the whole model in a cycle")

    @field_validator("core", mode="before")
    @classmethod
    def _of_text(cls, core: Any) -> Any:
        """Parse ``width:0.5`` and ``rank:64``, as a command line spells them."""
        if not isinstance(core, str):
            return core
        key, colon, value = core.partition(":")
        if not colon or key not in ("width", "rank"):
            raise ValueError("must read width:SHARE or rank:NUMBER")
        try:
            return {key: int(value) if key == "rank" else float(value)}
        except ValueError:
            raise ValueError(f"{key} wants a number, not {value!r}") from None

    @property
    def num_steps(self) -> int:
        """Steps of a cycle."""
        return self.core_steps + self.full_steps


AnyTraining = (
    Synchronous
    | LocalSgd
    | PostLocalSgd
    | DiLoCo
    | StaleSynchronous
    | Asynchronous
    | Gossip
    | IndependentSubnets
    | LocalUpdate
    | Masked
)

Training = Annotated[AnyTraining, Field(discriminator="kind")]
"""A training strategy of any kind."""

TRAININGS: dict[str, type[AnyTraining]] = kinds_of(AnyTraining)
"""Every kind by its name."""


def check_training(training: AnyTraining, layout: Layout) -> None:
    """Refuse a strategy by which a layout cannot be trained.

    All kinds but the synchronous and the masked one, which is synchronous too, average whole replicas. Nothing may be sharded
    over replicas, and a replica is the ranks of ``tp`` and ``pp``.

    Raises:
        PlanError: with the key in conflict.
    """
    if training.kind in ("synchronous", "masked"):
        return
    kind_text = f"kind={training.kind} averages whole replicas"
    if layout.shards_optimizer:
        key, value = ("zero", layout.zero) if layout.zero else ("distributed_optimizer", True)
        raise PlanError(f"{kind_text}, which hold their own optimizer; set {key} off", field=f"layout.{key}", value=str(value))
    for key in ("cp", "ep", "sp"):
        if getattr(layout, key) > 1:
            raise PlanError(
                f"{kind_text}, whose gradients are not summed over {key}", field=f"layout.{key}", value=getattr(layout, key)
            )
    n = layout.dp
    if isinstance(training, LocalUpdate) and training.cuts is not None and training.cuts[-1] >= layout.pp:
        kind_text = f"pp={layout.pp} may be cut behind {layout.pp - 1} at most" if layout.pp > 1 else "pp=1 has nothing to cut"
        raise PlanError(f"leaves no stage behind its last cut; {kind_text}", field="training.cuts", value=training.cuts[-1])
    if isinstance(training, Gossip) and training.topology == "one-peer-exp" and n & (n - 1):
        raise PlanError("topology=one-peer-exp wants a power of two of replicas", field="layout.dp", value=n)


def parse_training(text: str) -> tuple[AnyTraining, ...]:
    """Read strategies from a text such as ``synchronous|kind=local-sgd,every=4|16,multiplier=1.1,multiplier_source=...``.

        ``|`` separates values of a key, as in ``--keep``, and strategies. A new strategy is a kind, or begins with ``kind=``. A
        kind alone has no other keys. A path that ends in ``.yaml`` names a file with the keys of a strategy, or a list of
        strategies, under ``training:``.

    Raises:
        PlanError: an unknown kind or key, a key twice, or an impossible value.
    """
    of_each = split_strategies(text, TRAININGS, field="training")
    made = (build_strategy(keys, TRAININGS, field="training", default="synchronous") for keys in of_each)
    return tuple(dict.fromkeys(made))
