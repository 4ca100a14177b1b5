"""A Slurm on this machine to try things with, until Ctrl-C: munged, slurmctld and a slurmd for each host, on the loopback.

python -m tests.schedulers                                       # eight hosts of four devices
python -m tests.schedulers --hosts 4 --hooks http://127.0.0.1:8765
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from . import slurm
from .processes import search_path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.schedulers", description=__doc__.partition("\n")[0])
    parser.add_argument("--hosts", type=int, default=8, help="how many; each has four devices")
    parser.add_argument("--hooks", metavar="URL", help="ask a service there where to run jobs")
    options = parser.parse_args()
    missing = [program for program in slurm.PROGRAMS if shutil.which(program, path=search_path()) is None]
    if missing or not 2 <= options.hosts <= 64:
        wrong = f"not installed: {', '.join(missing)}; Debian has slurm-wlm and munge" if missing else "--hosts is 2 to 64"
        sys.stderr.write(f"{wrong}\n")
        return 2
    data = slurm.cluster("loopback", [f"node{number}" for number in range(options.hosts)])
    with tempfile.TemporaryDirectory(prefix="meshwright-slurm-") as folder:
        (Path(folder) / "cluster.yaml").write_text(json.dumps(data, indent=2) + "\n")  # JSON is YAML
        endpoint = {"url": options.hooks} if options.hooks else {}
        running = slurm.LoopbackSlurm.of_cluster(Path(folder), data, slurm.QUICK, **endpoint)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            message = "" if running.has_devices else "; as this user may make no devices, jobs do not learn theirs"
            sys.stdout.write(f"Slurm with {options.hosts} hosts of {slurm.DEVICES_PER_HOST} devices runs until Ctrl-C{message}\n")
            sys.stdout.write(f"export SLURM_CONF={folder}/slurm.conf\ncluster: {folder}/cluster.yaml\n")
            sys.stdout.flush()
            signal.pause()
        except KeyboardInterrupt:
            pass
        finally:
            running.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
