"""Stages filled device by device, compiled: the features of each device for the current stage, and the least value.

Stages are filled one after another along the pipeline, each until it has a device for every replica. Each step adds one device.
The value so far is the slowest stage's exchange of gradients and twice the hand-overs between full stages, in their order of
filling. No step lowers it.

Legend of shapes: ``i`` networks, ``E`` episodes, ``n`` most devices, ``f`` features of a candidate. Places beyond a network's
own number of devices are never read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import njit
from ...numba_records import by_reference
from ..ragged import arrays_of
from .instance import TaskletInstance
from .values import matching_s

CANDIDATE_FEATURES = (
    "stage_s",
    "stage_growth_s",
    "mean_reduce_s",
    "most_reduce_s",
    "least_left_s",
    "least_from_previous_s",
    "mean_from_previous_s",
    "hop_s",
    "hop_growth_s",
    "least_to_others_s",
    "mean_left_reduce_s",
    "mean_left_hand_s",
    "near_left",
    "near_left_over",
    "is_first",
    "has_previous",
)
"""Features of a device that may join the stage.

- ``stage_s``, ``stage_growth_s``: the stage's exchange with it, and how far it raises the slowest.
- ``mean_reduce_s``, ``most_reduce_s``: mean and largest exchange with the devices of the stage.
- ``least_left_s``: mean of its shortest exchanges with devices left, as many as the stage still needs.
- ``least_from_previous_s``, ``mean_from_previous_s``: least and mean hand-over from the stage before.
- ``hop_s``, ``hop_growth_s``: the least hand-over that all of the stage need then, and how far this device raises it.
- ``least_to_others_s``: its least hand-over to a device left.
- ``mean_left_reduce_s``, ``mean_left_hand_s``: mean exchange and hand-over with all devices left.
- ``near_left``, ``near_left_over``: number of stages that the devices left near it could fill, and the remaining share of one.
- ``is_first``, ``has_previous``: whether the stage is empty, and whether there is a stage before.
"""

NUM_CANDIDATE_FEATURES = len(CANDIDATE_FEATURES)

PROGRESS_FEATURES = ("stage_filled", "stages_filled", "slowest_s", "path_s", "hop_s")
"""Features of an episode.

