"""The published figures, every one of them, and the statistics of two policies."""

import json

import pytest

from meshwright.evaluation.validate_pacml import HASH_DEPENDENT, validate


@pytest.fixture(scope="module")
def compared(reference):
    return validate(reference / "pacml" / "reference.json", reference / "pipedream")


@pytest.mark.reference
def test_every_figure_of_the_file_is_compared_and_agrees(compared, reference):
    told = json.loads((reference / "pacml" / "reference.json").read_text())
    assert [row.to_data() for row in compared.rows if not row.agrees] == []
    families = {family: summary["items"] for family, summary in compared.summary().items()}
    singles = [job for jobs in told["single_job_empty_cluster"].values() for job in jobs.values()]
    completion_times = [row for row in compared.rows if row.figure == "jct" and row.family == "single job"]
    assert len(completion_times) == sum(job["valid"] for job in singles)
    assert sum(row.figure == "valid" for row in compared.rows) == len(singles) == 45
    assert families["placement"] == 2 * sum(map(len, told["placement_dependence"].values()))
    assert sum(row.figure == "rewards" for row in compared.rows) == len(told["episode_logs"])
    rewards = {row.group: row.predicted for row in compared.rows if row.figure == "rewards"}
    assert sum(rewards.values()) == sum(len(episode["log"]) for episode in told["episode_logs"])


@pytest.mark.reference
def test_single_jobs_agree_far_closer_than_asked_for(compared):
    # Rounding aside: sums are taken in the original's order. No tie was left to chance either.
    assert max(row.relative_error for row in compared.rows if row.family in ("single job", "converted")) < 1e-12
    assert not any("ties of seed" in row.group for row in compared.rows)


@pytest.mark.reference
def test_only_what_hangs_on_the_hash_seed_has_a_looser_tolerance(compared):
    loose = {row.group for row in compared.rows if row.tolerance > 1e-9}
    name, degree = HASH_DEPENDENT
    for group in loose:
        assert (
            group.startswith("log")
            or f"{name} at degree {degree}" in group
            or f"{name} in milliseconds at degree {degree}" in group
        )


@pytest.mark.reference
def test_figures_of_another_hash_seed_agree_and_say_so(reference, tmp_path):
    # The original was also seen to give 18031.0398 for AlexNet cut two ways, and then 0.00658 more of communication.
    told = json.loads((reference / "pacml" / "reference.json").read_text())
    figures = told["single_job_empty_cluster"]["alexnet"]["2"]
    kept = {"valid": True, "jct": 18031.03980, "communication_overhead_time": figures["communication_overhead_time"] + 0.00658}
    path = tmp_path / "other.json"
    for off, agrees in ((0.0, True), (0.001, False)):
        wrong = kept | {"communication_overhead_time": kept["communication_overhead_time"] + off}
        path.write_text(json.dumps({"single_job_empty_cluster": {"alexnet": {"2": wrong}}}))
        compared = validate(path, reference / "pipedream")
        assert compared.agrees == agrees
        assert any("ties of seed" in row.group for row in compared.rows) == agrees


@pytest.mark.reference
@pytest.mark.parametrize("distribution", ["A", "D"])
def test_the_statistics_of_two_policies(reference, tmp_path, distribution):
    told = json.loads((reference / "pacml" / "reference.json").read_text())
    kept = {name: told["ten_seed_statistics"][distribution][name] for name in ("acceptable_jct", "fixed4")}
    path = tmp_path / "statistics.json"
    path.write_text(
        json.dumps(
            {
                "single_job_empty_cluster": {name: {} for name in told["single_job_empty_cluster"]},
                "ten_seed_statistics": {distribution: kept},
            }
        )
    )
    compared = validate(path, reference / "pipedream", with_statistics=True)
    assert len(compared.rows) == 2 * 3
    assert compared.agrees, [row.to_data() for row in compared.rows if not row.agrees]
