"""Elastic jobs in plain Python: what `simulation.elastic.rounds` computes, one job at a time and with words for states.

Times of single steps and the batches that jobs choose come from the compiled functions; what is held here is everything
that happens between them.
"""

from dataclasses import dataclass, field
from itertools import groupby

from meshwright.simulation.elastic import batch_size, measured
from meshwright.simulation.elastic.state import BatchRule


@dataclass
class Job:
    application: int
    submitted: int
    batch: int
    nodes: list = field(default_factory=list)
    local: int = 0
    passes: int = 0
    progress: float = 0.0
    epoch: int = 0
    service: int = 0
    restarting: int = 0
    restarts: int = -1
    ended: int | None = None

    @property
    def counts(self):
        return [len(list(group)) for _, group in groupby(self.nodes)]


class PlainCluster:
    """One episode."""

    def __init__(self, simulation, workload, rule):
        self.apps, self.cluster, self.rule, self.now = simulation.apps, simulation.cluster, rule, 0
        fixed = workload.batch if rule is BatchRule.FIXED else [0] * len(workload.job_names)
        self.jobs = [Job(*map(int, job)) for job in zip(workload.application, workload.submission_s, fixed, strict=True)]
        self.run()

    @property
    def is_over(self):
        return all(job.ended is not None for job in self.jobs)

    def active(self, job):
        return job.ended is None and job.submitted <= self.now

    def step(self, nodes_of_jobs):
        for job, nodes in zip(self.jobs, nodes_of_jobs, strict=True):
            expected = list(nodes) if self.active(job) else []
            if expected == job.nodes:
                continue
            job.nodes = expected
            if expected:
                self.choose(job)
                job.restarting = self.cluster.restart_s
                job.restarts += 1
        self.run()

    def run(self):
        spread = [job for job in self.jobs if len(job.counts) > 1]
        for job in self.jobs:
            meets = any(other is not job and set(other.nodes) & set(job.nodes) for other in spread) and job in spread
            self.advance(job, self.cluster.round_s, self.cluster.interference if meets else 0.0)
        self.now += self.cluster.round_s

    def advance(self, job, left, slowed):
        if not job.nodes or job.ended is not None:
            return
        start = self.now + left
        while left > 0 and job.ended is None:
            if job.restarting > 0:
                spent = min(job.restarting, left)
                job.restarting -= spent
            else:
                spent = self.train(job, left, slowed, start)
            job.service += spent * len(job.nodes)
            left -= spent

    def train(self, job, left, slowed, start):
        """Up to the end of an epoch; the seconds that it takes."""
        a, ranks = job.application, len(job.nodes)
        step_s, sync_s = measured.step_times(self.apps, a, self.placement(job), len(job.counts), ranks, job.local)
        batch = ranks * job.local * (job.passes + 1)
        sqr, var = measured.gradient_statistics(self.apps, a, batch, job.epoch)
        worth = (var + sqr) / (var / (batch / self.apps.initial_batch[a]) + sqr)
        per_s = worth / (step_s + (step_s - sync_s) * job.passes) * (1.0 - slowed)
        goal = self.apps.progress[a, job.epoch + 1]
        if job.progress + per_s * left < goal:
            job.progress += per_s * left
            spent = left
        else:
            spent = round(float((goal - job.progress) / per_s))
            job.progress, job.epoch = float(goal), job.epoch + 1
            if job.epoch == self.apps.num_epochs[a]:
                job.ended = start - left + spent
                return spent
        self.choose(job)
        return spent

    def placement(self, job):
        counts = job.counts
        turned = min(int("".join(map(str, counts[i:] + counts[:i]))) for i in range(len(counts)))
        keys = self.apps.placement[job.application, : self.apps.num_placements[job.application]].tolist()
        return keys.index(turned) if turned in keys else -1

    def choose(self, job):
        ranks = len(job.nodes)
        if self.rule is BatchRule.FIXED:
            job.local, job.passes = measured.split_batch(self.apps, job.application, job.batch, ranks)
        else:
            at = (self.placement(job), len(job.counts), ranks)
            _, job.local, job.passes = batch_size.known_goodput(self.apps, job.application, job.epoch, *at)
