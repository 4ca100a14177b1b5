"""The program of the exported Ray driver. It is Python without this package: it runs where only Ray is installed."""

PROGRAM = '''"""Run every rank as a Ray actor on its planned host.

Each Ray node is started with its host's name as a label, for example

    ray start --address=HEAD:6379 --labels="host=gpu-07"

with the key of HOST_LABEL below. Then, on any node of the cluster: python driver.py
RAY_ADDRESS names the cluster where it is not the one on this machine. For each rank the driver prints a line
meshwright-rank[...] with the rank's place; "meshwright verify-export" compares them with the plan.
"""

import os

# Ray would take lines that differ in numbers only, as those of the ranks do, for one.
os.environ.setdefault("RAY_DEDUP_LOGS", "0")

import signal
import subprocess
import sys
import threading
import time

import ray
from ray.util import get_node_ip_address, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

# fmt: off
# RANKS: host, device of the host and place in the grid of each rank, in order.
# THE PLAN
# fmt: on


class RankActor:
    """One rank: says where it is, then runs the command."""

    def __init__(self):
        self.child = None
        self.is_stopped = False

    def place(self):
        """Id and address of the node, and the GPUs that Ray gave to this actor."""
        context = ray.get_runtime_context()
        return context.get_node_id(), get_node_ip_address(), [str(gpu) for gpu in ray.get_gpu_ids()]

    def run(self, command, environment):
        """Exit status of the command."""
        if self.is_stopped:
            return 143
        try:
            self.child = subprocess.Popen(command, env={**os.environ, **environment}, start_new_session=True)
        except OSError as error:
            print(f"{command[0]}: {error.strerror}", file=sys.stderr, flush=True)
            return 127
        return self.child.wait()

    def stop(self):
        """End the command and what it has started."""
        self.is_stopped = True
        if self.child is None or self.child.poll() is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            os.killpg(self.child.pid, number)
            try:
                self.child.wait(timeout=5)
                return
            except subprocess.TimeoutExpired:
                continue


def main():
    """Exit status of the job."""
    # Whatever Ray waits for, the placement ends in time.
    guard = threading.Timer(2 * WAIT_S + 60, give_up)
    guard.daemon = True
    guard.start()
    try:
        ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=True)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        return failed(f"no Ray cluster to connect to: {error}")
    # Raised inside a call of Ray, an exception would end the process at once: the waits below look at the flag instead.
    is_ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_ended.set())
    try:
        group = placement_group(
            [{"GPU": 1} for _ in RANKS],
            strategy="PACK",
            name=GROUP,
            bundle_label_selector=[{HOST_LABEL: host} for host, _, _ in RANKS],
        )
    except TypeError:
        return failed(f"Ray {ray.__version__} knows no label selectors of bundles; a release after January 2026 does")
    actors = []
    try:
        if not is_placed(group, is_ended):
            if is_ended.is_set():
                return 143
            remove_placement_group(group)
            return failed(f"not placed within {WAIT_S:g} s: {'; '.join(obstacles())}")
        remote = ray.remote(num_cpus=0, num_gpus=1, max_restarts=0, max_concurrency=2)(RankActor)
        for rank in range(len(RANKS)):
            bundle = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
            actors.append(remote.options(scheduling_strategy=bundle).remote())
        asked = [actor.place.remote() for actor in actors]
        _, silent = ray.wait(asked, num_returns=len(asked), timeout=WAIT_S)
        if silent:
            late = spans([asked.index(one) for one in silent])
            return failed(f"placed, yet not started within {WAIT_S:g} s: ranks {late}")
        places = ray.get(asked)
        wrong = misplaced(places)
        if wrong:
            return failed(wrong)
        guard.cancel()
        return run(actors, places, is_ended)
    except ray.exceptions.RayError as error:
        return failed(f"Ray cannot start the ranks: {type(error).__name__}: {error}")
    finally:
        guard.cancel()
        stop(actors)
        remove_placement_group(group)
        if actors:
            time.sleep(1)  # Ray hands on the last lines of the ranks a moment later
        ray.shutdown()


def is_placed(group, is_ended):
    """Wait for the group, no longer than the limit; whether all of it is placed."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until and not is_ended.is_set():
        if group.wait(1):
            return True
    return False


def run(actors, places, is_ended):
    """Start the command on every rank and wait; the first failure counts."""
    running = {}
    for rank, (actor, environment) in enumerate(zip(actors, environments(places))):
        running[actor.run.remote(COMMAND, environment)] = rank
    while running:
        if is_ended.is_set():
            return 143
        done, _ = ray.wait(list(running), num_returns=1, timeout=1)
        if not done:
            continue
        rank = running.pop(done[0])
        try:
            status = ray.get(done[0])
        except ray.exceptions.RayError as error:
            return failed(f"rank {rank} on {RANKS[rank][0]} is lost: {type(error).__name__}")
        if status:
            return failed(f"rank {rank} on {RANKS[rank][0]} ended with status {status}")
    return 0


def environments(places):
    """What each rank's command finds in its environment; says where every rank is."""
    peers = ranks_by_host()
    gpus = {host: dealt(ranks, places) for host, ranks in peers.items()}
    found = []
    for rank, (host, device, grid) in enumerate(RANKS):
        local, visible = peers[host].index(rank), ",".join(gpus[host])
        variables = {
            "RANK": rank,
            "WORLD_SIZE": len(RANKS),
            "LOCAL_RANK": local,
            "LOCAL_WORLD_SIZE": len(peers[host]),
            "MASTER_ADDR": places[0][1],
            "MASTER_PORT": MASTER_PORT,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": visible,
            "MESHWRIGHT_HOST": host,
            **{f"MESHWRIGHT_{axis.upper()}": at for axis, at in grid.items()},
        }
        found.append({name: str(value) for name, value in variables.items()})
        said = {"rank": rank, "world": len(RANKS), "host": host, "local_rank": local, "visible": visible, **grid}
        print(f"meshwright-rank[{' '.join(f'{name}={value}' for name, value in said.items())}]", flush=True)
        if gpus[host][local] != str(device):
            report(f"Ray gave the job GPU {gpus[host][local]} of {host} where rank {rank} is planned on {device}")
    return found


def ranks_by_host():
    """The ranks of each host, in order."""
    hosts = {}
    for rank, (host, _, _) in enumerate(RANKS):
        hosts.setdefault(host, []).append(rank)
    return hosts


def dealt(peers, places):
    """The GPUs of a host that Ray gave to the job, dealt to its ranks in the order of their planned devices."""
    planned = [RANKS[rank][1] for rank in peers]
    given = sorted((gpu for rank in peers for gpu in places[rank][2]), key=lambda gpu: (len(gpu), gpu))
    return [given[sorted(planned).index(device)] for device in planned]


def misplaced(places):
    """What is wrong with the nodes that the ranks are on; empty where nothing is."""
    labels = {node["NodeID"]: node.get("Labels", {}) for node in ray.nodes()}
    nodes = {}
    for rank, (host, _, _) in enumerate(RANKS):
        node = places[rank][0]
        found = labels.get(node, {}).get(HOST_LABEL)
        if found != host:
            return f"rank {rank} is on a node with {HOST_LABEL}={found}, the plan puts it on {host}"
        if nodes.setdefault(host, node) != node:
            return f"rank {rank}: two nodes carry {HOST_LABEL}={host}"
        if len(places[rank][2]) != 1:
            return f"rank {rank} got {len(places[rank][2])} GPUs of {host}, not one"
    return ""


def obstacles():
    """Bundles that cannot be placed, with their host and the reason."""
    hosts = ranks_by_host()
    found = []
    for host, ranks in hosts.items():
        nodes = [node for node in ray.nodes() if node["Alive"] and node.get("Labels", {}).get(HOST_LABEL) == host]
        gpus = sum(int(node["Resources"].get("GPU", 0)) for node in nodes)
        if not nodes:
            found.append(f"bundles {spans(ranks)}: no node carries {HOST_LABEL}={host}")
        elif gpus < len(ranks):
            found.append(f"bundles {spans(ranks)}: {len(ranks)} GPUs are wanted and {host} has {gpus}")
    if found:
        return found
    # All hosts are large enough. Asked for alone, one that is free is placed at once.
    alone = {
        host: placement_group([{"GPU": 1} for _ in ranks], bundle_label_selector=[{HOST_LABEL: host} for _ in ranks])
        for host, ranks in hosts.items()
    }
    until = time.monotonic() + 10
    busy = [host for host, group in alone.items() if not group.wait(max(1, until - time.monotonic()))]
    for group in alone.values():
        remove_placement_group(group)
    found = [f"bundles {spans(hosts[host])}: GPUs of {host} are in use" for host in busy]
    return found or ["every host has room by now; it came too late"]


def spans(numbers):
    """Numbers with runs drawn together: 0-3, 7."""
    runs = []
    for number in sorted(numbers):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def stop(actors):
    """End every rank's command, then the actors."""
    if actors:
        ray.wait([actor.stop.remote() for actor in actors], num_returns=len(actors), timeout=15)
    for actor in actors:
        ray.kill(actor)


def report(problem):
    """Say what is wrong."""
    print(f"driver.py: {problem}", file=sys.stderr, flush=True)


def failed(problem):
    """Say why the job ends; the status to end with."""
    report(problem)
    return 1


def give_up():
    """End a driver that Ray holds up."""
    failed(f"Ray has not answered for {2 * WAIT_S + 60:g} s")
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
'''
