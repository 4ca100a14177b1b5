"""Processes of a pool end with the one that began them, however it ends, whatever they do; and do what they are handed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from meshwright.worker_pool import WorkerPool

HELD = """
import os, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from meshwright.worker_pool import WorkerPool

if __name__ == "__main__":
    pool = {pool}
    print(pool.submit(os.getpid).result(), flush=True)
    if {is_busy}:
        pool.submit(time.sleep, 600)
    time.sleep(600)
"""
OURS, PLAIN = "WorkerPool(1)", 'ProcessPoolExecutor(1, get_context("spawn"))'


def is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def worker_left(folder, pool: str, *, is_busy: bool, longest_s: float) -> bool:
    """Whether the worker of a process that was killed without warning is still there after some seconds."""
    program = folder / "held.py"
    program.write_text(HELD.format(pool=pool, is_busy=is_busy))
    with subprocess.Popen([sys.executable, program], stdout=subprocess.PIPE, text=True) as parent:
        worker = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    until = time.monotonic() + longest_s
    try:
        while is_running(worker) and time.monotonic() < until:
            time.sleep(0.02)
        return is_running(worker)
    finally:
        if is_running(worker):
            os.kill(worker, signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here, by which ended processes are known")
@pytest.mark.parametrize("is_busy", [False, True])
def test_a_worker_ends_with_a_parent_that_is_killed(tmp_path, is_busy):
    assert not worker_left(tmp_path, OURS, is_busy=is_busy, longest_s=30)


@pytest.mark.slow
def test_a_worker_of_the_standard_library_does_not(tmp_path):
    """Why there is a pool of our own: once this fails, it may go."""
    assert worker_left(tmp_path, PLAIN, is_busy=False, longest_s=3)


def test_a_worker_is_another_process_and_does_what_it_is_handed():
    with WorkerPool(1) as pool:
        assert pool.submit(os.getpid).result() != os.getpid()
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 1, 0).result()
