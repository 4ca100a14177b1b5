"""The fast model of sharing against simulated sets: the draw of the sets, the comparison and its report."""

import json
from collections import Counter
from itertools import islice

import numpy as np
import pytest

from meshwright.cli import run_command_line
from meshwright.errors import ConfigError
from meshwright.evaluation.validation.sharing import validate
from meshwright.evaluation.validation.sharing.drawn_sets import CLUSTERS, NUM_JOBS, cluster_of, draw
from meshwright.evaluation.validation.sharing.simulated_sets import FEWEST_STEPS, SimulatedJob, SimulatedSet, simulated
from meshwright.evaluation.validation.sharing.validate import fit


def job(together_s, *links, alone_s=1.0):
    """A job that sends for half of its step, none of it hidden."""
    loads = tuple((link, 0.5, 2.0) for link in links)
    return SimulatedJob(
        name="vgg16",
        layout="{}",
        devices=(0,),
        alone_s=alone_s,
        slower_s=alone_s + 0.5 * bool(links),
        loads=loads,
        together_s=together_s,
        num_steps=4,
        shares=0 in links,
    )


def one_set(*jobs, number=0):
    return SimulatedSet(seed=2, number=number, cluster="clos-256-4to1", jobs=jobs)


@pytest.fixture(scope="module")
def shared():
    """A small set in which links are shared."""
    drawn = (result for number in range(100) if len((result := draw(2, number)).jobs) == 2)
    return next(played for results in drawn if (played := simulated(results)).jobs)


def test_sets_are_legal_and_the_same_again():
    for number in range(4):
        result = draw(7, number)
        assert result == draw(7, number)
        assert result.cluster in CLUSTERS
        assert NUM_JOBS[0] <= len(result.jobs) <= NUM_JOBS[1]
        devices = Counter(device for one in result.jobs for device in one.devices)
        assert max(devices.values()) == 1
        assert max(devices) < cluster_of(result.cluster).num_devices
        assert all(len(one.devices) == one.layout.world for one in result.jobs)


def test_jobs_are_simulated_in_full_company_and_only_those_that_share_links_are_slower(shared):
    assert any(one.shares for one in shared.jobs)
    for one in shared.jobs:
        assert one.num_steps >= FEWEST_STEPS
        assert one.together_s >= one.alone_s * (1 - 1e-6)
        assert one.slower_s >= one.alone_s * (1 - 1e-6)
        if not one.shares:
            assert one.together_s == pytest.approx(one.alone_s, rel=1e-6)
    assert simulated(draw(shared.seed, shared.number)) == shared


def test_who_shares_no_link_is_predicted_exactly():
    result = validate.predicted_s(one_set(job(1.3, 0), job(1.0, 5), job(1.3, 0), job(2.0, alone_s=2.0)))
    assert result[[1, 3]].tolist() == [1.0, 2.0]
    assert (result[[0, 2]] > 1.2).all()


def test_errors_are_told_of_all_jobs_and_of_those_that_share():
    # predicted as it is, and 10 % too much; without sharing both are too little
    result = validate.predicted_s(one_set(job(1.0, 0), job(1.0, 0)))[0]
    one = one_set(job(result, 0), job(result / 1.1, 0), job(1.0, 5))
    reported = validate.compared((one,), ((result, result, 1.0),))
    groups = {group["group"]: group for group in reported["groups"]}
    assert groups["all jobs"]["mean_error"] == pytest.approx(0.1 / 3)
    assert groups["jobs that share links"]["mean_error"] == pytest.approx(0.05)
    assert groups["3 jobs"]["jobs"] == groups["clos-256-4to1"]["jobs"] == 2
    assert groups["jobs that share links"]["no_sharing_mean_error"] == pytest.approx(1 - 1.05 / result)
    assert [row["shares_links"] for row in reported["rows"]] == [True, True, False]


def test_sets_are_kept_and_taken_up_again(monkeypatch, tmp_path):
    drawn = []
    monkeypatch.setattr(validate, "draw", lambda seed, number: (seed, number))
    monkeypatch.setattr(
        validate, "run_set", lambda key: drawn.append(key) or one_set(*[job(1.2, 0)] * 2 * (key[1] != 1), number=key[1])
    )
    first = [one.number for one in islice(validate.simulated_sets(2, tmp_path), 2)]
    assert first == [0, 2]  # nothing is shared in the second one
    assert list(islice(validate.simulated_sets(2, tmp_path), 3))[-1].number == 3
    assert drawn == [(2, 0), (2, 1), (2, 2), (2, 3)]
    (tmp_path / "2-0.json").write_text('{"seed": 2}')
    with pytest.raises(ConfigError, match=r"2-0\.json"):
        next(validate.simulated_sets(2, tmp_path))


def test_the_command_tells_the_table_and_exits_by_what_is_allowed(monkeypatch, tmp_path, capsys):
    result = validate.compared((one_set(job(1.0, 0), job(1.0, 0)),), ((1.08, 1.0),))
    monkeypatch.setattr(validate, "validate", lambda *_, **__: result)
    out = tmp_path / "out.json"
    words = ["dev", "validate", "sharing", "--json", str(out), "--set"]
    for allowed, status in (("0.05", 0), ("0.03", 1)):
        assert run_command_line([*words, f"max_mean_error={allowed}"]) == status
        assert "4.0 %" in capsys.readouterr().out
    assert run_command_line([*words, "max_p95_error=0.05"]) == 1
    assert np.isclose(json.loads(out.read_text())["groups"][0]["mean_error"], 0.04)


def test_the_fit_finds_constants_from_which_step_times_were_made():
    made = np.array([0.8, 0.1, 0.5, 0.6])
    drawn = [one_set(job(1.0, 0), job(1.0, 0, 1), job(1.0, 1, alone_s=factor)) for factor in (1.0, 1.4, 2.0, 3.0)]
    sets = []
    for one in drawn:
        reported = validate.predicted_s(one, made).tolist()
        jobs = tuple(of.model_copy(update={"together_s": step_s}) for of, step_s in zip(one.jobs, reported, strict=True))
        sets.append(one.model_copy(update={"jobs": jobs}))
    assert np.abs(validate.sharing_errors(sets, made)).max() < 1e-9
    assert np.abs(validate.sharing_errors(sets, fit(sets))).mean() < 0.005


def test_no_set_is_refused():
    with pytest.raises(ConfigError, match="--set sets: must be at least 1"):
        validate.validate(0)