The first two are the filled shares of the stage and of all stages. The others are the slowest exchange, hand-overs so far, and
the least hand-over that the devices of the stage need from the one before.
"""

NUM_PROGRESS_FEATURES = len(PROGRESS_FEATURES)


@by_reference
class StackedNetworks(NamedTuple):
    """Networks side by side.

    Attributes:
        num_devices: ``(i,)``.
        num_stages: ``(i,)``.
        reduce_s: see `TaskletInstance`, ``(i, n, n)``.
        hand_over_s: see `TaskletInstance`, ``(i, n, n)``.
        by_reduce: for each device all others, those with the shortest exchange first, ``(i, n, n)``.
        by_hand_over: the same by hand-over, ``(i, n, n)``.
        is_near: see `near_devices`, ``(i, n, n)``.
        reduce_unit_s: mean exchange of two devices, ``(i,)``.
        hand_over_unit_s: mean hand-over of two devices, ``(i,)``.
        scale_s: lower bound of the value, or next to nothing where that is 0, ``(i,)``.
    """

    num_devices: NDArray[np.int64]
    num_stages: NDArray[np.int64]
    reduce_s: NDArray[np.float64]
    hand_over_s: NDArray[np.float64]
    by_reduce: NDArray[np.int64]
    by_hand_over: NDArray[np.int64]
    is_near: NDArray[np.bool_]
    reduce_unit_s: NDArray[np.float64]
    hand_over_unit_s: NDArray[np.float64]
    scale_s: NDArray[np.float64]


@by_reference
class FillingState(NamedTuple):
    """Episodes side by side.

    Attributes:
        instance: ``(E,)``.
        joined: devices in the order in which they joined, ``(E, n)``.
        num_joined: ``(E,)``.
        can_join: ``(E, n)``.
        stage_s: exchange of each device with those in the stage, ``(E, n)``.
        most_s: the longest of them, ``(E, n)``.
        least_from_s: least hand-over from the stage before, ``(E, n)``.
        mean_from_s: mean hand-over from it, ``(E, n)``.
        left_reduce_s: exchange of each device with all devices left, ``(E, n)``.
        left_hand_s: hand-over to all devices left, ``(E, n)``.
        num_near: devices left near each, itself not among them, ``(E, n)``.
        hop_s: least that those in the stage need from the one before, ``(E,)``.
        slowest_s: slowest exchange of all stages so far, ``(E,)``.
        path_s: hand-overs between stages that are full, one way, ``(E,)``.
        value_s: of what is filled, ``(E,)``.
        candidates: features of devices that may join; others are 0, ``(E, n, f)``.
        progress: features of episodes, ``(E, 5)``.
        scratch: written to, ``(E, 3, n)``.
    """

    instance: NDArray[np.int64]
    joined: NDArray[np.int64]
    num_joined: NDArray[np.int64]
    can_join: NDArray[np.bool_]
    stage_s: NDArray[np.float64]
    most_s: NDArray[np.float64]
    least_from_s: NDArray[np.float64]
    mean_from_s: NDArray[np.float64]
    left_reduce_s: NDArray[np.float64]
    left_hand_s: NDArray[np.float64]
    num_near: NDArray[np.int64]
    hop_s: NDArray[np.float64]
    slowest_s: NDArray[np.float64]
    path_s: NDArray[np.float64]
    value_s: NDArray[np.float64]
    candidates: NDArray[np.float32]
    progress: NDArray[np.float32]
    scratch: NDArray[np.int64]


def room_for_networks(num_places: int, n: int) -> StackedNetworks:
    """Return empty places for networks of up to ``n`` devices; `fill_network` fills them."""
    return arrays_of(
        StackedNetworks,
        {
            "num_devices num_stages reduce_unit_s hand_over_unit_s scale_s": num_places,
            "reduce_s hand_over_s by_reduce by_hand_over is_near": (num_places, n, n),
        },
        {"num_stages reduce_unit_s hand_over_unit_s scale_s": 1},
    )


def fill_network(stacked: StackedNetworks, at: int, instance: TaskletInstance) -> None:
    """Write a network into a place."""
    n = instance.num_devices
    stacked.num_devices[at], stacked.num_stages[at] = n, instance.num_stages
    for seconds, whole, order in (
        (instance.reduce_s, stacked.reduce_s, stacked.by_reduce),
        (instance.hand_over_s, stacked.hand_over_s, stacked.by_hand_over),
    ):
        whole[at, :n, :n] = seconds
        own_last = np.where(np.eye(n, dtype=np.bool_), np.inf, seconds)
        order[at, :n, :n] = np.argsort(own_last, axis=1, kind="stable")
    stacked.reduce_unit_s[at], stacked.hand_over_unit_s[at] = units_s(instance)
    stacked.is_near[at, :n, :n] = near_devices(instance)
    stacked.scale_s[at] = max(lower_bound_s(instance), 1e-30)


def near_devices(instance: TaskletInstance) -> NDArray[np.bool_]:
    """Return whether each device's exchange with each other is nearer to its shortest than to the network's mean, ``(n, n)``."""
    others_s = np.where(np.eye(instance.num_devices, dtype=np.bool_), np.inf, instance.reduce_s)
    halfway_s = (others_s.min(axis=1) + units_s(instance)[0]) / 2
    is_near: NDArray[np.bool_] = np.isfinite(others_s) & (others_s <= halfway_s[:, None])
    return is_near


def units_s(instance: TaskletInstance) -> tuple[float, float]:
    """Return the mean exchange and mean transfer of two devices in seconds, or next to nothing where that is 0."""
    pairs = max(1, instance.num_devices * (instance.num_devices - 1))
    return max(float(instance.reduce_s.sum()) / pairs, 1e-30), max(float(instance.hand_over_s.sum()) / pairs, 1e-30)


def new_filling(stacked: StackedNetworks, num_episodes: int) -> FillingState:
    """Make arrays for episodes."""
    e, n = num_episodes, stacked.reduce_s.shape[1]
    return arrays_of(
        FillingState,
        {
            "instance num_joined hop_s slowest_s path_s value_s": e,
            "joined can_join stage_s most_s least_from_s mean_from_s left_reduce_s left_hand_s num_near": (e, n),
            "candidates": (e, n, NUM_CANDIDATE_FEATURES),
            "progress": (e, NUM_PROGRESS_FEATURES),
            "scratch": (e, 3, n),
        },
    )


@njit
def begin_filling(stacked, state, e, at):  # type: ignore[no-untyped-def]
    """Start an episode on a network, by number, with all stages empty."""
    n = stacked.num_devices[at]
    state.instance[e], state.num_joined[e] = at, 0
    state.can_join[e] = False
    state.can_join[e, :n] = True
    for each in (state.stage_s, state.most_s, state.least_from_s, state.mean_from_s):
        each[e] = 0.0
    for device in range(n):
        state.left_reduce_s[e, device] = stacked.reduce_s[at, device, :n].sum()
        state.left_hand_s[e, device] = stacked.hand_over_s[at, device, :n].sum()
        state.num_near[e, device] = stacked.is_near[at, device, :n].sum()
    for total in (state.hop_s, state.slowest_s, state.path_s, state.value_s):
        total[e] = 0.0
    _write_features(stacked, state, e)


@njit
def is_filled(stacked, state, e):  # type: ignore[no-untyped-def]
    """Return whether every device is in a stage."""
    return state.num_joined[e] == stacked.num_devices[state.instance[e]]


@njit
def join(stacked, state, e, device):  # type: ignore[no-untyped-def]
    """Add a device to the stage that is being filled.

    Returns:
        What the value grew, in lower bounds of the network.
    """
    at = state.instance[e]
    n = stacked.num_devices[at]
    p = n // stacked.num_stages[at]
    reduce_s, hand_over_s = stacked.reduce_s[at], stacked.hand_over_s[at]
    before = state.num_joined[e]
    first = before // p * p
    state.joined[e, before] = device
    state.num_joined[e] = before + 1
    state.can_join[e, device] = False
    state.hop_s[e] = max(state.hop_s[e], state.least_from_s[e, device])
    for other in range(n):
        seconds = reduce_s[device, other]
        state.stage_s[e, other] += seconds
        state.most_s[e, other] = max(state.most_s[e, other], seconds)
        state.left_reduce_s[e, other] -= seconds
        state.left_hand_s[e, other] -= hand_over_s[device, other]
        state.num_near[e, other] -= stacked.is_near[at, other, device]
    for place in range(first, before + 1):
        state.slowest_s[e] = max(state.slowest_s[e], state.stage_s[e, state.joined[e, place]])
    if (before + 1) % p == 0:
        stage = state.joined[e, first : before + 1]
        if first > 0:
            scratch = state.scratch[e, :, :p]
            previous = state.joined[e, first - p : first]
            state.path_s[e] += matching_s(hand_over_s, previous, stage, scratch[0], scratch[1], scratch[2])
        state.hop_s[e] = 0.0
        for other in range(n):
            state.stage_s[e, other] = state.most_s[e, other] = 0.0
            least, total = np.inf, 0.0
            for member in stage:
                least = min(least, hand_over_s[member, other])
                total += hand_over_s[member, other]
            state.least_from_s[e, other], state.mean_from_s[e, other] = least, total / p
    value_s = state.slowest_s[e] + 2.0 * state.path_s[e]
    growth = (value_s - state.value_s[e]) / stacked.scale_s[at]
    state.value_s[e] = value_s
    _write_features(stacked, state, e)
    return growth


@njit
def _write_features(stacked, state, e):  # type: ignore[no-untyped-def]
    """Write what each device would make of the stage, and how far the episode is."""
    at, count = state.instance[e], state.num_joined[e]
    n, k = stacked.num_devices[at], stacked.num_stages[at]
    p = n // k
    reduce_s, hand_over_s = stacked.reduce_s[at], stacked.hand_over_s[at]
    unit_s, hand_unit_s = stacked.reduce_unit_s[at], stacked.hand_over_unit_s[at]
    first = count // p * p
    inside, left = count - first, n - count
    stage_unit_s = unit_s * max(1, p - 1)
    state.progress[e, 0] = inside / p
    state.progress[e, 1] = first / n
    state.progress[e, 2] = state.slowest_s[e] / (state.slowest_s[e] + stage_unit_s)
    path_unit_s = hand_unit_s * max(1, k - 1)
    state.progress[e, 3] = state.path_s[e] / (state.path_s[e] + path_unit_s)
    state.progress[e, 4] = state.hop_s[e] / (state.hop_s[e] + hand_unit_s)
    state.candidates[e] = 0.0
    for device in range(n):
        if not state.can_join[e, device]:
            continue
        features = state.candidates[e, device]
        own_s = state.stage_s[e, device]
        stage_s = own_s
        for place in range(first, count):
            member = state.joined[e, place]
            stage_s = max(stage_s, state.stage_s[e, member] + reduce_s[member, device])
        growth_s = max(0.0, stage_s - state.slowest_s[e])
        features[0] = stage_s / (stage_s + stage_unit_s)
        features[1] = growth_s / (growth_s + stage_unit_s)
        if inside > 0:
            mean_s = own_s / inside
            features[2] = mean_s / (mean_s + unit_s)
            features[3] = state.most_s[e, device] / (state.most_s[e, device] + unit_s)
        target, met, total_s = min(p - 1 - inside, left - 1), 0, 0.0
        for place in range(n - 1):
            if met >= target:
                break
            other = stacked.by_reduce[at, device, place]
            if state.can_join[e, other]:
                met += 1
                total_s += reduce_s[device, other]
        if met > 0:
            total_s /= met
            features[4] = total_s / (total_s + unit_s)
        if first > 0:
            least_s, mean_s = state.least_from_s[e, device], state.mean_from_s[e, device]
            features[5] = least_s / (least_s + hand_unit_s)
            features[6] = mean_s / (mean_s + hand_unit_s)
            hop_s = max(state.hop_s[e], least_s)
            features[7] = hop_s / (hop_s + hand_unit_s)
            features[8] = (hop_s - state.hop_s[e]) / (hop_s - state.hop_s[e] + hand_unit_s)
        for place in range(n - 1):
            other = stacked.by_hand_over[at, device, place]
            if state.can_join[e, other]:
                features[9] = hand_over_s[device, other] / (hand_over_s[device, other] + hand_unit_s)
                break
        if left > 1:
            mean_s = max(0.0, state.left_reduce_s[e, device] / (left - 1))
            features[10] = mean_s / (mean_s + unit_s)
            mean_s = max(0.0, state.left_hand_s[e, device] / (left - 1))
            features[11] = mean_s / (mean_s + hand_unit_s)
        near = 1 + state.num_near[e, device]
        features[12] = near / (near + p)
        features[13] = near % p / p
        features[14] = inside == 0
        features[15] = first > 0


def lower_bound_s(instance: TaskletInstance) -> float:
    """Return a lower bound of the seconds of every grouping.

    Each device exchanges gradients with ``P - 1`` others, at best its nearest. Each has a hand-over to or from another device. So
    one of the ``K - 1`` hand-overs is at least the largest of all devices' least hand-overs, and none is below the least of all.
    """
    n, k = instance.num_devices, instance.num_stages
    near_s = np.sort(instance.reduce_s + np.diag(np.full(n, np.inf)), axis=1)
    data_s = float(near_s[:, : instance.num_replicas - 1].sum(axis=1).max())
    if k == 1:
        return data_s
    least_s = (instance.hand_over_s + np.diag(np.full(n, np.inf))).min(axis=1)
    return data_s + 2.0 * float(least_s.max() + (k - 2) * least_s.min())
