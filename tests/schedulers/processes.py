"""Programs that a test starts and ends: exactly those, by their own handles."""

import os
import random
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

REASONS = Path(sys.prefix) / ".schedulers"
"""Where ``.ci/schedulers`` writes why a scheduler could not be installed: ``name: reason``, a line each."""


def search_path() -> str:
    """Where programs are looked for: this interpreter's own folder first, the system's daemons last."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def require(scheduler: str, *programs: str) -> None:
    """Skip the test where a program of a scheduler is absent, with the reason why it could not be installed."""
    missing = [program for program in programs if shutil.which(program, path=search_path()) is None]
    if missing:
        pytest.skip(f"{scheduler} is not installed ({', '.join(missing)}): {why_absent(scheduler)}")


def why_absent(scheduler: str) -> str:
    """The note of ``.ci/schedulers`` about a scheduler that it could not install."""
    lines = REASONS.read_text().splitlines() if REASONS.is_file() else []
    messages = [line.partition(": ")[2] for line in lines if line.startswith(f"{scheduler}: ")]
    return messages[-1] if messages else "make test-schedulers installs it where it can"


def wait_for(condition: Callable[[], bool], what: str, *, limit_s: float = 60.0, told: Callable[[], str] = str) -> None:
    """Wait until a condition holds; fail with the name of the condition and its last details."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"{what} did not come within {limit_s:g} s. {told()}"
        time.sleep(0.1)


def run(words: Sequence[str | Path], cwd: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program without input to its end, for two minutes at most."""
    command, none = [str(word) for word in words], subprocess.DEVNULL
    return subprocess.run(command, cwd=cwd, env=environment, stdin=none, capture_output=True, text=True, timeout=120, check=False)


OWN_PORTS = range(20_000, 32_768)
"""Below the ports that Linux gives to connections by itself, above those of Ray's workers: nobody else takes one meanwhile."""


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on, and that stay free until a program started later listens there."""
    result: list[int] = []
    for port in random.SystemRandom().sample(OWN_PORTS, len(OWN_PORTS)):
        if len(result) == count:
            break
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                result.append(port)
    return result


class Daemons:
    """Programs that run until `stop`."""

    def __init__(self, environment: dict[str, str], logs: Path) -> None:
        self.environment = environment
        self.logs = logs
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *words: str) -> None:
        """Start a program in a session of its own; what it prints goes to a log of that name."""
        log = (self.logs / name).open("wb")
        with log:
            self.running[name] = subprocess.Popen(
                words,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """End one of them without a word."""
        process = self.running.pop(name)
        process.kill()
        process.wait(10)

    def stop(self) -> None:
        """End the programs, the last started first."""
        for process in reversed(self.running.values()):
            process.terminate()
        for process in reversed(self.running.values()):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)

    def told(self) -> str:
        """The end of every log."""
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-600:]}" for path in sorted(self.logs.iterdir()))
