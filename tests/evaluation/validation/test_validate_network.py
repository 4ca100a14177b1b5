"""The comparison with real packets: how it judges and what it tells; and, where root may, a few real packets."""

import json

import pytest

from meshwright.cli import run_command_line
from meshwright.errors import ConfigError, MeshwrightError
from meshwright.evaluation.validation import network
from meshwright.evaluation.validation.comparison import ComparedFigure, Comparison
from meshwright.evaluation.validation.network import Conditions, NetworkValidation, validate
from meshwright.evaluation.validation.network_lab.gloo_jobs import Sending, gloo_jobs
from meshwright.evaluation.validation.network_lab.namespaces import namespaces, why_not
from meshwright.evaluation.validation.network_lab.scenes import MIB, Case, Scene, dumbbell, star


@pytest.fixture(scope="module")
def root_on_linux():
    """Nothing, where namespaces can be made; else a skip with the reason."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)


def found(*pairs, allowed=0.1):
    rows = tuple(ComparedFigure(family, "star", "1 MiB", predicted, measured, allowed) for family, predicted, measured in pairs)
    rounds = tuple((row.reference,) for row in rows)
    versions = {"kernel": "6", "torch": "2", "cores": 2, "is_real_time": True}
    return NetworkValidation(Comparison(rows), rounds, (Conditions("star", 1e-4, 12e6, 400e6),), versions, allowed)


def test_two_means_decide_that_of_jobs_alone_and_that_of_jobs_that_meet():
    # Alone: 20 % and 0 % are 10 % in the mean; 0.2 % more of the first is too much.
    assert found(("send/recv", 1.2, 1.0), ("all-reduce", 1.0, 1.0)).agrees
    alone = ("send/recv", 1.202, 1.0), ("all-reduce", 1.0, 1.0)
    assert not found(*alone).agrees
    assert found(*alone, allowed=0.11).agrees
    # Jobs that meet have a mean of their own: no number of good rows alone makes up for them.
    meeting = found(*[("all-reduce", 1.0, 1.0)] * 9, ("two jobs on one link", 1.2, 1.0))
    assert meeting.mean_errors == pytest.approx({"one job": 0.0, "two jobs on one link": 0.2})
    assert not meeting.agrees


def test_every_row_is_told_with_its_rounds():
    data = json.loads(json.dumps(found(("send/recv", 1.1, 1.0)).to_data()))
    keys = {"item", "family", "predicted", "reference", "relative_error", "tolerance", "agrees", "measured_s"}
    assert set(data["rows"][0]) == keys
    assert data["rows"][0]["measured_s"] == [1.0]
    assert data["summary"]["send/recv"]["mean_relative_error"] == pytest.approx(0.1)
    assert data["conditions"][0]["unshaped_bytes_per_s"] == 400e6


def test_the_command_tells_the_table_and_exits_by_the_verdict(monkeypatch, tmp_path, capsys):
    out = tmp_path / "out.json"
    for factor, status in ((1.05, 0), (1.25, 1)):
        monkeypatch.setattr(network, "validate", lambda factor=factor, **_: found(("all-reduce", factor, 1.0)))
        assert run_command_line(["validate", "network", "--json", str(out)]) == status
        told = capsys.readouterr().out
        assert f"{100 * (factor - 1):+.1f} %" in told
        assert ("DISAGREES" in told) == (status == 1)
        assert json.loads(out.read_text())["agrees"] == (status == 0)


def test_without_permission_it_is_skipped_with_the_reason(monkeypatch, capsys):
    monkeypatch.setattr(network, "why_not", lambda: "only root may make network namespaces")
    assert run_command_line(["validate", "network", "--quick"]) == 0
    assert capsys.readouterr().out == "skipped: only root may make network namespaces\n"
    assert run_command_line(["validate", "network", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out) == {"skipped": "only root may make network namespaces"}


def test_an_impossible_limit_is_refused_before_anything_is_made(monkeypatch, capsys):
    monkeypatch.setattr(network, "why_not", lambda: pytest.fail("asked for namespaces"))
    for limit in (-0.1, float("nan")):
        with pytest.raises(ConfigError, match="--max-mean-error"):
            validate(max_mean_error=limit)
    assert run_command_line(["validate", "network", "--max-mean-error", "-1"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_real_packets_take_as_long_as_predicted_alone_and_beside_another_job(root_on_linux):
    alone = tuple(Case(kind, (Sending(kind, MIB),)) for kind in ("send/recv", "all-reduce"))
    shared = Case("two jobs on one link", (Sending("all-reduce", MIB), Sending("all-reduce", 3 * MIB)))
    chosen = [Scene(star(2, 100), ((0, 1),), alone), Scene(dumbbell(2, 100), ((0, 2), (1, 3)), (shared,))]
    seen = []
    result = validate(chosen=chosen, progress=lambda *told: seen.append(told))
    assert isinstance(result, NetworkValidation)
    assert [row.figure for row in result.comparison.rows] == [
        "1 MiB",
        "1 MiB",
        "all-reduce 1 MiB beside all-reduce 3 MiB",
        "all-reduce 3 MiB beside all-reduce 1 MiB",
    ]
    assert seen[-1] == ("dumbbell-2-2-100mbit", 1, 1)
    assert result.agrees, result.to_data()


@pytest.mark.slow
def test_a_ring_sends_the_bytes_of_the_formula_and_a_rank_that_ends_is_named(root_on_linux):
    with namespaces(star(4, 1000)) as wires, gloo_jobs(wires, [wires.cluster.host_names]) as jobs:
        before = [wires.sent_bytes(host) for host in wires.cluster.host_names]
        jobs.run([Sending("all-reduce", 8 * MIB)])
        sent = [wires.sent_bytes(host) - b for host, b in zip(wires.cluster.host_names, before, strict=True)]
        # 2 * 3/4 of 8 MiB from each rank, and a few per cent of headers and acknowledgements.
        assert sent == pytest.approx([12 * MIB] * 4, rel=0.07)
        with pytest.raises(MeshwrightError, match=r"l0-h[01]: a rank has ended .*ValueError"):
            jobs.run([Sending("scatter", MIB)])
