"""The change that annealing of stages tries: devices of two stages exchanged, one by one or a region at a time."""

from ...compiled import njit
from ..operators.search.problem import draw, draw_below


@njit
def exchange(region, left, right, i, block_share, random):  # type: ignore[no-untyped-def]
    """Exchange device ``i`` of a stage for one of another stage or, now and then, several of its region for as many.

    Args:
        region: of each device, ``(n,)``.
        left, right: devices of the two stages, ``(p,)`` each, changed in place.
        i: place in ``left``.
        block_share: share of the changes that exchange several, where the regions of the two devices differ.
        random: state of the generator.
    """
    p = len(left)
    j = draw_below(random, p)
    from_left, from_right = region[left[i]], region[right[j]]
    if draw(random) >= block_share or from_left == from_right:
        left[i], right[j] = right[j], left[i]
        return
    in_left, in_right = 0, 0
    for place in range(p):
        in_left += region[left[place]] == from_left
        in_right += region[right[place]] == from_right
    most = min(in_left, in_right)
    count = most if draw(random) < 0.5 else 1 + draw_below(random, most)
    i = j = 0
    for _ in range(count):
        while region[left[i]] != from_left:
            i += 1
        while region[right[j]] != from_right:
            j += 1
        left[i], right[j] = right[j], left[i]
        i += 1
        j += 1
