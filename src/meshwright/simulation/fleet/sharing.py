"""Step times of jobs that share links."""

from __future__ import annotations

from ...compiled import njit

ITERATIONS = 6


@njit
def step_times(num_jobs, alone_s, hidden_s, first_load, load_link, load_busy_s, load_streams, constants, mode, out_step_s):  # type: ignore[no-untyped-def]
    """Stub until the fitted model is merged."""
    for job in range(num_jobs):
        out_step_s[job] = alone_s[job]
    for _ in range(ITERATIONS):
        for job in range(num_jobs):
            worst = 0.0
            for i in range(first_load[job], first_load[job + 1]):
                crowd = 0.0
                for other in range(num_jobs):
                    if other == job:
                        continue
                    for j in range(first_load[other], first_load[other + 1]):
                        if load_link[j] == load_link[i]:
                            share = min(1.0, load_busy_s[j] / out_step_s[other])
                            crowd += share * load_streams[j] / load_streams[i]
                worst = max(worst, load_busy_s[i] * crowd)
            out_step_s[job] = alone_s[job] + max(0.0, worst - hidden_s[job])
