"""The published first fit inside compiled code: where it places a job now, among the placements that are known.

Where memory cannot bind, every op that is cut ``s`` ways lands on the first free block of ``s`` devices. First fit takes it for
the first such op. For any other, its first parent with the same cut sits there, or first fit finds it again. So the first free
block of each size that occurs decides the placement. Where memory may bind, the set of free devices does. Placements are found
and simulated outside (see `simulation.pacml.placement_cache`), and stored as in `simulation.cluster.problem.Published`.
"""

import numpy as np

from ...compiled import njit
from ..cluster.problem import DEVICES_PER_WORD, Rule
from ..random_times import GAMMA, MIX_1, MIX_2, SHIFT_1, SHIFT_2, SHIFT_3


@njit
def place_all(problem, episodes, e, first_free):  # type: ignore[no-untyped-def]
    """Fill the candidates of the published rule for the current job.

    Args:
        problem: the scenario's arrays.
        episodes: the state.
        e: episode.
        first_free: the first free block of each degree, -1 where there is none, ``(d,)``.

    Returns:
        Whether all placements and their times are known; if not, ``episodes.wanted[e]`` holds the key of one that is not.
    """
    k = episodes.job[e]
    graph, num_steps = episodes.graph_id[e, k], episodes.num_steps[e, k]
    num_degrees = len(problem.degrees)
    part_start, part_degree, is_tight = problem.published.part_start, problem.published.part_degree, problem.published.is_tight
    slots, keys, known = problem.published.slots, problem.published.keys, problem.published.block
    placement_class, step_s, is_keyed = problem.placement_class, problem.step_s, problem.is_keyed_by_degree
    key, fixed_block = episodes.wanted[e], episodes.fixed_block[e]
    candidate_block, candidate_s = episodes.candidate_block[e], episodes.candidate_s[e]
    candidate_rule, candidate_degree = problem.candidate_rule, problem.candidate_degree
    is_known = True
    for a in range(1, 1 + num_degrees * len(problem.rules)):
        if candidate_rule[a] != Rule.PUBLISHED:
            continue
        d = candidate_degree[a]
        row = graph * num_degrees + d
        key[0] = row
        has_place = True
        length = 1
        if is_tight[row]:
            length += _write_free(episodes.free_at_s[e], episodes.now_s[e], key)
        else:
            for i in range(part_start[row], part_start[row + 1]):
                part = part_degree[i]
                if part < 0 or first_free[part] < 0:
                    has_place = False
                    break
                key[length] = first_free[part]
                length += 1
        if not has_place:
            continue
        for i in range(length, len(key)):
            key[i] = -1
        number = find_key(slots, keys, key)
        if number < 0:
            is_known = False
            break
        block = known[number]
        if block < 0:
            continue
        timed = block
        if is_keyed and fixed_block[graph, d] >= 0:
            timed = fixed_block[graph, d]
        time_s = num_steps * step_s[graph, placement_class[timed]]
        if np.isnan(time_s):
            is_known = False
            break
        candidate_block[a] = block
        candidate_s[a] = time_s
    return is_known


@njit
def _write_free(free_at_s, now_s, key):  # type: ignore[no-untyped-def]
    """Write which devices are free behind the first number of a key; how many numbers that takes."""
    words = -(-len(free_at_s) // DEVICES_PER_WORD)
    key[1 : 1 + words] = 0
    for i in range(len(free_at_s)):
        if free_at_s[i] <= now_s:
            key[1 + i // DEVICES_PER_WORD] |= 1 << (i % DEVICES_PER_WORD)
    return words


@njit
def find_key(slots, keys, key):  # type: ignore[no-untyped-def]
    """Return the number of a key in the table; where it is absent, minus one minus the slot that it would take."""
    mask = len(slots) - 1
    slot = _hash(key) & mask
    while slots[slot] > 0:
        number = slots[slot] - 1
        is_equal = True
        for i in range(len(key)):
            if keys[number, i] != key[i]:
                is_equal = False
                break
        if is_equal:
            return number
        slot = (slot + 1) & mask
    return -1 - slot


@njit
def _hash(key):  # type: ignore[no-untyped-def]
    bits = np.uint64(0)
    for word in key:
        bits = bits + GAMMA * (np.uint64(word) + np.uint64(2))
        bits = (bits ^ (bits >> SHIFT_1)) * MIX_1
    bits = (bits ^ (bits >> SHIFT_2)) * MIX_2
    return np.int64((bits ^ (bits >> SHIFT_3)) >> np.uint64(1))
