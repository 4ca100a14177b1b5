"""A service on drawn clusters whose jobs are decided at once, so that its pages can be looked at without any pricing."""

from datetime import UTC, datetime, timedelta

import yaml

from meshwright.clusters.cluster import Cluster
from meshwright.live.changes import listed
from meshwright.live.controller import Controller
from meshwright.live.deciding import Decided
from meshwright.live.decisions import JobRequest, Observation, free_at_s
from meshwright.live.service import Service
from meshwright.live.sources.listings import Listing
from meshwright.live.state import ClusterState, HeldJob, HostState
from meshwright.live.web.access import Access
from meshwright.live.web.app import build_app
from meshwright.plans.document import PlacementPlan

from ..live_samples import CLUSTER

STEP_S = 0.042
NOW = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def clos(num_hosts, devices_per_host=8, hosts_per_leaf=16):
    """A Clos network of so many hosts."""
    data = yaml.safe_load(CLUSTER)
    del data["host_names"]
    sizes = {"num_hosts": num_hosts, "devices_per_host": devices_per_host, "nics_per_host": devices_per_host}
    data["topology"] |= {**sizes, "hosts_per_leaf": min(hosts_per_leaf, num_hosts)}
    return Cluster.from_data({**data, "name": f"clos-{num_hosts * devices_per_host}"})


class FirstFree:
    """Decides without pricing: a job gets the first devices that are free, as many as it asks for."""

    policy = "first-free"

    def __init__(self, cluster):
        self.cluster = cluster

    def is_ready(self, request):
        return request.job != "zoo:never"

    def make_ready(self, request):
        pass

    def graph(self, request):
        return None

    def digest(self, request):
        return "d" * 16

    def decide(self, inputs):
        """See `Planners.decide`."""
        request, cluster = inputs.request, self.cluster
        expected = request.devices or 8
        free = [device for device, at_s in enumerate(free_at_s(inputs.free)) if at_s <= 0]
        if len(free) < expected:
            return Decided(None, f"{len(free)} of {cluster.num_devices} devices are free", ())
        ranks, rows = [], []
        names, local = cluster.host_names, cluster.local_rank
        for rank, device in enumerate(free[:expected]):
            host = names[cluster.device_host[device]]
            ranks.append({"rank": rank, "host": host, "local_rank": int(local[device]), "device": device})
        for degree in sorted({1, 2, 4, 8, 16, expected}):
            hosts = list(dict.fromkeys(names[cluster.device_host[device]] for device in free[:degree]))
            step_s = STEP_S * (expected / degree) ** 0.9
            row = {"degree": degree, "layout": f"tp{degree}", "device": "a100", "step_s": step_s, "hosts": hosts}
            row |= {
                "completion_s": step_s * request.steps,
                "device_seconds": step_s * degree,
                "memory_bytes": 3.6e9,
                "is_tight": degree == 1,
            }
            rows.append({**row, "is_chosen": degree == expected})
        figures = [{"name": "step_s", "value": STEP_S, "unit": "s", "provenance": "estimated"}]
        plan = {"job": {"name": request.name or "a job"}, "cluster": {"name": cluster.name, "data": cluster.to_data()}}
        made = PlacementPlan.model_validate({**plan, "ranks": ranks, "predicted": figures})
        return Decided(made, "the first devices that were free", tuple(rows))


class Fixed:
    """A source that lists the same again and again."""

    def __init__(self, state, name="slurm"):
        self.name, self.state = name, state

    def listing(self, known):
        return Listing(self.state, ())


def controller_of(cluster, folder):
    return Controller(folder / "ledger.db", FirstFree(cluster))


def app_of(controller, sources=(), tokens=None, **options):
    """The application, and its service."""
    service = Service(controller, controller.store.path, sources, **options)
    return build_app(service, Access(tokens, frozenset(["testserver", "127.0.0.1"]))), service


def busy(cluster, share=0.8):
    """A listing of a busy cluster: jobs of many sizes, some on parts of hosts, one late; hosts that are drained and down."""
    names, size = cluster.host_names, cluster.num_devices // cluster.num_hosts
    hosts = {name: HostState(num_devices=size) for name in names}
    hosts[names[-1]] = HostState(condition="down", num_devices=size, reason="Not responding")
    hosts[names[1]] = HostState(condition="drained", num_devices=size, reason="a fan is broken")
    if len(names) > 5:
        hosts[names[5]] = HostState(condition="drained", num_devices=size, reason="waits for a new driver")
    jobs, at, number = [], 0, 0
    sizes = [2 * size, size // 2, size // 4 or 1, size // 4 or 1, 4 * size, 1, size, size - 1, size // 2]
    while at < share * (len(names) - 2) * size:
        held = {}
        for one in range(at, min(at + sizes[number % len(sizes)], (len(names) - 1) * size)):
            held.setdefault(names[one // size], []).append(one % size)
        ends_at = NOW + timedelta(minutes=37 * number - 30) if number % 4 else None
        if names[5 % len(names)] not in held or len(names) < 6:  # that one waits for its driver without a job
            jobs.append(HeldJob(id=str(1200 + number), name=f"train-{number}", source="slurm", devices=held, ends_at=ends_at))
        at, number = at + sizes[number % len(sizes)], number + 1
    return ClusterState(source="slurm", hosts=hosts, jobs=tuple(jobs))


def lived(controller, num_decisions=6):
    """Decide for several jobs: one runs, one is handed over and some wait; with measured step times of the first."""
    stored = [
        controller.decide(
            JobRequest(job="zoo:gpt2-small", name=f"lm-{number}", owner="ann", steps=20_000, devices=1 + number % 4)
        )
        for number in range(num_decisions)
    ]
    first = stored[0].decision
    waves = [Observation(step=step, step_s=STEP_S * (1.04 + 0.05 * ((step * 7919) % 13) / 13)) for step in range(1, 400)]
    controller.observe(first.id, [Observation(step=0, step_s=1.9), *waves])
    controller.confirm(stored[1].decision.id, "4711")
    with controller.store.turn() as turn:
        plan = next(job for job in turn.state.jobs if job.id == first.id)
        runs = plan.model_copy(update={"id": "1190", "source": "slurm", "decision": first.id, "ends_at": NOW})
        jobs = (*(job for job in turn.state.jobs if job.source != "plan"), runs)
        turn.change(listed(turn.state, turn.state.model_copy(update={"jobs": jobs})))
    return stored
