"""Reports of ranks against the plan: the first rank that is elsewhere is named, and no rank that agrees."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import ExportError
from meshwright.export import Place, targets, verify
from meshwright.plans.document import PlacementPlan


def places_of(plan):
    return [
        Place(r.rank, r.host, plan.num_ranks, r.local_rank, r.coordinates.model_dump() if r.coordinates else {})
        for r in plan.ranks
    ]


@pytest.mark.parametrize("target", sorted(targets))
def test_a_job_as_planned_agrees_whatever_launched_it(plan_for, target):
    plan = plan_for(target)
    result = verify(plan, target, places_of(targets[target].as_launched(plan)))
    assert result.agrees
    assert result.first is None
    assert ("device" in result.compared) == targets[target].names_devices


@given(swap=st.tuples(st.integers(0, 7), st.integers(0, 7)))
def test_two_ranks_that_changed_places_are_seen(running_example, swap):
    first, second = sorted(swap)
    places = places_of(running_example)
    one, other = places[first], places[second]
    places[first] = Place(one.rank, other.host, 8, other.device)
    places[second] = Place(other.rank, one.host, 8, one.device)
    result = verify(running_example, "slurm", places)
    assert list(result.elsewhere) == ([] if first == second else [first, second])
    assert result.first is None if first == second else result.first.startswith(f"rank {first} ")


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (Place(2, "gpu-03", source="log:3"), "rank 2 is on gpu-03, the plan puts it on gpu-07 (log:3)"),
        (Place(2, "gpu-99", source="log:3"), "rank 2 is on gpu-99, the plan puts it on gpu-07 (log:3)"),
        (Place(2, "gpu-07", device=2, source="log:3"), "rank 2 uses device 2 of gpu-07, the plan gives it device 1 (log:3)"),
        (Place(2, "gpu-07", world=4, source="log:3"), "rank 2 counts 4 ranks, the plan has 8 (log:3)"),
    ],
)
def test_what_is_wrong_with_a_rank_is_told(running_example, message, problem):
    places = places_of(running_example)
    places[2] = message
    assert verify(running_example, "slurm", places).first == problem


def test_wrong_coordinates_are_seen_where_ranks_say_them(layout_example):
    places = places_of(layout_example)
    assert "coordinates" in verify(layout_example, "slurm", places).compared
    places[5] = Place(5, places[5].host, coordinates={"tp": 0})
    assert verify(layout_example, "slurm", places).first == "rank 5 has tp 0, the plan gives it 1 ()"


def test_ranks_that_the_target_numbers_in_its_own_way_are_held_against_its_numbers(make_plan):
    # tp=2 pp=2, the plan numbers pp fastest; Megatron's rank 1 has tp=1, pp=0, which is the plan's rank 2
    at = [{"pp": pp, "dp": 0, "cp": 0, "ep": 0, "tp": tp} for tp in (0, 1) for pp in (0, 1)]
    plan = make_plan(["b", "a", "b", "a"]).model_dump(mode="json", exclude_none=True)
    for rank, coordinates in zip(plan["ranks"], at, strict=True):
        rank["coordinates"] = coordinates
    plan = PlacementPlan.model_validate(plan)
    launched = [Place(number, host) for number, host in enumerate(["b", "b", "a", "a"])]
    assert verify(plan, "megatron", launched).agrees
    assert verify(plan, "slurm", launched).first.startswith("rank 1 is on b, the plan puts it on a")


def test_a_rank_that_says_nothing_or_is_not_planned_is_seen(running_example):
    places = places_of(running_example)
    assert verify(running_example, "slurm", places[:3] + places[4:]).first == "rank 3 says nothing"
    extra = verify(running_example, "slurm", [*places, Place(8, "gpu-07", source="log:9")])
    assert extra.first == "rank 8 is none of the plan's 8 ranks (log:9)"


def test_a_rank_that_says_two_things_is_elsewhere_and_one_that_repeats_itself_is_not(running_example):
    places = places_of(running_example)
    assert verify(running_example, "slurm", places + places).agrees
    assert list(verify(running_example, "slurm", [*places, Place(4, "gpu-07")]).elsewhere) == [4]


def test_only_what_every_line_tells_counts_as_compared(running_example, layout_example):
    places = places_of(running_example)
    assert verify(running_example, "slurm", places).compared == ("device", "world")
    assert verify(running_example, "slurm", [*places[:7], replace(places[7], device=None)]).compared == ("world",)
    assert verify(running_example, "slurm", [*places[:7], replace(places[7], world=None)]).compared == ("device",)
    assert verify(running_example, "slurm", []).compared == ()
    messages = [replace(place, coordinates={"pp": 0}) for place in places]  # the plan has none to hold them against
    assert verify(running_example, "slurm", messages).compared == ("device", "world")
    places = places_of(layout_example)  # cut along pp, dp and tp
    known = [replace(place, coordinates={axis: place.coordinates[axis] for axis in ("pp", "dp", "tp")}) for place in places]
    assert "coordinates" in verify(layout_example, "slurm", known).compared
    known[3] = replace(known[3], coordinates={"tp": known[3].coordinates["tp"]})
    assert verify(layout_example, "slurm", known).agrees
    assert "coordinates" not in verify(layout_example, "slurm", known).compared


def test_a_device_counts_only_where_the_target_names_the_hosts_own_numbers(running_example, monkeypatch):
    monkeypatch.setitem(targets, "pods", replace(targets["slurm"], name="pods", names_devices=False))
    places = [Place(r.rank, r.host, device=0) for r in running_example.ranks]
    assert verify(running_example, "pods", places).agrees
    assert verify(running_example, "slurm", places).first.startswith("rank 0 uses device 0 of gpu-07")


@pytest.mark.parametrize(
    ("hosts", "message", "agrees"),
    [
        (["gpu-07", "gpu-03"], ["gpu-07.cluster.example", "gpu-03.cluster.example"], True),
        (["gpu-07.example", "gpu-03.example"], ["gpu-07", "gpu-03"], True),
        (["GPU-07", "gpu-03"], ["gpu-07", "gpu-03"], True),
        (["gpu-07.one", "gpu-03.one"], ["gpu-07.two", "gpu-03.one"], False),
        (["gpu.one", "gpu.two"], ["gpu", "gpu"], False),
        (["gpu.one", "gpu.two"], ["gpu.one", "gpu.two"], True),
        (["gpu-07", "gpu-03"], ["gpu-0", "gpu-03"], False),
    ],
)
def test_a_domain_may_be_left_out_where_hosts_stay_apart_without_it(make_plan, hosts, message, agrees):
    places = [Place(rank, host) for rank, host in enumerate(message)]
    assert verify(make_plan(hosts), "slurm", places).agrees == agrees


def test_an_unknown_format_gets_the_nearest(running_example):
    with pytest.raises(ExportError, match="did you mean 'slurm'"):
        verify(running_example, "slrum", [])
