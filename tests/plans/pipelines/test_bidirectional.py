"""Requirements of DualPipe and DualPipeV on a layout, and the places of their chunks."""

import pytest

from meshwright.errors import PlanError
from meshwright.plans.partition import Layout


def parsed(text):
    return Layout.parse(f"micro_batch=1,{text}")


def test_chunks_go_there_and_back_again():
    both, folded = parsed("pp=4,schedule=dualpipe,global_batch=8"), parsed("pp=4,schedule=dualpipev,global_batch=8")
    for layout in (both, folded):
        assert [layout.stage_of(chunk) for chunk in range(8)] == [0, 1, 2, 3, 3, 2, 1, 0]
        assert all(layout.chunk_at(layout.stage_of(c), c // 4) == c for c in range(8))
        assert layout.overlap_pp
        assert not layout.overlap_dp
    assert (both.virtual_stages, both.chunks_per_rank, both.micro_batches_per_chunk) == (1, 2, 4)
    assert (folded.virtual_stages, folded.chunks_per_rank, folded.micro_batches_per_chunk) == (2, 2, 8)
    assert [both.is_border(chunk) for chunk in range(3, 5)] == [True, False]
    assert not any(folded.is_border(chunk) for chunk in range(8))
    plain = parsed("pp=4,virtual_stages=2,schedule=interleaved,global_batch=8")
    assert [plain.stage_of(chunk) for chunk in range(8)] == [0, 1, 2, 3, 0, 1, 2, 3]
    assert [plain.chunk_at(1, place) for place in (0, 1)] == [1, 5]


def test_without_a_pipeline_the_schedule_is_idle():
    for name in ("dualpipe", "dualpipev"):
        layout = parsed(f"schedule={name},global_batch=3")
        assert not layout.is_bidirectional
        assert layout.chunks_per_rank == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("pp=3,schedule=dualpipe,global_batch=12", "needs an even pp, as 4, not 3"),
        ("pp=4,schedule=dualpipe,global_batch=9", "needs an even number of micro-batches, as 10, not 9"),
        ("pp=4,schedule=dualpipe,global_batch=6", "needs at least 2 pp = 8 micro-batches, not 6"),
        ("pp=4,schedule=dualpipev,global_batch=7", "needs at least 2 pp = 8 micro-batches, not 7"),
        ("pp=4,schedule=dualpipe,virtual_stages=2,global_batch=8", "needs virtual_stages=1, not 2"),
        ("pp=4,schedule=dualpipev,virtual_stages=4,global_batch=8", "needs virtual_stages=2, not 4"),
        ("pp=4,schedule=dualpipe,overlap_pp=false,global_batch=8", "needs overlap_pp=true"),
        ("pp=4,schedule=dualpipev,overlap_dp=true,global_batch=8", "needs overlap_dp=false"),
        ("pp=2,dp=2,tp=2,schedule=dualpipe,stage_meshes=2x2/1x4,global_batch=16", "stage_meshes gives each a mesh of its own"),
        ("pp=4,schedule=dualpip,global_batch=8", "dualpipe"),
    ],
)
def test_what_they_cannot_run_is_refused_in_one_line(text, problem):
    with pytest.raises(PlanError, match=problem) as error:
        parsed(text)
    assert "\n" not in str(error.value)


def test_a_framework_that_runs_them_hides_what_they_are_for():
    layout = parsed("pp=4,dp=2,schedule=dualpipev,global_batch=16")
    request = Layout.parse("pp=4,dp=2,schedule=dualpipev,micro_batch=1,global_batch=16,framework=fsdp2", hides_unasked=True)
    assert (request.overlap_pp, request.overlap_dp) == (layout.overlap_pp, layout.overlap_dp) == (True, False)
