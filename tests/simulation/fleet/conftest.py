import pytest

from . import samples


@pytest.fixture(scope="session", autouse=True)
def _compiled():
    """Compile before anything is drawn: where hypothesis watches each line, compiling takes many times as long."""
    network = samples.network_of("two leaves")
    menu = samples.menu_of(network, [[(1, samples.constant(1.0), samples.constant(0.0), samples.ring(0.0))]])
    workload = samples.Workload(*([number] for number in (0.0, 0, 1.0, float("inf"))))
    samples.play(samples.problem_of(network, menu), workload, lambda _, actions: actions[-1])
