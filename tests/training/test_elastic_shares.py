"""The search for weights of elastic shares."""

from meshwright.planners.elastic.shortest_remaining import BY_HAND
from meshwright.training.elastic_shares import mean_completions_s, search_weights

from ..elastic_samples import simulation_of, workload, write_applications


def test_a_seed_is_a_search(tmp_path):
    simulation = simulation_of(write_applications(tmp_path / "applications"))
    loads = [[workload([(0, 1, 1, 64), (0, 0, 1, 64), (60, 1, 1, 64)]), workload([(30, 0, 1, 64)])]]
    told = []
    found = [
        search_weights(simulation, loads, seed=seed, generations=1, report=lambda *row: told.append(row)) for seed in (3, 3, 4)
    ]
    assert (found[0] == found[1]).all()
    assert (found[0] != found[2]).any()
    assert [number for number, _, _ in told] == [0, 0, 0]
    means = mean_completions_s(simulation, BY_HAND, loads)
    assert means.shape == (2,)
    assert (means > 0).all()
