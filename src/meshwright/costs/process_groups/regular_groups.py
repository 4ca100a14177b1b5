"""Regular groups: how the groups of a layout are spread over equal hosts, computed from rank numbers alone.

Ranks take devices in rank order. So a group along an axis is regular: each of its hosts has an equal share of its ranks. Where
hosts differ this is not enough to price a group, see `lanes`.
"""

from __future__ import annotations

import math
from functools import lru_cache

from ...plans.partition import Layout
from ...plans.rank_order import DEFAULT_ORDER
from ..collectives.groups import Group


def groups_of(layout: Layout, devices_per_host: int, order: str = DEFAULT_ORDER) -> dict[str, Group]:
    """Return the groups of a rank along every axis."""
    return _groups(*degrees_of(layout), devices_per_host, order)[0]


def is_regular(layout: Layout, devices_per_host: int, order: str = DEFAULT_ORDER) -> bool:
    """Return whether each group has equally many ranks on each host, at equal distances; other groups' prices are rough."""
    return _groups(*degrees_of(layout), devices_per_host, order)[1]


Volume = tuple[int, int, int]


def degrees_of(layout: Layout) -> tuple[int, int, int, int, int, int, Volume, int]:
    """Return all on which the groups of a layout depend."""
    volume = layout.sp_d, layout.sp_h, layout.sp_w
    return layout.tp, layout.cp, layout.dp, layout.pp, layout.ep, layout.expert_tp, volume, layout.num_shards


@lru_cache(maxsize=65_536)
def _groups(
    tp: int, cp: int, dp: int, pp: int, ep: int, etp: int, volume: Volume, shards: int, devices_per_host: int, order: str
) -> tuple[dict[str, Group], bool]:
    """Return groups by axis, and whether all of them are regular.

    The ranks of dp and cp that hold the same weights count along cp first. Stages next to each other are on one host if all
    stages are. Otherwise the transfer between hosts decides, and it shares the cards with the ranks of one stage. Parts of a
    volume take the place of the slices of a sequence, which is then whole.
    """
    sp = math.prod(volume)
    slices = cp * sp
    size, stride, step = {"tp": tp, "cp": slices, "dp": dp, "pp": pp}, {}, 1
    for axis in order.split("-"):
        stride[axis], step = step, step * size[axis]
    used = min(step, devices_per_host)
    same = [(slices, stride["cp"]), (dp, stride["dp"])]
    if stride["dp"] == slices * stride["cp"] or 1 in (slices, dp):
        same = [(slices * dp, stride["dp"] if slices == 1 else stride["cp"])]
    slices_of_experts, others = _cut(_joined([(tp, stride["tp"]), *same]), etp)
    experts, expert_copies = _cut(others if etp < tp else same, ep)
    sharing, copies = _cut(same, shards)
    result, regular = {}, step % used == 0
    for name, axes in (
        ("tp", [(tp, stride["tp"])]),
        ("cp", [(cp, stride["cp"])]),
        ("ep", experts),
        ("etp", slices_of_experts),
        ("dp_cp", same),
        ("expert_dp", expert_copies),
        ("shard", sharing),
        ("replica", copies),
        ("sp", [(sp, stride["cp"])]),
        ("sp_d", [(volume[0], stride["cp"] * volume[1] * volume[2])]),
        ("sp_h", [(volume[1], stride["cp"] * volume[2])]),
        ("sp_w", [(volume[2], stride["cp"])]),
    ):
        per_host, apart, parts_inside = 1, axes[0][1], 0
        for ranks, distance in axes:
            room = max(1, used // distance)
            inside = max(1, min(ranks, room))
            while ranks % inside:
                inside -= 1
            if inside > 1:
                apart = distance if not parts_inside else apart
                parts_inside += 1
            per_host *= inside
            fits = distance >= used or (used % distance == 0 and max(ranks, room) % min(ranks, room) == 0)
            regular &= ranks == 1 or (fits and (distance < used or distance % used == 0))
        regular &= parts_inside <= 1
        result[name] = Group(math.prod(ranks for ranks, _ in axes), per_host, apart, max(1, used // per_host))
    is_inside = pp * stride["pp"] <= used
    groups_at_once = used // 2 if is_inside else min(used, stride["pp"])
    between_ends = stride["pp"] * max(1, pp - 1)  # of mirrored stages those at the ends are the farthest
    for name, distance in (("pp", stride["pp"]), ("ends", between_ends), ("mirror", between_ends)):
        result[name] = Group(min(2, pp), 2 if is_inside and pp > 1 else 1, distance, max(1, groups_at_once))
    room = max(1, used // stride["pp"])
    regular &= pp == 1 or stride["pp"] % used == 0 or max(pp, room) % min(pp, room) == 0
    return result, regular


def boundary_groups(layout: Layout, devices_per_host: int, order: str = DEFAULT_ORDER) -> tuple[Group, ...]:
    """Return the ranks of a transfer between each stage and the next one, and of one between the last and the first.

    Where a host holds several stages, but not all, a transfer between two of them stays inside it.
    """
    groups, pp = groups_of(layout, devices_per_host, order), layout.pp
    if not layout.has_equal_stages:
        return tuple(_transfer(layout, stage, (stage + 1) % pp, devices_per_host) for stage in range(pp))
    stride = groups["pp"].stride
    room = devices_per_host // stride if devices_per_host % stride == 0 else 1
    if room <= 1 or groups["pp"].per_host > 1:
        return (groups["pp"],) * (pp - 1) + (groups["ends"],)
    inside = Group(2, 2, stride, max(1, devices_per_host // 2))
    return (*(groups["pp"] if (stage + 1) % room == 0 else inside for stage in range(pp - 1)), groups["ends"])


def _transfer(layout: Layout, source: int, target: int, devices_per_host: int) -> Group:
    """Return the ranks of a transfer between two stages of as many ranks, of a layout whose stages have unequally many."""
    firsts, width = [layout.first_rank(stage) for stage in (source, target)], layout.stage_width(source)
    used = min(layout.world, devices_per_host)
    if firsts[0] // devices_per_host == (firsts[1] + width - 1) // devices_per_host:
        return Group(2, 2, abs(firsts[1] - firsts[0]), max(1, used // 2))
    return Group(2, 1, abs(firsts[1] - firsts[0]), min(used, width))


def starts_evenly(layout: Layout, devices_per_host: int) -> bool:
    """Return whether each stage has whole hosts, or a part of one that divides it, from a multiple of that part on."""
    parts = [min(layout.stage_width(stage), devices_per_host) for stage in range(layout.pp)]
    return all(
        devices_per_host % part == 0 and layout.first_rank(stage) % part == 0 and layout.stage_width(stage) % part == 0
        for stage, part in enumerate(parts)
    )


def _cut(axes: list[tuple[int, int]], ranks: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Split the ranks of some axes into runs of ``ranks``: one run, and the ranks at the same place of all runs."""
    (first, apart), *rest = axes
    if not rest or first % ranks == 0:
        return [(ranks, apart)], [(first // ranks, apart * ranks), *rest]
    run, left = _cut(rest, ranks // first)
    return [(first, apart), *run], [(1, apart), *left]


def _joined(axes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge each axis that begins where the one before it ends."""
    result: list[tuple[int, int]] = []
    for ranks, apart in axes:
        if result and apart == result[-1][0] * result[-1][1]:
            result[-1] = result[-1][0] * ranks, result[-1][1]
        elif ranks > 1 or not result:
            result.append((ranks, apart))
    return result
