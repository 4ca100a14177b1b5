"""``meshwright plan --stages``: what it says of its file and options, and of links that differ by direction."""

import json

import pytest

from meshwright.cli import run_command_line

NETWORK = {
    "delay_ms": [[0, 1, 2, 2], [1, 0, 2, 2], [2, 2, 0, 1], [2, 2, 1, 0]],
    "bandwidth_gbps": [[1, 9, 1, 1], [9, 1, 1, 1], [1, 1, 1, 9], [1, 1, 9, 1]],
    "constants": {"stages_way": 2, "send_gradient_size_GB": 1, "send_activation_size_GB": 0.001},
}

MATRICES = ("delay_ms", "bandwidth_gbps")


@pytest.fixture
def run(tmp_path, capsys):
    def run_on(network, *options):
        (tmp_path / "network.json").write_text(json.dumps(network))
        status = run_command_line(["plan", "--stages", str(tmp_path / "network.json"), "--budget-s", "0.01", *options])
        output = capsys.readouterr()
        return status, output.out + output.err

    return run_on


def test_replicas_of_a_stage_stand_on_the_fast_links(run):
    status, message = run(NETWORK)
    assert status == 0
    assert "0 1" in message
    assert "2 3" in message
    assert "differ by direction" not in message


def test_links_that_differ_by_direction_are_told(run):
    delays = [[0, 5, 2, 2], *NETWORK["delay_ms"][1:]]
    assert "differ by direction" in run(NETWORK | {"delay_ms": delays})[1]


@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ({}, ("--set", "num_stages=3"), "--set num_stages: must divide the number of devices, which is 4"),
        ({}, ("--set", "gradient_bytes=-1"), "--set gradient_bytes: must be 0 or more"),
        ({"bandwidth_gbps": [[0] * 4] * 4}, (), "network.json: bandwidth_gbps: must be more than 0"),
        ({"delay_ms": [[-1] * 4] * 4}, (), "network.json: delay_ms: must be 0 or more"),
        (
            {"constants": {"stages_way": 3} | dict.fromkeys(list(NETWORK["constants"])[1:], 1)},
            (),
            "constants.stages_way: must divide",
        ),
        ({"constants": {"stages_way": 2}}, (), "constants.send_gradient_size_GB: the key is missing"),
    ],
)
def test_bad_input_is_named_as_it_was_given(run, changed, options, message):
    status, printed = run(NETWORK | changed, *options)
    assert status == 2
    assert message in " ".join(printed.split())


@pytest.mark.filterwarnings("error")
def test_zeros_on_the_diagonal_are_normal(run):
    zeros = {
        name: [[figure * (i != j) for j, figure in enumerate(row)] for i, row in enumerate(NETWORK[name])] for name in MATRICES
    }
    assert run(NETWORK | zeros) == run(NETWORK)


def test_a_missing_matrix_is_named(run):
    status, printed = run(
        {"delay_ms": NETWORK["delay_ms"]}, "--set", "num_stages=2", "--set", "gradient_bytes=1", "--set", "activation_bytes=1"
    )
    assert status == 2
    assert "bandwidth_gbps: the key is missing" in printed
