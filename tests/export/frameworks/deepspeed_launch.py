"""DeepSpeed's own launcher without DeepSpeed's dependencies, run as a program: the processes that a command line starts.

``python deepspeed_launch.py FOLDER`` reads the words of ``deepspeed`` from standard input as JSON. For each process that
the launcher would start it prints rank, local rank, world size, visible devices, master address and command. ``FOLDER`` is
the installed package; stand-ins replace what its launcher imports from outside the standard library.
"""

import json
import logging
import os
import subprocess
import sys
import time
import types

STARTED = []


class Process:
    """A stand-in for a started process that has ended well."""

    pid, returncode = 0, 0

    def __init__(self, words, env=None, **_):
        STARTED.append((list(words), dict(env)))

    def wait(self):
        return 0

    poll = wait


class Accelerator:
    """The CUDA accelerator, as far as the launcher asks."""

    def visible_devices_envs(self):
        return ["CUDA_VISIBLE_DEVICES"]

    def export_envs(self):
        return []

    def set_visible_devices_envs(self, environment, devices):
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, devices))


def stand_in(name, path=None, **contents):
    module = types.ModuleType(name)
    module.__path__ = [] if path is None else [path]
    vars(module).update(contents)
    sys.modules[name] = module


def main(package):
    quiet = logging.getLogger("quiet")
    quiet.setLevel(logging.CRITICAL)
    stand_in("deepspeed")
    stand_in("deepspeed.launcher", f"{package}/launcher")
    stand_in("deepspeed.constants", TORCH_DISTRIBUTED_DEFAULT_PORT=29500, CROSS_RANK="CROSS_RANK", CROSS_SIZE="CROSS_SIZE")
    stand_in("deepspeed.utils", logger=quiet, set_log_level_from_string=lambda _: None, get_numactl_cmd=None)
    stand_in("deepspeed.autotuning", Autotuner=None)
    stand_in("deepspeed.accelerator", get_accelerator=Accelerator)
    stand_in("psutil", Process=None)
    import deepspeed.launcher.launch as launch
    import deepspeed.launcher.runner as runner

    subprocess.Popen = Process
    time.sleep = lambda _: None
    runner.main(json.load(sys.stdin))
    [(words, environment)] = STARTED
    STARTED.clear()
    os.environ.update(environment)
    sys.argv = words[3:]  # after: python -u -m
    launch.main()
    for words, environment in STARTED:
        keys = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "MASTER_PORT", "MESHWRIGHT_HOST")
        sys.stdout.write(json.dumps([*(environment[key] for key in keys), words]) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
