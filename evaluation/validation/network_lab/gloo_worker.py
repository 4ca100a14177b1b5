"""One rank of a measured job: sends with gloo what standard input asks for, and reports the times.

Run as ``python -m meshwright.evaluation.validation.network_lab.gloo_worker RANK RANKS STORE CARD`` in the network namespace of a
host. Each line of standard input is one order, JSON with ``kind``, ``payload_bytes``, ``times`` and ``at`` (an instant of the
monotonic clock, which all processes of a machine share); the answer is a line with the instants of begin and end. The
end of standard input ends it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

BYTES_PER_NUMBER = 4


def in_real_time() -> bool:
    """Ask the system to let this process run whenever it has something to do; False where it may not.

    What is measured are wires. On a machine with fewer cores than ranks, other programs would delay every wake-up by
    milliseconds.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except (AttributeError, OSError):
        return False
    return True


class GlooRank:
    """A member of one gloo group.

    Args:
        rank: of this process.
        num_ranks: in the group.
        store: a file through which the ranks find each other.
        card: the network card.
    """

    def __init__(self, rank: int, num_ranks: int, store: str, card: str) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = card
        import torch
        import torch.distributed as distributed

        torch.set_num_threads(1)
        self.is_real_time = in_real_time()
        self.torch, self.distributed = torch, distributed
        self.rank, self.num_ranks = rank, num_ranks
        meeting = distributed.FileStore(store, num_ranks)  # type: ignore[attr-defined]
        distributed.init_process_group("gloo", store=meeting, rank=rank, world_size=num_ranks)
        self.numbers = torch.zeros(0)

    def run(self, kind: str, payload_bytes: int, times: int, at: float) -> tuple[float, float]:
        """Do one order; returns the instants of begin and end."""
        size = max(1, payload_bytes // BYTES_PER_NUMBER)
        if len(self.numbers) < size:
            self.numbers = self.torch.zeros(size)
        numbers = self.numbers[:size]
        time.sleep(max(0.0, at - time.monotonic()))
        begin = time.monotonic()
        for _ in range(times):
            self._once(kind, numbers)
        return begin, time.monotonic()

    def _once(self, kind: str, numbers: Any) -> None:
        if kind == "all-reduce":
            self.distributed.all_reduce(numbers)
        elif kind == "all-gather":
            parts = list(numbers.chunk(self.num_ranks))
            self.distributed.all_gather(parts, parts[self.rank])
        elif kind == "send/recv":
            if self.rank == 0:
                self.distributed.send(numbers, 1)
            elif self.rank == 1:
                self.distributed.recv(numbers, 0)
        else:
            raise ValueError(kind)


def main(arguments: list[str]) -> None:
    """Serve until standard input ends."""
    rank = GlooRank(int(arguments[0]), int(arguments[1]), arguments[2], arguments[3])
    _answer({"torch": rank.torch.__version__, "is_real_time": rank.is_real_time})
    for line in sys.stdin:
        _answer(rank.run(**json.loads(line)))
    os._exit(0)  # a group of which others have left already cannot be ended in order


def _answer(data: Any) -> None:
    sys.stdout.write(json.dumps(data) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
