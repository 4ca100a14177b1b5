"""Networks that do without a part of the observation: it has no influence, and nothing else is lost."""

import dataclasses

import pytest
import torch

from meshwright.envs.observation import CANDIDATE_FEATURES, CLUSTER_FEATURES, DEVICE_FEATURES, JOB_FEATURES
from meshwright.envs.static_features import static_features
from meshwright.errors import ConfigError
from meshwright.models.network import NOT_OFFERED, ablated
from meshwright.models.settings import NetworkSettings

from .scenarios import set_scenario

PARTS = ("graph", "look-ahead", "time-to-free", "reject")
HALF = 8  # of the moments ahead that cluster_slots and candidate_slots tell of


def columns(features, *names):
    return [features.index(name) for name in names]


# Of each part, the features that it blanks: a key and its last indices.
BLANK = {
    "graph": {},
    "look-ahead": {
        "candidates": columns(
            CANDIDATE_FEATURES,
            "completion against deadline",
            "completion",
            "device-seconds",
            "communication share",
            "efficiency",
        ),
        "job": columns(JOB_FEATURES, "fastest against deadline"),
        "candidate_ends": range(1),
    },
    "time-to-free": {
        "cluster": columns(CLUSTER_FEATURES, "mean time left"),
        "devices": columns(DEVICE_FEATURES, "time left"),
        "cluster_slots": [*range(1, HALF), *range(HALF + 1, 2 * HALF)],
        "candidate_slots": [*range(1, HALF), *range(HALF + 1, 2 * HALF)],
        "cluster_shapes": range(1, 6),
        "cluster_any": range(1, 6),
        "candidate_shapes": range(1, 6),
        "candidate_any": range(1, 6),
    },
    "reject": {},
}


@pytest.fixture
def seen(foreseeing, observations):
    return observations(foreseeing)


def outputs(network, seen):
    with torch.no_grad():
        return network(seen)


@pytest.mark.parametrize("part", PARTS)
def test_a_blank_part_has_no_influence(foreseeing, random_network, seen, part):
    network = random_network(foreseeing, after=(12, 7), without=(part,))
    changed, torch_seed = {key: value.clone() for key, value in seen.items()}, torch.manual_seed(3)
    for key, blank in BLANK[part].items():
        rows = changed[key]
        rows[..., list(blank)] = torch.rand(rows[..., list(blank)].shape, generator=torch_seed)
    torch.testing.assert_close(outputs(network, changed), outputs(network, seen), rtol=0, atol=0)
    if BLANK[part]:  # and it has one where it is seen
        whole = random_network(foreseeing, after=(12, 7))
        assert not torch.allclose(outputs(whole, changed)[0], outputs(whole, seen)[0])


@pytest.mark.parametrize("part", PARTS)
def test_nothing_else_is_blanked(seen, part):
    stored = {key: value.clone() for key, value in seen.items()}
    shown = ablated(seen, (part,))
    assert set(shown) == set(seen)
    for key, value in shown.items():
        blank = list(BLANK[part].get(key, ()))
        others = [i for i in range(value.shape[-1]) if i not in blank] if blank else slice(None)
        if not (part == "reject" and key == "action_mask"):
            assert torch.equal(value[..., others], seen[key][..., others]), key
        assert torch.equal(seen[key], stored[key]), key  # the observation itself is left as it was


def test_where_time_is_blank_every_slot_shows_what_is_free_by_the_first_one(seen):
    shown = ablated(seen, ("time-to-free",))
    for key in ("cluster_shapes", "cluster_any", "candidate_shapes", "candidate_any"):
        assert torch.equal(shown[key], seen[key][..., :1].expand_as(seen[key]))
    for key in ("cluster_slots", "candidate_slots"):
        shares, is_any = seen[key][..., :1], seen[key][..., HALF : HALF + 1]
        assert torch.equal(shown[key], torch.cat([shares] * HALF + [is_any] * HALF, dim=-1))
    # The state after a candidate still tells which blocks it takes.
    assert not torch.equal(shown["candidate_shapes"][:, 0], shown["candidate_shapes"][:, 1])


@pytest.mark.parametrize("after", [(), (12, 7)])
def test_without_rejection_a_job_is_turned_away_only_where_nothing_else_is_offered(foreseeing, random_network, seen, after):
    network = random_network(foreseeing, after=after, without=("reject",))
    seen["action_mask"][2:4, 1:] = 0
    scores, values = outputs(network, seen)
    is_alone = (seen["action_mask"][:, 1:] == 0).all(dim=1)
    assert is_alone.tolist()[2:4] == [True, True]
    assert not is_alone.all()
    assert ((scores[:, 0] == NOT_OFFERED) == ~is_alone).all()
    assert ((scores[:, 1:] == NOT_OFFERED) == (seen["action_mask"][:, 1:] == 0)).all()
    # The other candidates score as ever.
    whole = random_network(foreseeing, after=after)
    theirs, _ = outputs(whole, seen)
    assert torch.equal(scores[:, 1:], theirs[:, 1:])
    assert values.isfinite().all()


def test_a_job_without_its_graph_is_the_means_of_its_ops(foreseeing, random_network, seen):
    static = static_features(foreseeing)
    network = random_network(foreseeing, without=("graph",))
    before = outputs(network, seen)
    totals = static.ops.copy()
    for g in range(static.num_graphs):
        totals[static.graph_of_op == g] = static.ops[static.graph_of_op == g].mean(axis=0)
    for other in (dataclasses.replace(static, edges=static.edges[:1]), dataclasses.replace(static, ops=totals)):
        set_scenario(network, other)
        torch.testing.assert_close(outputs(network, seen), before)
    set_scenario(network, dataclasses.replace(static, ops=static.ops[::-1].copy()))
    assert not torch.allclose(outputs(network, seen)[0], before[0])
    # A network that sees the graph does see its edges.
    whole = random_network(foreseeing)
    before = outputs(whole, seen)
    set_scenario(whole, dataclasses.replace(static, edges=static.edges[:1]))
    assert not torch.allclose(outputs(whole, seen)[0], before[0])


def test_a_part_that_there_is_not_is_told():
    from meshwright import settings

    with pytest.raises(ConfigError, match="without") as caught:
        settings.build_settings(NetworkSettings, {"without": ["lookahead"]})
    assert "look-ahead" in str(caught.value)
