"""Workloads drawn by the published rule."""

import numpy as np
import pytest

from meshwright.errors import ConfigError, InputFileError
from meshwright.jobs.readers.elastic import load_applications, load_workload
from meshwright.simulation.elastic import workload_draws
from meshwright.simulation.elastic.applications import arrays_of
from meshwright.simulation.elastic.workload_draws import WorkloadDraws, requests

from ...elastic_samples import rows, simulation_of, write_applications


@pytest.fixture
def drawn(tmp_path, monkeypatch):
    """Draws of 40 rows in the eight hours; rows at 01:00 and of half a minute must not be drawn."""
    monkeypatch.setattr(workload_draws, "CLASSES", ((1, ("quick",)), (1000, ("slow",))))
    simulation = simulation_of(write_applications(tmp_path / "applications"))
    lines = [
        (f"2017-10-0{day} {hour:02}:10:05", seconds, gpus)
        for day in (1, 2)
        for hour in (1, 2, 5, 9, 10)
        for seconds, gpus in ((30, 1), (600, 1), (1200, 2), (7200, 1), (3600, 8))
    ]
    path = tmp_path / "trace.csv"
    path.write_text(rows("timestamp,duration,num_gpus", lines))
    return WorkloadDraws(path, simulation.applications, simulation.apps)


def test_rows_become_jobs_by_their_hour_and_their_device_hours(drawn):
    # Of 50 rows those at 02:00, 05:00 and 09:00 that run for a minute remain: 2 days, 3 hours, 4 lengths.
    all_of_them = drawn.draw(0, 24)
    assert sorted(set(all_of_them.submission_s.tolist())) == [605, 3 * 3600 + 605, 7 * 3600 + 605]
    # 600 s of one device and 1,200 s of two are less than a device-hour.
    assert np.bincount(all_of_them.application).tolist() == [12, 12]
    with pytest.raises(InputFileError, match="only 24 rows may be drawn"):
        drawn.draw(0, 25)


def test_a_seed_is_a_workload(drawn):
    one, again, other = (drawn.draw(seed, 12) for seed in (7, 7, 8))
    assert one.name == again.name == "drawn-7"
    columns = ("submission_s", "application", "num_ranks", "batch")
    assert all((getattr(one, column) == getattr(again, column)).all() for column in columns)
    assert any((getattr(one, column) != getattr(other, column)).any() for column in columns)
    assert (np.diff(one.submission_s) >= 0).all()


def test_an_application_of_the_rule_that_was_not_measured_is_named(tmp_path):
    simulation = simulation_of(write_applications(tmp_path / "applications"))
    (tmp_path / "trace.csv").write_text("timestamp,duration,num_gpus\n2017-10-01 05:00:00,100,1\n")
    with pytest.raises(ConfigError, match="cifar10"):
        WorkloadDraws(tmp_path / "trace.csv", simulation.applications, simulation.apps)


@pytest.mark.reference
def test_users_ask_for_what_they_ask_for_in_the_published_workloads(reference):
    folder = reference / "elastic"
    applications = load_applications(folder / "applications")
    apps = arrays_of(applications)
    request = {(a, ranks, batch) for a, each in enumerate(applications) for ranks, batch in requests(apps, each, a)}
    result = set()
    for path in sorted((folder / "workloads" / "load-1.0").glob("*.csv")):
        jobs = load_workload(path, applications)
        result |= set(zip(jobs.application.tolist(), jobs.num_ranks.tolist(), jobs.batch.tolist(), strict=True))
    assert result == request
