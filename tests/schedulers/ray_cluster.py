"""A Ray cluster of several nodes on this machine, each labelled with a host's name.

The cluster lives in a process of its own: this file, run as a program. It prints what it started and ends it all when its
standard input is closed.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STORE_BYTES = 80 * 2**20
"""Object store of a node: about the smallest that Ray takes."""


class LoopbackRay:
    """A running cluster.

    Attributes:
        address: what RAY_ADDRESS is set to.
        raylets: the process of each host's node.
    """

    def __init__(self, gpus: dict[str, int]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mw-ray-"))  # short: names of sockets below it are limited
        words = [sys.executable, __file__, str(self.folder), json.dumps(gpus)]
        # Below the default folder, whatever folder it is given, Ray notes the address of a cluster; it does not make it.
        (self.folder / "ray").mkdir()
        environment = os.environ | {"RAY_TMPDIR": str(self.folder)}
        with (self.folder / "stderr").open("w") as log:
            self.process = subprocess.Popen(
                words,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        line = self.process.stdout.readline()
        if not line:
            reported = (self.folder / "stderr").read_text()[-2000:]
            self.stop()
            raise AssertionError(reported)
        reported = json.loads(line)
        self.address: str = reported["address"]
        self.raylets: dict[str, int] = reported["raylets"]

    def start(self, driver: Path, **variables: str) -> subprocess.Popen[str]:
        """Start a driver as a user would, with the cluster's address in its environment."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        environment |= {"RAY_ADDRESS": self.address, "PYTHONWARNINGS": "ignore"} | variables
        return subprocess.Popen(
            [sys.executable, driver], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, driver: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a driver to its end."""
        process = self.start(driver, **variables)
        try:
            printed, message = process.communicate(timeout=120)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, printed, message)

    def stop(self) -> list[str]:
        """End the cluster; the command lines of what is left of it."""
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()
        until = time.monotonic() + 20
        while (left := self._alive()) and time.monotonic() < until:
            time.sleep(0.2)
        shutil.rmtree(self.folder)
        return left

    def _alive(self) -> list[str]:
        lines = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # it has ended meanwhile
                continue
            if str(self.folder) in words and path.parent.name != str(os.getpid()):
                lines.append(words)
        return lines


def ancestors(pid: int) -> list[int]:
    """A process of this machine, its parent, and so on."""
    result = []
    while pid > 1:
        result.append(pid)
        status = Path(f"/proc/{pid}/status").read_text()
        pid = int(status.split("PPid:")[1].split()[0])
    return result


def _serve(folder: str, gpus: dict[str, int]) -> None:
    from ray.cluster_utils import Cluster

    common = {"num_cpus": 1, "object_store_memory": STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={**common, "temp_dir": folder})
    try:
        raylets = {}
        for host, count in gpus.items():
            node = cluster.add_node(**common, num_gpus=count, labels={"host": host}, temp_dir=folder, env_vars={"ON_HOST": host})
            raylets[host] = node.all_processes["raylet"][0].process.pid
        sys.stdout.write(json.dumps({"address": cluster.address, "raylets": raylets}) + "\n")
        sys.stdout.flush()
        sys.stdin.read()
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    _serve(sys.argv[1], json.loads(sys.argv[2]))
