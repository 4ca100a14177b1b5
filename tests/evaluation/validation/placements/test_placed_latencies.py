"""Published figures of latency on drawn graphs: ours agree."""

from meshwright.evaluation.validation.placements.placed_latencies import ratio_rows


def test_heft_is_as_near_the_critical_path_as_published():
    figures = list(ratio_rows())
    assert [figure.figure for figure in figures if not figure.agrees] == []
    by_name = {figure.figure.partition(",")[0]: figure.ours for figure in figures}
    assert by_name["HEFT with insertion"] <= by_name["HEFT without insertion"] < by_name["best of 20 random"] < by_name["random"]
