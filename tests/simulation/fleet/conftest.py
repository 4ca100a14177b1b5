import numpy as np
import pytest

from meshwright.simulation.fleet.state import SharingMode

from ...oracles.plain_fleet import PlainFleet
from . import samples


@pytest.fixture(scope="session", autouse=True)
def _compiled():
    """Compile before anything is drawn: where hypothesis watches each line, compiling takes many times as long."""
    network = samples.network_of("two leaves")
    menu = samples.menu_of(network, [[(8, samples.constant(1.0), samples.constant(0.0), samples.ring(1e9))]])
    workload = samples.Workload(*(np.array([number]) for number in (0.0, 0, 1.0, float("inf"))))
    problem = samples.problem_of(network, menu, sharing=int(SharingMode.FAIR))
    samples.play(problem, workload, lambda _, actions: actions[-1])
    episode = PlainFleet(problem, *workload).play()
    next(episode)
    with pytest.raises(StopIteration):
        episode.send(1)
