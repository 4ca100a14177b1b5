"""A real Slurm on one machine: munged, slurmctld and a slurmd for each host, on free ports of the loopback, as this user."""

import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from meshwright.clusters.cluster import Cluster
from meshwright.export import write
from meshwright.export.launchers.slurm_topology import topology_conf
from meshwright.live.actuators.slurm_hook_files import hook_files

from ..samples.sample_clusters import clos
from .processes import Daemons, free_ports, run, search_path, wait_for

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "sinfo", "scancel")
DEVICES_PER_HOST = 4

CONFIGURATION = """\
ClusterName=loopback
SlurmctldHost={machine}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdLogFile={folder}/log/%n.log
SlurmctldLogFile={folder}/log/slurmctld.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
TopologyPlugin=topology/tree
GresTypes=gpu
TreeWidth=1000
"""
NODE = (
    "NodeName={host} NodeHostname={machine} NodeAddr=127.0.0.1 Port={port} CPUs=4 Boards=1 SocketsPerBoard=1 "
    "CoresPerSocket=4 ThreadsPerCore=1 RealMemory=1000 Gres=gpu:{devices} State=UNKNOWN\n"
)

QUICK = "SlurmdTimeout=6\n"
"""Of a host that dies it is known within half a minute."""

HOOKS = """\
JobSubmitPlugins=lua
PrologSlurmctld={folder}/hooks/prolog_slurmctld.sh
EpilogSlurmctld={folder}/hooks/epilog_slurmctld.sh
"""


