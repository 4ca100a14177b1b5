"""Downsets of units and the best chain of them, compiled.

Legend of shapes: ``u`` units, ``d`` downsets, ``w`` words of 64 units, ``c`` classes of devices, ``k`` tensors, ``s`` states. A
state is the number of used devices of each class, as one number.
"""

import numpy as np

from ....compiled import njit


@njit
def count_downsets(first, before, most):  # type: ignore[no-untyped-def]
    """Return the number of downsets, the empty one and that of all units included; ``most + 1`` if there are more."""
    u = len(first) - 1
    inside = np.zeros(u, np.bool_)
    count = 1
    while count <= most and _next(inside, first, before):
        count += 1
    return count


@njit
def list_downsets(first, before, count):  # type: ignore[no-untyped-def]
    """Return whether each unit is in each downset, ``(d, u)``; the units before unit v are ``before[first[v]:first[v + 1]]``."""
    u = len(first) - 1
    inside = np.zeros(u, np.bool_)
    result = np.zeros((count, u), np.bool_)
    for place in range(1, count):
        _next(inside, first, before)
        result[place] = inside
    return result


@njit
def _next(inside, first, before):  # type: ignore[no-untyped-def]
    """Go on to the next downset in lexicographic order of a topological numbering; False after the last."""
    for unit in range(len(inside) - 1, -1, -1):
        if inside[unit]:
            continue
        can_be = True
        for place in range(first[unit], first[unit + 1]):
            if not inside[before[place]]:
                can_be = False
                break
        if can_be:
            inside[unit] = True
            inside[unit + 1 :] = False
            return True
    return False


