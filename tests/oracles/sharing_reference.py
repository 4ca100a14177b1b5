"""The plain reference of `simulation.fleet.sharing`: its formulas, spelled out without an eye on speed."""

from meshwright.simulation.fleet.sharing import INTERLEAVED, ROUNDS, SAME_PERIOD


def step_times(alone_s, hidden_s, loads, constants, mode, rounds=ROUNDS):
    """Seconds of a step of each job.

    Args:
        alone_s, hidden_s: of each job.
        loads: of each job ``{link: (busy_s, streams)}``.
        constants: a, b, h and t.
        mode: as in `sharing.step_times`.
        rounds: of the fixed point.
    """
    worst_link, every_job, mean_rate, some_rate = constants
    jobs = range(len(alone_s))
    busiest_s = [max((busy for busy, _ in of_job.values()), default=0.0) for of_job in loads]
    exposed_s = [min(max(busiest_s[j] - hidden_s[j], 0.0), alone_s[j]) for j in jobs]
    users = {link: [j for j in jobs if loads[j].get(link, (0.0, 1.0))[0] > 0] for of_job in loads for link in of_job}

    def cost(j, k, link):
        (own_s, own_streams), (other_s, other_streams) = loads[j][link], loads[k][link]
        own, other = own_s / busiest_s[j] * busiest_s[j] / max(busiest_s[j], exposed_s[j]), other_s / busiest_s[k]
        fair = own_streams / (own_streams + other_streams)
        full_rate = (1 - some_rate) * own * other * other_streams / own_streams
        return full_rate + some_rate * max(0.0, own / max(fair, 1 - other) - 1)

    costs = {(j, k, link): cost(j, k, link) for link, there in users.items() for j in there for k in there if j != k}
    worst = {(j, k): max((c for (a, b, _), c in costs.items() if (a, b) == (j, k)), default=0.0) for j in jobs for k in jobs}

    def same(j, k):
        return abs(alone_s[j] - alone_s[k]) <= SAME_PERIOD * max(alone_s[j], alone_s[k])

    def left(excess, by_chance):
        return min(1.0, max(0.0, excess) / by_chance) if by_chance > 0 else 0.0

    step_s, slowdown = list(alone_s), [1.0 for _ in jobs]
    for _ in range(rounds):
        sends = [min(1.0, busiest_s[j] * slowdown[j] / step_s[j]) for j in jobs]
        for j in jobs:
            meets = [sends[k] / (1 + mean_rate * worst[j, k] * (1 - sends[k])) for k in jobs]
            held_up, disturbed = [0.0], 0.0
            for link, there in users.items():
                if j not in there or len(there) < 2:
                    continue
                here = sum(costs[j, k, link] * meets[k] for k in reversed(there) if k != j)
                if mode == INTERLEAVED and all(same(there[-1], k) for k in there):
                    expected = {k: sends[k] * (loads[k][link][0] / busiest_s[k]) for k in reversed(there)}
                    every = sum(expected.values())
                    here *= left(every - 1, expected[j] * (every - expected[j]))
                held_up.append(here)
            for k in jobs:
                stored = left(sends[j] + sends[k] - 1, sends[j] * sends[k]) if mode == INTERLEAVED and same(j, k) else 1.0
                disturbed += worst[j, k] * meets[k] * stored
            slowdown[j] = 1 + every_job * disturbed + worst_link * max(held_up)
        step_s = [alone_s[j] + exposed_s[j] * (slowdown[j] - 1) for j in jobs]
    return step_s
