"""Random times of failures and preemptions as hashes.

A hash of episode seed, kind of event, device or job, and number of the event needs no state. So times are the same in one
environment or many, in any process, after a checkpoint, and whatever is decided.
"""

import math

import numpy as np

from ..compiled import njit

# SplitMix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014 (Stafford's variant 13).
GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX_1, MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFT_1, SHIFT_2, SHIFT_3, SHIFT_TO_53_BITS = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
# What is drawn: times between failures of a device or host, times between preemptions of a job.
FAILURE, PREEMPTION = 0, 1


@njit
def exponential_s(mean_s, seed, drawn, index, event):  # type: ignore[no-untyped-def]
    """Return an exponential time in seconds, a pure function of its arguments; infinite where the mean is.

    The 64-bit hash absorbs its words one by one, ``h <- mix(h + gamma (word + 1))``, with ``mix`` the finaliser of SplitMix64.
    The upper 53 bits, with one half added, make a uniform number ``u`` in (0, 1]. By inversion ``-mean log u`` is exponential.

    Args:
        mean_s: mean of the time.
        seed: of the episode.
        drawn: `FAILURE` or `PREEMPTION`.
        index: device, host or job.
        event: how many such times were drawn before.
    """
    if np.isinf(mean_s):
        return np.inf
    bits = np.uint64(0)
    for word in (seed, drawn, index, event):
        bits = bits + GAMMA * (np.uint64(word) + np.uint64(1))
        bits = (bits ^ (bits >> SHIFT_1)) * MIX_1
        bits = (bits ^ (bits >> SHIFT_2)) * MIX_2
        bits = bits ^ (bits >> SHIFT_3)
    return -mean_s * math.log((np.float64(bits >> SHIFT_TO_53_BITS) + 0.5) * 2.0**-53)