def cluster(name: str, hosts: list[str]) -> dict[str, Any]:
    """A cluster of hosts of this Slurm, as its YAML has it."""
    leaves = {"hosts_per_leaf": len(hosts) // 2, "num_spines": 2}
    topology = clos(len(hosts), DEVICES_PER_HOST, **leaves, inside=(300, 2), cards=4, card=(25, 1))
    return {"name": name, "device": "a100", "host_names": hosts, "topology": topology}


class LoopbackSlurm:
    """A running Slurm.

    Args:
        folder: an empty folder; its name is short, as a socket lies in it.
        hosts: names of the hosts.
        switches: ``topology.conf``, as our exporter wrote it.
        more: further lines of its configuration.

    Attributes:
        has_devices: whether slurmd accepts its devices, which root alone can make; else slurmd counts devices, and no job
            learns its own.
    """

    def __init__(self, folder: Path, hosts: list[str], switches: str, more: str = "") -> None:
        self.folder = folder
        self.hosts = hosts
        for name in ("state", "log", "munge", *(f"spool/{host}" for host in hosts)):
            (folder / name).mkdir(parents=True)
        made = [_make_device(folder / f"gpu{device}") for device in range(DEVICES_PER_HOST)]
        self.has_devices = all(made)
        (folder / "munge" / "key").write_bytes(os.urandom(128))
        (folder / "munge" / "key").chmod(0o400)
        self._configure(switches, more)
        self.environment = {**os.environ, "SLURM_CONF": str(folder / "slurm.conf"), "PATH": search_path()}
        self.daemons = Daemons(self.environment, folder / "log")
        try:
            self._start()
        except BaseException:
            self.daemons.stop()
            raise

    @classmethod
    def of_cluster(cls, folder: Path, data: dict[str, Any], more: str = "", server: str | None = None) -> Self:
        """With the hosts and switches of a cluster and, where a service is named, our hooks.

        Args:
            folder: an empty folder.
            data: of the cluster.
            more: further lines of its configuration.
            server: address of the service, as of `hook_files`.
        """
        if server is not None:
            write(hook_files(str(folder / "hooks"), server=server), folder / "hooks")
            shutil.copy(folder / "hooks" / "job_submit.lua", folder)
            more += HOOKS.format(folder=folder)
        return cls(folder, data["host_names"], topology_conf(Cluster.from_data(data)), more)

    def _configure(self, switches: str, more: str) -> None:
        machine = socket.gethostname().partition(".")[0]
        user = pwd.getpwuid(os.getuid()).pw_name
        ports = free_ports(1 + len(self.hosts))
        text = CONFIGURATION.format(machine=machine, user=user, folder=self.folder, port=ports[0]) + more
        for host, port in zip(self.hosts, ports[1:], strict=True):
            text += NODE.format(host=host, machine=machine, port=port, devices=DEVICES_PER_HOST)
        gres = [f"NodeName={host} Name=gpu File={self.folder}/gpu[0-{DEVICES_PER_HOST - 1}]\n" for host in self.hosts]
        (self.folder / "slurm.conf").write_text(text + "PartitionName=debug Nodes=ALL Default=YES State=UP\n")
        (self.folder / "gres.conf").write_text("".join(gres))
        (self.folder / "topology.conf").write_text(switches)

    def _start(self) -> None:
        munge = self.folder / "munge"
        files = [f"--{option}={munge / name}" for option, name in (("socket", "socket"), ("key-file", "key"))]
        files += [f"--{name}-file={munge / name}" for name in ("log", "pid", "seed")]
        self.daemons.start("munged", "/usr/bin/env", "munged", "--foreground", "--force", "--num-threads=2", *files)
        wait_for((munge / "socket").exists, "munged's socket", told=self.daemons.told)
        self.daemons.start("slurmctld", "/usr/bin/env", "slurmctld", "-D", "-c")
        for host in self.hosts:
            self._start_host(host)
        wait_for(self.is_idle, f"{len(self.hosts)} idle hosts", told=self.daemons.told)

    def _start_host(self, host: str) -> None:
        self.daemons.start(f"slurmd-{host}", "/usr/bin/env", "slurmd", "-D", "-N", host)

    def is_idle(self) -> bool:
        """Whether every host is idle."""
        return self.run("sinfo", "--noheader", "--format=%T %D").stdout.split() == ["idle", str(len(self.hosts))]

    def run(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """A command under this Slurm."""
        return run(words, cwd or self.folder, self.environment)

    def submit(self, folder: Path, script: str) -> tuple[int, str]:
        """Submit a script of a folder and wait for the job; its exit status, and what it printed."""
        submitted = self.run("sbatch", "--parsable", "--output=printed.txt", script, cwd=folder)
        assert submitted.returncode == 0, submitted.stderr
        job = submitted.stdout.strip()
        figures: dict[str, str] = {}

        def has_ended() -> bool:
            figures.update(re.findall(r"(\w+)=(\S*)", self.run("scontrol", "--oneliner", "show", "job", job).stdout))
            return figures.get("JobState") not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")

        wait_for(has_ended, f"the end of job {job}", told=lambda: f"{figures} {self.daemons.told()}")
        wait_for(self.is_idle, "idle hosts")
        return int(figures["ExitCode"].split(":")[0]), (folder / "printed.txt").read_text()

    def restore(self) -> None:
        """End what a test left: its jobs, hosts that it closed, and daemons of hosts that it killed."""
        self.run("scancel", "--me")
        for host in self.hosts:
            if f"slurmd-{host}" not in self.daemons.running:
                self._start_host(host)
        closed = self.run("sinfo", "--noheader", "--Node", "--states=down,drain,fail", "--format=%N").stdout.split()
        for host in closed:
            self.run("scontrol", "update", f"nodename={host}", "state=resume")
        message = "idle hosts after a test"
        wait_for(self.is_idle, message, told=lambda: self.run("sinfo", "--Node", "--long").stdout + self.run("squeue").stdout)

    def stop(self) -> None:
        """Cancel what still runs and end every daemon, and the job steps whose daemon died before them."""
        with suppress(subprocess.TimeoutExpired, AssertionError):
            self.run("scancel", "--me")
            wait_for(lambda: not self.run("squeue", "--noheader").stdout, "an empty queue", limit_s=10)
        self.daemons.stop()
        ours = f"SLURM_CONF={self.folder}/slurm.conf".encode()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (process / "comm").read_text() == "slurmstepd\n" and ours in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)


def _make_device(path: Path) -> bool:
    """A file that slurmd takes for a device; whether it is one."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))  # the numbers of /dev/null
    except PermissionError:
        path.touch()
        return False
    return True
