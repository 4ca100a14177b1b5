"""A real slurmrestd of a loopback Slurm, as a user other than root: on a socket file, and on an address that wants tokens."""

import os
import secrets
import stat
from pathlib import Path

import pytest

from ..conftest import CLUSTER
from ..processes import free_ports, require, wait_for
from ..slurm import QUICK, LoopbackSlurm

NOBODY = 65534
"""slurmrestd starts neither as root nor as the user of slurmctld."""

MORE = """\
SchedulerParameters=batch_sched_delay=0,bf_interval=1
KillWait=1
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={folder}/jwt.key
"""
"""Tokens; and nothing waits for half a minute, as parts of a heterogeneous job for the next backfill."""

WORDS = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "slurmrestd", "-s", "openapi/v0.0.38")
"""Without ``slurmdbd`` it ends unless it loads nothing of accounting."""


class RestfulSlurm:
    """A Slurm and two slurmrestd.

    Args:
        folder: an empty folder.

    Attributes:
        slurm: the Slurm.
        socket, url: where slurmrestd answers; at the address it wants a token.
    """

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o711)
        key = folder / "jwt.key"
        key.write_bytes(secrets.token_bytes(32))
        key.chmod(0o600)
        self.slurm = LoopbackSlurm.of_cluster(folder, CLUSTER, QUICK + MORE.format(folder=folder))
        try:
            rest = folder / "rest"
            rest.mkdir()
            os.chown(rest, NOBODY, NOBODY)
            (port,) = free_ports(1)
            self.socket, self.url = f"unix:{rest}/socket", f"http://127.0.0.1:{port}"
            daemons = self.slurm.daemons
            daemons.start("slurmrestd-socket", *WORDS, self.socket)
            daemons.environment = {**daemons.environment, "SLURM_JWT": "by-each-request"}  # else it takes no tokens
            daemons.start("slurmrestd-address", *WORDS, f"127.0.0.1:{port}")
            wait_for(lambda: _is_socket(rest / "socket"), "slurmrestd's socket", told=daemons.told)
        except BaseException:
            self.slurm.stop()
            raise

    def token(self, lifespan_s: int = 3600) -> str:
        """A token of this user."""
        return self.slurm.run("scontrol", "token", f"lifespan={lifespan_s}").stdout.strip().removeprefix("SLURM_JWT=")


def require_slurmrestd() -> None:
    """Skip the test where none can be started, with the reason."""
    require("slurmrestd", "slurmrestd", "setpriv")
    if os.getuid() != 0:
        pytest.skip("slurmrestd refuses the user of slurmctld, and root alone can start it as another")
    if not list(Path("/usr/lib").glob("*/slurm-wlm/auth_jwt.so")):
        pytest.skip("Slurm has no plugin for tokens, auth_jwt.so; Debian's is in slurm-wlm-jwt-plugin")


def _is_socket(path: Path) -> bool:
    return path.exists() and stat.S_ISSOCK(path.stat().st_mode)
