"""Closed forms of pipeline schedules, as they were published."""


def closed_form_s(
    schedule: str, num_stages: int, virtual_stages: int, num_micro_batches: int, task_s: tuple[float, float, float]
) -> float:
    """The time of a schedule of equal stages without transfers, for comparison.

    ``m`` passes of a stage plus a bubble: ``(p - 1) (F + B)`` for GPipe and 1F1B, ``1 / v`` of it interleaved,
    ``(p - 1) (F + B - W)`` for ZB-H1, ``(p - 1) max(0, F + B - 2 W)`` for ZB-2P.

    Args:
        schedule: as `Layout.schedule`.
        num_stages: ``p``.
        virtual_stages: ``v``.
        num_micro_batches: ``m``, at least ``p`` (for ZB-2P ``2 p - 1``).
        task_s: forward, backward and weight seconds of a whole stage, the second without the third.

    Source:
        Narayanan et al., 2021, section 2.2; Qi et al., 2024, table 1.
    """
    forward, backward, weight = task_s
    p, v, m = num_stages, virtual_stages, num_micro_batches
    busy = m * (forward + backward + weight)
    if schedule == "zb-h1":
        return busy + (p - 1) * (forward + backward - weight)
    if schedule == "zb-2p":
        return busy + (p - 1) * max(0.0, forward + backward - 2 * weight)
    return busy + (p - 1) * (forward + backward + weight) / v
