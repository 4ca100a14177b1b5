"""Zero-bubble schedules: which pass a stage takes next; see `schedules`, whose legend holds here.

Source: Qi et al., "Zero bubble pipeline parallelism", 2024.
"""

import numpy as np

from ...compiled import njit


@njit
def zero_bubble(p, m, is_double):  # type: ignore[no-untyped-def]
    """Greedy for passes of equal length: a weight gradient where nothing else can be done.

    ZB-H1 keeps ``p`` micro-batches at most, and before the first gradient comes back as many as 1F1B; a forward pass goes
    first. ZB-2P keeps ``2 p - 1``, before the first gradient what comes back by then; a gradient goes first.
    """
    limit = 2 * p - 1 if is_double else p
    made = np.zeros((p, 3 * m, 3), np.int32)
    done = np.full((p, 2, m), -1, np.int64)  # time at which the pass is done
    count = np.zeros((p, 3), np.int64)
    warm_ups = np.zeros(p, np.int64)
    time = 0
    left = 3 * m * p
    while left > 0:
        for stage in range(p):
            forwards, backwards, weights = count[stage]
            first = 2 * (p - stage) - 1 if is_double else p - stage
            room = limit if backwards > 0 else first
            can_forward = forwards < m and forwards - weights < room
            if can_forward and stage > 0:
                can_forward = 0 <= done[stage - 1, 0, forwards] <= time
            can_backward = backwards < forwards
            if can_backward:
                arrival = done[stage, 0, backwards] if stage == p - 1 else done[stage + 1, 1, backwards]
                can_backward = 0 <= arrival <= time
            if can_backward and (is_double or not can_forward):
                warm_ups[stage] = 1
            elif can_forward:
                warm_ups[stage] = 0
            elif weights < backwards:
                warm_ups[stage] = 2
            else:
                warm_ups[stage] = -1
        for stage in range(p):
            kind = warm_ups[stage]
            if kind >= 0:
                micro = count[stage, kind]
                place = count[stage].sum()
                made[stage, place, 0] = kind
                made[stage, place, 2] = micro
                count[stage, kind] += 1
                left -= 1
                if kind < 2:
                    done[stage, kind, micro] = time + 1
        time += 1
    return made
