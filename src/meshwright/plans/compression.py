"""Gradients that are coded before they are sent: `Compression` is the union of all codes.

All but the identity change the mathematics; a multiplier is declared as for `training.Training`. Bytes on the wire and coding
times are in `costs.compression`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..errors import PlanError
from ..settings import Count, Switch
from .partition import Layout
from .strategies.declared_steps import DeclaredSteps, Exactness, build_strategy, kinds_of, split_strategies
from .training import AnyTraining


class Codec(DeclaredSteps):
    """The keys that all codes share.

    Attributes:
        error_feedback: whether the coding error is added to the next gradient, in 4 bytes for each number.
        codec_passes: passes over the gradients that encoding takes, at the device's memory bandwidth; decoding takes as many.
            None: the kind's own, an assumption.
    """

    error_feedback: Switch = Field(default=True, description="whether the coding error is added to the next gradient")
    codec_passes: float | None = Field(default=None, ge=0, le=1000, description="passes over the gradients that coding takes")


class Quantise(Codec):
    """Each number in fewer bits, with a scale of 2 bytes for a group of numbers.

    Attributes:
        bits: of a number.
        group: numbers of 4 bytes that share a scale; None: no scales.
        summable: whether coded numbers can be summed in transit, as half precision can; else they are exchanged, summed and
            gathered.
        what: is coded; under ZeRO-3 the parameters that are gathered, or both.
    """

    kind: Literal["quantise"] = "quantise"
    bits: Literal[32, 16, 8, 4, 2, 1] = Field(description="bits of a number")
    group: Count | None = Field(default=256, description="numbers that share a scale; null for none")
    summable: Switch = Field(default=False, description="whether coded numbers are summed in transit")
    what: Literal["gradients", "parameters", "both"] = Field(
        default="gradients",
        exclude_if=lambda what: what == "gradients",
        description="tensors that are coded; more than gradients with ZeRO-3",
    )


class Sign(Codec):
    """One bit for each number.

    Source:
        Seide et al., "1-bit stochastic gradient descent", 2014.
    """

    kind: Literal["sign"] = "sign"


class TopK(Codec):
    """The largest numbers, each with its place.

    Source:
        Lin et al., "Deep gradient compression", 2018.
    """

    kind: Literal["top-k"] = "top-k"
    fraction: float = Field(gt=0, le=1, description="share of the numbers that are sent")


class RandomK(Codec):
    """Numbers at places that all replicas draw from one seed."""

    kind: Literal["random-k"] = "random-k"
    fraction: float = Field(gt=0, le=1, description="share of the numbers that are sent")
    error_feedback: Switch = Field(default=False, description="whether the coding error is added to the next gradient")


class LowRank(Codec):
    """Matrices as products of two narrow ones.

    Source:
        Vogels et al., "PowerSGD: practical low-rank gradient compression for distributed optimization", 2019.
    """

    kind: Literal["low-rank"] = "low-rank"
    rank: Count = Field(description="columns of the narrow matrices")


AnyCompression = Quantise | Sign | TopK | RandomK | LowRank

Compression = Annotated[AnyCompression, Field(discriminator="kind")]
"""A code of gradients of any kind."""

COMPRESSIONS: dict[str, type[AnyCompression]] = kinds_of(AnyCompression)
"""Every kind by its name."""


def check_compression(layout: Layout, code: AnyCompression) -> None:
    """Refuse a layout whose gradients are not summed whole over the replicas; ZeRO-3 may send fewer bits.

    Raises:
        PlanError: with the key that is in the way.
    """
    if isinstance(code, Quantise) and layout.zero >= 3:
        return
    if isinstance(code, Quantise) and code.what != "gradients":
        raise PlanError("parameters are gathered by ZeRO-3; set zero=3", field="compression.what", value=code.what)
    if layout.shards_optimizer:
        key, value = ("zero", layout.zero) if layout.zero else ("distributed_optimizer", True)
        raise PlanError(f"coded gradients are summed whole; set {key} off", field=f"layout.{key}", value=str(value))
    if layout.sp > 1:
        raise PlanError("codes of gradients are for whole replicas, not for parts of volumes", field="layout.sp", value=layout.sp)


def parse_compression(text: str) -> tuple[AnyCompression, ...]:
    """Return the codes that a text such as ``kind=top-k,fraction=0.01|0.1`` spells; grammar: `training.parse_training`.

    Raises:
        PlanError: an unknown kind or key, a key twice, or an impossible value.
    """
    keys = split_strategies(text, COMPRESSIONS, field="compression")
    compressions: list[AnyCompression] = [build_strategy(key, COMPRESSIONS, field="compression") for key in keys]
    return tuple(dict.fromkeys(compressions))


def exactness_of(training: AnyTraining, compression: AnyCompression | None) -> Exactness:
    """Return whether the update is that of synchronous training; with a code it is not."""
    return training.exactness if compression is None else "approximate"


def steps_multiplier(training: AnyTraining, compression: AnyCompression | None) -> float | None:
    """Return the steps needed over synchronous ones; None where none was declared."""
    own = training.steps_multiplier
    code = 1.0 if compression is None else compression.steps_multiplier
    return None if own is None or code is None else own * code


def multiplier_source(training: AnyTraining, compression: AnyCompression | None) -> str:
    """Return the source of the multiplier; empty where none was declared."""
    sources = [training.multiplier_source, None if compression is None else compression.multiplier_source]
    return "; ".join(text for text in sources if text)
