"""The step-by-step policy's scores in compiled code, and their change when an op is placed.

Legend of shapes as of `compiled_steps`, whose weights and walks these functions take.
"""

from __future__ import annotations

import numpy as np

from ...compiled import njit


@njit
def score_devices(op, can, told, count, from_placed, key, hidden, weights, scores):  # type: ignore[no-untyped-def]
    """Write the logit of each allowed device ``(m,)``; whether there is one. ``hidden`` ``(m, h)`` is written over."""
    m, h = weights.device.shape
    among, from_among = np.zeros(h, np.float32), np.zeros(h, np.float32)
    num_allowed, decided = 0, np.float32(count.sum())
    for device in range(m):
        if not can[device]:
            continue
        num_allowed += 1
        share = count[device] / (decided + np.float32(1.0))
        for k in range(h):
            sum_k = weights.op[op, k] + weights.device[device, k] + from_placed[device, k] + weights.placed[k, h] * share
            for f in range(told.shape[1]):
                sum_k += weights.candidate[k, f] * told[device, f]
            hidden[device, k] = max(sum_k, np.float32(0.0))
            among[k] += hidden[device, k]
    if num_allowed == 0:
        return False
    for k in range(h):
        from_among[k] = np.float32(0.0)
        for other in range(h):
            from_among[k] += weights.others[k, other] * among[other] / np.float32(num_allowed)
    for device in range(m):
        if not can[device]:
            continue
        score = np.float32(0.0)
        for k in range(h):
            last = weights.middle_bias[k] + from_among[k]
            for other in range(h):
                last += weights.middle[k, other] * hidden[device, other]
            score += weights.out[k] * max(last, np.float32(0.0)) + weights.query[op, k] * key[device, k]
        for f in range(told.shape[1]):
            score += weights.direct[f] * told[device, f]
        scores[device] = score
    return True


@njit
def likeliest(scores, can, noise, likely):  # type: ignore[no-untyped-def]
    """The device of the highest logit with noise; writes how likely each is without."""
    best, best_score, highest, total = -1, np.float32(-np.inf), np.float32(-np.inf), 0.0
    for device in range(len(scores)):
        if can[device]:
            highest = max(highest, scores[device])
            if scores[device] + noise[device] > best_score:
                best, best_score = device, scores[device] + noise[device]
    for device in range(len(scores)):
        likely[device] = np.exp(scores[device] - highest) if can[device] else 0.0
        total += likely[device]
    likely[:] /= total
    return best


@njit
def stand(op, device, sign, total, count, from_placed, key, weights):  # type: ignore[no-untyped-def]
    """Place an op on a device, or with ``sign`` -1 take it away."""
    h = weights.device.shape[1]
    count[device] += sign
    for k in range(h):
        total[device, k] += sign * weights.op_h[op, k]
    for k in range(h):
        sum_placed, sum_key = np.float32(0.0), np.float32(0.0)
        for other in range(h):
            mean = total[device, other] / max(count[device], np.float32(1.0))
            sum_placed += weights.placed[k, other] * mean
            sum_key += weights.key[k, other] * mean
        from_placed[device, k], key[device, k] = sum_placed, sum_key


@njit
def tell_near(candidates, near, link, told):  # type: ignore[no-untyped-def]
    """Features of each device: those of the candidate, what is near on it, and what is near on others by the length of links."""
    m, num_affinities = near.shape
    num_features = told.shape[1] - 2 * num_affinities
    for device in range(m):
        for f in range(num_features):
            told[device, f] = candidates[device, f]
        for a in range(num_affinities):
            told[device, num_features + a] = near[device, a]
            far = np.float32(0.0)
            for other in range(m):
                far += near[other, a] * link[other, device]
            told[device, num_features + num_affinities + a] = far


@njit
def walk_to_group(stacked, walks, group, device, sign, near):  # type: ignore[no-untyped-def]
    """Add to all affinities ``(n, m, a)`` those to a group that has just been placed, or subtract them."""
    n = len(near)
    here, there = np.zeros((n, walks.weight.shape[1]), np.float32), np.zeros((n, walks.weight.shape[1]), np.float32)
    is_reached = np.zeros(n, np.int8)
    for op in range(n):
        if stacked.group[0, op] == group:
            _walk_to(walks, op, sign, near[:, device], here, there, is_reached)


@njit
def _walk_to(walks, op, sign, near, here, there, is_reached):  # type: ignore[no-untyped-def]
    """Add to each op's affinities ``near`` ``(n, a)`` how likely walks from it are at ``op`` after each number of steps."""
    num_walks = walks.weight.shape[1]
    reached = [op]
    here[op, :] = 1.0
    for step in range(walks.steps):
        after = [op][:0]
        for at in reached:
            for place in range(walks.first[at], walks.first[at + 1]):
                source = walks.source[place]
                if is_reached[source] == 0:
                    is_reached[source] = 1
                    after.append(source)
                for walk in range(num_walks):
                    there[source, walk] += walks.weight[place, walk] * here[at, walk]
        for at in reached:
            here[at, :] = 0.0
        for at in after:
            is_reached[at] = 0
            for walk in range(num_walks):
                near[at, walk * walks.steps + step] += sign * there[at, walk]
                here[at, walk] = there[at, walk]
                there[at, walk] = 0.0
        reached = after
    for at in reached:
        here[at, :] = 0.0
