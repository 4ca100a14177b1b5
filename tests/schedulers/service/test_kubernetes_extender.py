"""A real kube-scheduler asks the service: pods of a decision come to its hosts, others anywhere, all where nobody answers."""

import time

import pytest

from .. import processes
from ..kubernetes import GPUS_PER_NODE
from ..test_kubernetes_state import pod
from .kubernetes_service import HOSTS, LOOK_FIRST, WHOLE, hosts_of, labelled, served_kubernetes

pytestmark = pytest.mark.scheduler("kubernetes")


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with served_kubernetes(tmp_path_factory.mktemp("service"), [LOOK_FIRST], "--resync-s", "0.5") as made:
        yield made


def test_pods_of_a_decision_come_to_its_hosts_and_all_others_where_the_scheduler_likes(served):
    server, client = served.server, served.client
    decisions = [client.decide(WHOLE).decision for _ in HOSTS]
    planned = {decision.id: hosts_of(decision) for decision in decisions}
    assert sorted(host for hosts in planned.values() for host in hosts) == sorted(HOSTS)
    for number, decision in enumerate(reversed(decisions)):  # the scheduler by itself takes them in any order
        for part in range(2):
            server.create(labelled(f"part-{number}-{part}", GPUS_PER_NODE // 2, decision=decision.id))
    bound = server.wait_until_bound(6)
    for number, decision in enumerate(reversed(decisions)):
        assert {bound[f"part-{number}-{part}"] for part in range(2)} == planned[decision.id]
    for decision in decisions:
        processes.wait_for(lambda: client.view(decision.id)["status"] == "running", "running decisions")  # noqa: B023
    server.create(pod("other", 0))
    server.create(labelled("unknown", 0, decision="no-such-decision"))
    assert len(server.wait_until_bound(8)) == 8
    for name in bound:
        server.delete("Pod", name)
    for decision in decisions:
        processes.wait_for(lambda: client.view(decision.id)["status"] == "ended", "ended decisions")  # noqa: B023

    again = client.decide(WHOLE).decision
    served.kill()
    began_s = time.monotonic()
    server.create(labelled("without", GPUS_PER_NODE, decision=again.id))
    processes.wait_for(lambda: "without" in server.bound(), "a pod that nobody was asked about")
    assert time.monotonic() - began_s < 30
