"""Open MPI on one machine with several host names: its remote shell is a script that takes the name in a namespace."""

import os
import subprocess
from pathlib import Path

from .processes import run, search_path

# mpirun calls it as `agent HOST words...` and, as ssh would, it hands the words to a shell. `unshare --uts` gives the
# daemon and all that it starts a host name of their own; without privileges that takes a user namespace, `-r`.
AGENT = r"""#!/bin/bash
while [[ "$1" == -* ]]; do shift; done
host=$1
shift
private=(unshare --uts)
if [ "$(id -u)" -ne 0 ]; then private=(unshare -r --uts); fi
exec "${private[@]}" bash -c 'hostname "$0" && exec bash -c "$*"' "$host" "$@"
"""


class LoopbackMpi:
    """mpirun's environment.

    Attributes:
        agent: the remote shell.
        environment: with the shell and the loopback as the network.
    """

    def __init__(self, folder: Path) -> None:
        self.agent = folder / "agent"
        self.agent.write_text(AGENT)
        self.agent.chmod(0o755)
        hidden = ("OMPI_", "PMIX_", "SLURM", "MPIRUN")
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(hidden)}
        self.environment = inherited | {
            "PATH": search_path(),
            "TMPDIR": str(folder),
            "OMPI_MCA_plm_rsh_agent": str(self.agent),
            "OMPI_MCA_oob_tcp_if_include": "lo",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }

    def run(self, *words: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """A command with this environment."""
        return run(words, cwd, self.environment | variables)
