"""The published figures, every one of them, and the statistics of two policies."""

import json

import pytest

from meshwright.evaluation.validate_pacml import HASH_DEPENDENT, validate


@pytest.fixture(scope="module")
def compared(reference):
    return validate(reference / "pacml" / "reference.json", reference / "pipedream")


@pytest.mark.reference
def test_every_figure_of_the_file_is_compared(compared, reference):
    told = json.loads((reference / "pacml" / "reference.json").read_text())
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
def test_all_figures_agree_but_one_that_falls_either_way(compared):
    wrong = [row for row in compared.rows if not row.agrees]
    assert [(row.group, row.figure) for row in wrong] == [("alexnet at degree 2", "communication_overhead_time")]
    assert wrong[0].is_attained
    assert {row.figure for row in compared.rows if row.group == wrong[0].group and row.alternatives} >= {"jct", wrong[0].figure}


@pytest.mark.reference
def test_what_no_hash_seed_leaves_open_agrees_far_closer_than_asked_for(compared):
    name, degree = HASH_DEPENDENT
    for row in compared.rows:
        if row.family != "placement" and not row.group.startswith(f"{name} at degree {degree}"):
            assert row.relative_error < 1e-12, row.to_data()


@pytest.mark.reference
def test_no_one_order_of_ties_gives_all_the_figures_of_the_file(compared, reference):
    """AlexNet cut two ways alone and in a log: the file itself tells both outcomes of one tie.

    Alone it takes 18031.0332 s, where the sub-edge wins; in the log, on servers that lie alike, 18031.0398 s, where the
    weight sync does.
    """
    path = reference / "pacml" / "reference.json"
    told = json.loads(path.read_text())
    assert told["single_job_empty_cluster"]["alexnet"]["2"]["jct"] == pytest.approx(18031.033232573976, rel=1e-12)
    assert told["placement_dependence"]["alexnet"]["2"]["jct_max"] == pytest.approx(18031.039812573174, rel=1e-12)
    outcomes = set()
    for seed in range(1, 13):
        found = validate(path, reference / "pipedream", tie_seed=seed)
        alone = next(row for row in found.rows if row.figure == "jct" and row.group == "alexnet at degree 2")
        log = next(row for row in found.rows if row.figure == "mean_jct" and row.group.startswith("log 4"))
        outcomes.add((alone.relative_error < 1e-12, log.relative_error < 1e-12))
    assert outcomes == {(True, False), (False, True)}


@pytest.mark.reference
def test_orders_of_single_dependencies_cannot_give_the_converted_figures_but_the_order_of_making_does(compared):
    """A hash for each dependency always lets some channel pick the flow that ends first; the file has it otherwise."""
    for degree in (4, 6, 8, 16):
        rows = [row for row in compared.rows if row.group == f"squeezenet1_0 in milliseconds at degree {degree}"]
        moved = [row for row in rows if row.figure in ("jct", "comm")]
        assert all(row.agrees and row.alternatives for row in moved)
        assert all(abs(value / row.reference - 1) > 1e-4 for row in moved for value in row.alternatives)


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