@njit
def best_chain(  # type: ignore[no-untyped-def]
    downsets, times_s, resident, workspace, memory, num_devices, members, tensor_s, handed_s, upper_bound_s
):
    """Return the least largest load of a chain of downsets, or of the transfers between them, and that chain.

    Args:
        downsets: ``(d, u)``, a downset after those that it contains, the empty one first, that of all units last.
        times_s: ``(u, c)``, infinite where a class cannot run a unit.
        resident: bytes of each unit.
        workspace: bytes of each unit; the largest of a stage counts.
        memory: of each class.
        num_devices: of each class.
        members: first member of each tensor ``(k + 1,)``, and its units.
        tensor_s: ``(k, c)``.
        handed_s: of each downset, seconds that count by themselves where a stage begins behind it, ``(d,)``.
        upper_bound_s: loads above it are skipped; infinite where no bound is known.

    Returns:
        the load (infinite if there is no chain), and of each stage, last first, its class, its downset and the one before.
    """
    d, u = downsets.shape
    classes = len(num_devices)
    words, sums_s, least_s, barred, held, inside, num_members = _sums(downsets, times_s, resident, members, tensor_s)
    open_first, open_tensor, open_s = _open(inside, num_members, tensor_s)
    by_workspace = np.argsort(-workspace)
    stride = np.ones(classes + 1, np.int64)
    for each in range(classes):
        stride[each + 1] = stride[each] * (num_devices[each] + 1)
    states = stride[classes]
    best = np.full((d, states), np.inf)
    from_downset = np.zeros((d, states), np.int32)
    from_class = np.zeros((d, states), np.int16)
    reached = np.full(d, np.inf)
    best[0, 0] = 0.0
    reached[0] = 0.0
    limit = upper_bound_s * (1.0 + 1e-9)
    # Least seconds of units that the devices not used in a state can take for each second of load.
    left = np.zeros(states)
    for each in range(classes):
        ratio = 0.0
        for unit in range(u):
            if times_s[unit, each] < np.inf and times_s[unit].min() > 0.0:
                ratio = max(ratio, times_s[unit].min() / times_s[unit, each])
        for state in range(states):
            left[state] += ratio * (num_devices[each] - (state // stride[each]) % (num_devices[each] + 1))
    can_be = np.zeros(states, np.bool_)
    load_s = np.empty(classes)
    begin = 0
    for here in range(1, d):
        while least_s[here] - least_s[begin] > limit:
            begin += 1
        # Neither may the devices used have too much behind them, nor those that are left too much before them.
        for state in range(states):
            is_enough = least_s[here] <= limit * (left[0] - left[state]) * (1.0 + 1e-9)
            can_be[state] = is_enough and least_s[d - 1] - least_s[here] <= limit * left[state] * (1.0 + 1e-9)
        if limit < np.inf and not can_be.any():
            continue
        for start in range(here - 1, begin - 1, -1):
            if reached[start] > limit or handed_s[start] > limit:
                continue
            if not is_inside(words, start, here):
                continue
            any_fits = False
            bytes_here = held[here] - held[start]
            largest = -1.0
            for each in range(classes):
                load_s[each] = sums_s[here, each] - sums_s[start, each]
                if barred[here, each] > barred[start, each] or load_s[each] > limit or bytes_here > memory[each]:
                    load_s[each] = np.inf
                    continue
                if largest < 0.0:
                    largest = largest_workspace(downsets, start, here, workspace, by_workspace)
                if bytes_here + largest > memory[each]:
                    load_s[each] = np.inf
                    continue
                load_s[each] += open_s[here, each]
                any_fits = True
            if not any_fits:
                continue
            for place in range(open_first[start], open_first[start + 1]):
                tensor = open_tensor[place]
                if inside[here, tensor] == num_members[tensor]:
                    for each in range(classes):
                        load_s[each] += tensor_s[tensor, each]
                elif inside[here, tensor] == inside[start, tensor]:
                    for each in range(classes):
                        load_s[each] -= tensor_s[tensor, each]
            for each in range(classes):
                if load_s[each] > limit:
                    continue
                for state in range(states):
                    if best[start, state] > limit or (state // stride[each]) % (num_devices[each] + 1) == num_devices[each]:
                        continue
                    if limit < np.inf and not can_be[state + stride[each]]:
                        continue
                    value = max(best[start, state], load_s[each], handed_s[start])
                    if value < best[here, state + stride[each]]:
                        best[here, state + stride[each]] = value
                        from_downset[here, state + stride[each]] = start
                        from_class[here, state + stride[each]] = each
                        reached[here] = min(reached[here], value)
    state = int(np.argmin(best[d - 1]))
    result = best[d - 1, state]
    stages = np.zeros((u, 3), np.int64)
    count = 0
    here = d - 1
    while here > 0 and result < np.inf:
        stages[count, 0] = from_class[here, state]
        stages[count, 1] = here
        stages[count, 2] = from_downset[here, state]
        here, state = from_downset[here, state], state - stride[from_class[here, state]]
        count += 1
    return result, stages[:count]


@njit
def _sums(downsets, times_s, resident, members, tensor_s):  # type: ignore[no-untyped-def]
    """Return of each downset its bits, seconds on each class, least seconds, units barred from classes, bytes, tensors."""
    d, u = downsets.shape
    classes = times_s.shape[1]
    first, units = members
    k = len(first) - 1
    words = bits_of(downsets)
    sums_s, least_s, held = np.zeros((d, classes)), np.zeros(d), np.zeros(d)
    barred = np.zeros((d, classes), np.int32)
    inside = np.zeros((d, k), np.uint16)
    num_members = np.zeros(k, np.uint16)
    for tensor in range(k):
        num_members[tensor] = first[tensor + 1] - first[tensor]
    for here in range(d):
        for unit in range(u):
            if downsets[here, unit]:
                shortest = np.inf
                for each in range(classes):
                    if times_s[unit, each] < np.inf:
                        sums_s[here, each] += times_s[unit, each]
                        shortest = min(shortest, times_s[unit, each])
                    else:
                        barred[here, each] += 1
                least_s[here] += shortest
                held[here] += resident[unit]
        for tensor in range(k):
            for place in range(first[tensor], first[tensor + 1]):
                if downsets[here, units[place]]:
                    inside[here, tensor] += np.uint16(1)
    return words, sums_s, least_s, barred, held, inside, num_members


@njit
def _open(inside, num_members, tensor_s):  # type: ignore[no-untyped-def]
    """Return tensors with some ops inside a downset and some outside: where those of each begin, which, and their seconds."""
    d, k = inside.shape
    classes = tensor_s.shape[1]
    first = np.zeros(d + 1, np.int64)
    seconds = np.zeros((d, classes))
    for here in range(d):
        first[here + 1] = first[here]
        for tensor in range(k):
            if 0 < inside[here, tensor] < num_members[tensor]:
                first[here + 1] += 1
    result = np.zeros(first[d], np.int32)
    place = 0
    for here in range(d):
        for tensor in range(k):
            if 0 < inside[here, tensor] < num_members[tensor]:
                result[place] = tensor
                place += 1
                for each in range(classes):
                    seconds[here, each] += tensor_s[tensor, each]
    return first, result, seconds


@njit
def bits_of(downsets):  # type: ignore[no-untyped-def]
    """Return the units of each downset as bits, ``(d, w)``."""
    d, u = downsets.shape
    words = np.zeros((d, (u + 63) // 64), np.uint64)
    for here in range(d):
        for unit in range(u):
            if downsets[here, unit]:
                words[here, unit // 64] |= np.uint64(1) << np.uint64(unit % 64)
    return words


@njit(inline="always")
def is_inside(words, small, large):  # type: ignore[no-untyped-def]
    """Return whether a downset lies in another one."""
    inside = True
    for word in range(words.shape[1]):
        if words[small, word] & ~words[large, word]:
            inside = False
            break
    return inside


@njit(inline="always")
def largest_workspace(downsets, start, here, workspace, by_workspace):  # type: ignore[no-untyped-def]
    """Return the largest workspace of units that a downset has and another does not; ``by_workspace``: units, largest first."""
    for place in range(len(by_workspace)):
        unit = by_workspace[place]
        if workspace[unit] == 0.0:
            break
        if downsets[here, unit] and not downsets[start, unit]:
            return workspace[unit]
    return 0.0
