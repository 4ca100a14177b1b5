"""The rules of the dynamics by brute force: lists of jobs, sets of devices, loops over everything; Python's own numbers."""

import math
from dataclasses import dataclass, field

import numpy as np

from meshwright.simulation.cluster.state import Outcome

FAILURE, PREEMPTION = 0, 1


def exponential_s(mean_s, *words):
    """The documented hash in Python's unbounded integers."""
    if mean_s == math.inf:
        return math.inf
    bits, all_ones = 0, 2**64 - 1
    for word in words:
        bits = (bits + 0x9E3779B97F4A7C15 * (word + 1)) & all_ones
        bits = ((bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9) & all_ones
        bits = ((bits ^ (bits >> 27)) * 0x94D049BB133111EB) & all_ones
        bits ^= bits >> 31
    return -mean_s * math.log(((bits >> 11) + 0.5) / 2**53)


@dataclass
class PlacedJob:
    """A job that holds a block; ``ran`` are the stretches of time in which it ran, the last one only planned."""

    k: int
    devices: frozenset[int]
    work_s: float
    start_s: float
    until_s: float
    preempted_at_s: float
    saved_s: float = 0.0
    lost_s: float = 0.0
    num_failures: int = 0
    num_preemptions: int = 0
    ran: list[tuple[float, float]] = field(default_factory=list)


class PlainPlayer:
    """One episode; `decisions` yields each decision and is sent the candidate chosen."""

    def __init__(self, scenario, arrivals, seed=0):
        self.scenario, self.arrivals, self.seed = scenario, arrivals, seed
        self.space, self.times = scenario.space, scenario.times
        self.blocks = [frozenset(self.space.block(i).tolist()) for i in range(self.space.num_blocks)]
        self.neighbours = [[j for j, other in enumerate(self.blocks) if block & other] for block in self.blocks]
        self.weight = [1.0 / int((self.space.degree == d).sum()) for d in range(len(self.space.degrees))]
        self.degree = self.space.degree.tolist()
        self.jobs: list[PlacedJob] = []
        self.queue: list[int] = []
        self.outcome: dict[int, Outcome] = {}
        self.now = 0.0
        settings = scenario.settings
        mean_h = settings.failures.mean_time_between_failures_h
        self.mean_failure_s = math.inf if mean_h is None else 3600.0 * mean_h
        rate = settings.preemption.rate_per_job_h
        self.mean_preemption_s = 3600.0 / rate if rate else math.inf
        num_devices = scenario.cluster.num_devices
        self.fails_at = [exponential_s(self.mean_failure_s, seed, FAILURE, d, 0) for d in range(num_devices)]
        self.down: list[list[tuple[float, float]]] = [[] for _ in range(num_devices)]

    def free_at(self, devices):
        jobs = [job.until_s for job in self.jobs if job.devices & devices]
        idle_repairs = [up for d in devices for began, up in self.down[d] if not self.holder(d, began)]
        return max([0.0, *jobs, *idle_repairs])

    def holder(self, device, moment):
        """The job that holds a device just after a moment."""
        return next((j for j in self.jobs if device in j.devices and j.start_s <= moment < j.until_s), None)

    def allowed(self, k):
        graph, steps = int(self.arrivals.graph_id[k]), int(self.arrivals.num_steps[k])
        sequential = steps * self.scenario.workload.graphs[graph].step_s
        return float(self.arrivals.deadline_fraction[k]) * sequential * (1 + 1e-9) - (self.now - self.arrivals.arrival_s[k])

    def time(self, k, block):
        graph, c = int(self.arrivals.graph_id[k]), int(self.space.placement_class[block])
        return int(self.arrivals.num_steps[k]) * float(self.times.step_s[graph, c]), bool(self.times.can_run[graph, c])

    def look(self, k):
        """Block and time of each candidate, which of them can be placed, and the reason if none is taken."""
        now, allowed = self.now, self.allowed(k)
        free_at = [self.free_at(block) for block in self.blocks]
        frees = {self.free_at(frozenset([d])) for d in range(self.scenario.cluster.num_devices)}
        results, feasible_at_all = [(-1, np.inf)], False
        for degree in range(len(self.space.degrees)):
            options = []
            for b in np.flatnonzero(self.space.degree == degree).tolist():
                time, can_run = self.time(k, b)
                if can_run and time <= allowed:
                    feasible_at_all = True
                    if free_at[b] <= now:
                        options.append((b, time))
            for rule in self.scenario.settings.placement_rules:
                scores = [self.score(rule, b, time, free_at, frees) for b, time in options]
                results.append(options[scores.index(min(scores))] if options else (-1, np.inf))
        num_rules = len(self.scenario.settings.placement_rules)
        can_place = [True]
        for a in range(1, len(results)):
            first_of_degree = a - (a - 1) % num_rules
            earlier = [results[q][0] for q in range(first_of_degree, a)]
            can_place.append(results[a][0] >= 0 and results[a][0] not in earlier)
        if any(can_place[1:]):
            reason = Outcome.REJECTED
        elif not feasible_at_all:
            reason = Outcome.DEADLINE
        else:
            reason = Outcome.NO_BLOCK if min(frees) <= now else Outcome.NO_DEVICE
        return results, can_place, reason

    def score(self, rule, b, time, free_at, frees):
        if rule == "first-fit":
            return 0.0
        if rule == "fastest":
            return time
        if rule == "best-fit":
            return self.lost_weight(b, free_at, self.now)
        horizon = 16 * self.scenario.workload.mean_interarrival_s
        moments = [self.now, *sorted({t for t in frees if self.now < t < self.now + horizon})]
        until, lost = self.now + min(time, horizon), 0.0
        for begin, end in zip(moments, [*moments[1:], math.inf], strict=True):
            if begin < until:
                lost += (min(end, until) - begin) * self.lost_weight(b, free_at, begin)
        return lost

    def lost_weight(self, b, free_at, moment):
        """Weight of the blocks that are free by a moment and that block b is in the way of, degree by degree."""
        lost = [0] * len(self.weight)
        for j in self.neighbours[b]:
            if free_at[j] <= moment:
                lost[self.degree[j]] += 1
        return sum((weight * number for weight, number in zip(self.weight, lost, strict=True)), 0.0)

    def take(self, k, block, time):
        preempted_at = self.now + exponential_s(self.mean_preemption_s, self.seed, PREEMPTION, k, 0)
        until = self.now + time
        self.jobs.append(PlacedJob(k, self.blocks[block], time, self.now, until, preempted_at, ran=[(self.now, until)]))
        self.outcome[k] = Outcome.ACCEPTED

    def decisions(self):
        """Yields (job, candidates, mask, reason); ends with the arrival of the job after the last."""
        num_jobs = self.scenario.settings.num_jobs
        for k in range(num_jobs + 1):
            yield from self.pass_time(float(self.arrivals.arrival_s[k]))
            self.expire()
            result, can_place, reason = self.look(k)
            candidate = yield k, result, can_place, reason
            if k == num_jobs:
                return
            if candidate:
                self.take(k, *result[candidate])
            elif len(self.queue) < self.scenario.settings.queue_capacity and reason != Outcome.DEADLINE:
                self.queue = sorted([*self.queue, k], key=self.place_in_queue)  # stable: those alike stay as they came
                self.outcome[k] = Outcome.WAITING
            else:
                self.outcome[k] = reason

    def pass_time(self, until):
        while True:
            devices = range(self.scenario.cluster.num_devices)
            freed = [t for d in devices if (t := self.free_at(frozenset([d]))) > self.now] if self.queue else []
            moment = min([*freed, self.next_interruption()], default=math.inf)
            if moment > until:
                break
            self.now = moment
            self.interrupt()
            if moment in freed:
                self.expire()
                for k in list(self.queue):
                    result, can_place, reason = self.look(k)
                    if any(can_place[1:]):
                        candidate = yield k, result, can_place, reason
                        if candidate:
                            self.queue.remove(k)
                            self.take(k, *result[candidate])
        self.now = until

    def place_in_queue(self, k):
        order = self.scenario.settings.queue_order
        if order == "deadline":
            steps, graph = int(self.arrivals.num_steps[k]), int(self.arrivals.graph_id[k])
            sequential_s = steps * self.scenario.workload.graphs[graph].step_s
            return float(self.arrivals.arrival_s[k]) + float(self.arrivals.deadline_fraction[k]) * sequential_s
        times = [time for time, can in (self.time(k, b) for b in range(len(self.blocks))) if can]
        return min(times, default=math.inf) if order == "shortest-remaining" else 0.0

    def expire(self):
        for k in list(self.queue):
            if all(not can or time > self.allowed(k) for time, can in (self.time(k, b) for b in range(len(self.blocks)))):
                self.queue.remove(k)
                self.outcome[k] = Outcome.EXPIRED

    def next_interruption(self):
        preempted = [j.preempted_at_s for j in self.jobs if j.until_s > self.now and j.preempted_at_s < j.until_s]
        return min([*self.fails_at, *preempted])

    def interrupt(self):
        """Carry out the failures and preemptions of this moment."""
        for d, fails_at in enumerate(self.fails_at):
            if fails_at <= self.now:
                up = self.now + self.scenario.settings.failures.repair_s
                job = self.holder(d, self.now)
                self.down[d].append((self.now, up))
                self.fails_at[d] = up + exponential_s(self.mean_failure_s, self.seed, FAILURE, d, len(self.down[d]))
                if job is not None:
                    job.num_failures += 1
                    self.set_back(job, up)
        for job in self.jobs:
            if job.until_s > self.now >= job.preempted_at_s:
                job.num_preemptions += 1
                self.set_back(job, self.now + self.scenario.settings.preemption.pause_s)

    def set_back(self, job, ready):
        failures = self.scenario.settings.failures
        began, _ = job.ran.pop()
        if self.now >= began:
            job.ran.append((began, self.now))
            done = job.saved_s + (self.now - began)
            saved = max(job.saved_s, math.floor(done / failures.checkpoint_every_s) * failures.checkpoint_every_s)
            job.lost_s += done - saved
            job.saved_s = saved
        else:
            ready = max(ready, began - failures.restart_s)
        runs_from = ready + failures.restart_s
        job.until_s = runs_from + (job.work_s - job.saved_s)
        job.ran.append((runs_from, job.until_s))
        count = job.num_failures + job.num_preemptions
        job.preempted_at_s = runs_from + exponential_s(self.mean_preemption_s, self.seed, PREEMPTION, job.k, count)

    def drain(self):
        """Let the placed jobs run to their ends."""
        while self.next_interruption() < max((job.until_s for job in self.jobs), default=0.0):
            self.now = self.next_interruption()
            self.interrupt()
