"""Drawn states and changes of a cluster of three hosts of four devices."""

from hypothesis import strategies as st

from meshwright.live.changes import HostChanged, JobAdded, JobRemoved, listed
from meshwright.live.state import ClusterState, HeldJob, HostState

HOSTS = ("a", "b", "c")
CLUSTER = """name: three
device: a100
host_names: [a, b, c]
topology:
  kind: clos
  num_hosts: 3
  devices_per_host: 4
  intra_host_bandwidth_gbytes_per_s: 300.0
  intra_host_latency_us: 0.6
  nics_per_host: 4
  nic_bandwidth_gbytes_per_s: 12.5
  nic_latency_us: 1.35
  hosts_per_leaf: 2
  num_spines: 1
  oversubscription: 2.0
  spine_latency_us: 0.5
"""

places = st.dictionaries(
    st.sampled_from(HOSTS), st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True).map(sorted).map(tuple), min_size=1
)


IDS = tuple(f"j{number}" for number in range(8))


def jobs(source="plan", decisions=(None,)):
    """Jobs on some devices."""
    ids, decision = st.sampled_from(IDS), st.sampled_from(decisions)
    return st.builds(HeldJob, id=ids, devices=places, whole_hosts=st.booleans(), source=st.just(source), decision=decision)


hosts = st.builds(HostState, condition=st.sampled_from(["up", "drained", "down"]), num_devices=st.just(4))


@st.composite
def listings(draw):
    """A scheduler's possible listing: no device twice."""
    results, taken = [], set()
    for number, job in enumerate(draw(st.lists(jobs("slurm", (None, *IDS)), max_size=4))):
        held = {(host, i) for host, local in job.devices.items() for i in (range(4) if job.whole_hosts else local)}
        if not held & taken:
            taken |= held
            results.append(job.model_copy(update={"id": str(100 + number)}))
    return ClusterState(source="slurm", hosts={host: draw(hosts) for host in HOSTS}, jobs=tuple(results))


changes = st.one_of(
    st.builds(JobAdded, job=jobs()),
    st.builds(JobRemoved, id=st.sampled_from([*IDS, "100", "101"])),
    st.builds(HostChanged, host=st.sampled_from(HOSTS), state=hosts),
    listings(),
)
"""A change; of a listing `made` says which."""


def made(change, before):
    """The change that a drawn one is of a state."""
    return listed(before, change) if isinstance(change, ClusterState) else change
