"""The plain reference of `simulation.fleet.sharing`: its formulas, spelled out without an eye on speed."""

from meshwright.simulation.fleet.sharing import INTERLEAVED, ROUNDS, SAME_PERIOD


def step_times(alone_s, hidden_s, loads, constants, mode, rounds=ROUNDS):
    """Seconds of a step of each job.

    Args:
        alone_s, hidden_s: of each job.
        loads: of each job ``{link: (busy_s, streams)}``.
        constants: weights of the worst link and of every other job.
        mode: as in `sharing.step_times`.
        rounds: of the fixed point.
    """
    jobs = range(len(alone_s))
    busiest_s = [max((busy for busy, _ in of_job.values()), default=0.0) for of_job in loads]
    users = {link: [j for j in jobs if loads[j].get(link, (0.0, 1.0))[0] > 0] for of_job in loads for link in of_job}
    shared = {link: there for link, there in users.items() if len(there) > 1}

    exposed_s = [min(max(busiest_s[j] - hidden_s[j], 0.0), alone_s[j]) for j in jobs]

    def cost(j, k, link):
        (own_s, own_streams), (other_s, other_streams) = loads[j][link], loads[k][link]
        return own_s / max(busiest_s[j], exposed_s[j]) * other_s / busiest_s[k] * other_streams / own_streams

    def wanted(j, link):
        return sends[j] * loads[j][link][0] / busiest_s[j]

    def same(j, k):
        return abs(alone_s[j] - alone_s[k]) <= SAME_PERIOD * max(alone_s[j], alone_s[k])

    def left(excess, by_chance):
        return min(1.0, max(0.0, excess) / by_chance) if by_chance > 0 else 0.0

    step_s, slowdown = list(alone_s), [1.0 for _ in jobs]
    for _ in range(rounds):
        sends = [min(1.0, busiest_s[j] * slowdown[j] / step_s[j]) for j in jobs]
        for j in jobs:
            held_up, disturbed = [0.0], 0.0
            for link, there in shared.items():
                if j not in there:
                    continue
                here = sum(cost(j, k, link) * sends[k] for k in there if k != j)
                if mode == INTERLEAVED and all(same(there[0], k) for k in there):
                    own, others = wanted(j, link), sum(wanted(k, link) for k in there if k != j)
                    here *= left(own + others - 1, own * others)
                held_up.append(here)
            for k in jobs:
                worst = max(
                    (cost(j, k, link) for link, there in shared.items() if j in there and k in there and j != k), default=0.0
                )
                meeting = left(sends[j] + sends[k] - 1, sends[j] * sends[k]) if mode == INTERLEAVED and same(j, k) else 1.0
                disturbed += worst * sends[k] * meeting
            slowdown[j] = 1 + constants[0] * max(held_up) + constants[1] * disturbed
        step_s = [alone_s[j] + exposed_s[j] * (slowdown[j] - 1) for j in jobs]
    return step_s
