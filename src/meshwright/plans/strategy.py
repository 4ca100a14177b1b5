"""A training strategy and the code of its gradients taken together: how exact they are, and how many steps they want."""

from __future__ import annotations

from .compression import AnyCompression
from .training import AnyTraining, Exactness


def exactness_of(training: AnyTraining, compression: AnyCompression | None) -> Exactness:
    """Whether the update is that of synchronous training; with a code it is not."""
    return training.exactness if compression is None else "approximate"


def steps_multiplier(training: AnyTraining, compression: AnyCompression | None) -> float | None:
    """Steps wanted over synchronous ones; None where somebody has not declared theirs."""
    own = training.steps_multiplier
    code = 1.0 if compression is None else compression.steps_multiplier
    return None if own is None or code is None else own * code


def multiplier_source(training: AnyTraining, compression: AnyCompression | None) -> str:
    """Where the multiplier is from; empty where nothing is declared."""
    told = [training.multiplier_source, None if compression is None else compression.multiplier_source]
    return "; ".join(text for text in told if text)
