"""Seeds of episodes: those of the test, from 0 on, those of validation and those of training do not overlap."""

from __future__ import annotations

FIRST_VALIDATION_SEED = 100
FIRST_TRAINING_SEED = 1000
"""The seed of a run is added to it."""


def validation_seeds(number: int) -> range:
    """Return the seeds of a number of validation episodes."""
    return range(FIRST_VALIDATION_SEED, FIRST_VALIDATION_SEED + number)
