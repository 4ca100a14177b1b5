"""A process beside this one that does all tasks, where it is not how many there are that a test is about."""

from meshwright.worker_pool import WorkerPool


class AnotherProcess:
    """See `evaluation.workers.workers.Workers`."""

    def do(self, play, tasks, keep):
        with WorkerPool(1) as pool:
            for task, result in zip(tasks, pool.map(play, tasks), strict=True):
                keep(task, result)
