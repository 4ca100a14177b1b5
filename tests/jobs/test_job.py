import math

import pytest

from meshwright.errors import GraphError
from meshwright.jobs import Job, zoo_graph


def test_sequential_time_is_steps_times_step():
    graph = zoo_graph("alexnet")
    assert Job(graph, 50).sequential_s == 50 * graph.step_s


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"num_steps": 0}, "num_steps"),
        ({"num_steps": 2**53 + 1}, "num_steps"),
        ({"num_steps": 1, "arrival_s": -1.0}, "arrival_s"),
        ({"num_steps": 1, "arrival_s": math.nan}, "arrival_s"),
        ({"num_steps": 1, "deadline_s": 0.0}, "deadline_s"),
        ({"num_steps": 1, "deadline_s": math.inf}, "deadline_s"),
    ],
)
def test_an_impossible_job_is_refused(arguments, field):
    with pytest.raises(GraphError, match=f"^{field}: "):
        Job(zoo_graph("alexnet"), **arguments)
