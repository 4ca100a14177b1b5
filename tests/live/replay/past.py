"""A past: jobs come to a controller of four hosts of four devices, run at their true step times and end, on a simulated clock."""

import heapq
import itertools
from datetime import UTC, datetime, timedelta
from functools import cache

import numpy as np

from meshwright.clusters import load_cluster
from meshwright.live.controller import Controller
from meshwright.live.deciding import Planners
from meshwright.live.decisions import JobRequest, Observation
from meshwright.live.ledger import Ledger
from meshwright.live.sources.listings import Listing
from meshwright.live.state import ClusterState, HeldJob, HostState

from ...oracles.memory_store import MemoryStore
from ...tiny_fleet import CLUSTER

BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
POLICY = "menu:fastest-feasible"
DAY_S = 86_400.0


@cache
def planners(folder, policy=POLICY):
    """Planners of the cluster, which price a job once in a session."""
    path = folder / "tiny.yaml"
    path.write_text(CLUSTER)
    return Planners(load_cluster(str(path)), policy, scratch=folder, cache=folder)


def request(number, steps, job="resnet18", **more):
    """A job with a name of its own."""
    return JobRequest(job=f"zoo:{job}", name=f"job-{number}", steps=steps, batch=256, **more)


class Past:
    """Plays a past into a store.

    Args:
        made: planners.
        truth: real over predicted step time, from a request and its number of devices.
        observed: measured steps of each run that are kept.
        file: of a ledger; in memory by default.
        more: as of the controller.
    """

    def __init__(self, made, *, truth=lambda request, devices: 1.0, observed=0, file=None, **more):
        self.at_s, self.truth, self.num_observed = 0.0, truth, observed
        clock = lambda: self.now().isoformat()  # noqa: E731
        self.store = MemoryStore(now=clock) if file is None else Ledger(file, now=clock)
        self.controller = Controller(self.store, made, now=self.now, elapsed_s=lambda: self.at_s, **more)
        self.hosts = dict.fromkeys(made.cluster.host_names, HostState(num_devices=4))
        self.running, self.foreign, self.queue, self.asked_s, self.completion_s = {}, {}, [], {}, {}

    def now(self):
        return BEGIN + timedelta(seconds=self.at_s)

    def take(self):
        """The scheduler lists everything."""
        jobs = (*self.running.values(), *self.foreign.values())
        self.controller.take(Listing(ClusterState(source="slurm", hosts=self.hosts, jobs=jobs)))

    def play(self, arrivals, others=()):
        """Jobs come at their times, and ask again at each event; others, ``(begin_s, end_s, id, devices)``, take what is free."""
        self.take()
        events = [(at_s, 1, number, one) for number, (at_s, one) in enumerate(arrivals)]
        for number, (begin_s, end_s, name, devices) in enumerate(others, len(events)):
            events += [(begin_s, 2, number, (name, devices)), (end_s, 0, number, name)]
        heapq.heapify(events)
        numbers = itertools.count(len(events))
        while events:
            self.at_s, kind, number, what = heapq.heappop(events)
            if kind == 0:
                self.running.pop(what, None) or self.foreign.pop(what, None)
                self.take()
            elif kind == 1:
                self.queue.append((self.at_s, what))
            elif not self.is_held(what[1]):
                self.foreign[what[0]] = HeldJob(id=what[0], devices=what[1], source="slurm")
                self.take()
            for waits in list(self.queue):
                if ran := self.start(*waits):
                    heapq.heappush(events, (self.at_s + ran[1], 0, next(numbers), ran[0]))
                    self.queue.remove(waits)
        return self

    def is_held(self, devices):
        """Whether one of some devices is held."""
        jobs = [*self.running.values(), *self.foreign.values()]
        return any({*local} & {*job.devices.get(host, ())} for job in jobs for host, local in devices.items())

    def start(self, asked_s, asked):
        """Ask for a job; the scheduler's id and how long it runs."""
        record = self.controller.decide(asked)
        decision = record.decision
        if decision.plan is None:
            return None
        name = f"slurm-{decision.id}"
        self.controller.confirm(decision.id, name)
        planned = next(job for job in self.store.last()[1].jobs if job.id == decision.id)
        figures = {"id": name, "source": "slurm", "decision": decision.id, "confirmed_as": None}
        self.running[name] = planned.model_copy(update=figures)
        self.take()
        num_devices = len(decision.plan["ranks"])
        step_s = decision.predicted["step_s"] * self.truth(asked, num_devices)
        if self.num_observed:
            times = step_s * np.where(np.arange(self.num_observed) < 10, 5.0, 1.0)
            self.controller.observe(decision.id, [Observation(step=i, step_s=float(t)) for i, t in enumerate(times)])
        self.completion_s[asked.name] = self.at_s + asked.steps * step_s - asked_s
        return name, asked.steps * step_s


def week(num=120, days=7, seed=0):
    """Jobs of a week, of two kinds."""
    rng = np.random.default_rng(seed)
    at_s = np.sort(rng.uniform(0, days * DAY_S, num))
    steps = np.round(np.exp(rng.normal(np.log(100_000), 0.8, num))).astype(int)
    drawn = enumerate(zip(at_s.tolist(), steps.tolist(), strict=True))
    return [(at, request(k, count, ("resnet18", "vgg16")[k % 3 == 0])) for k, (at, count) in drawn]
