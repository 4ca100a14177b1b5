"""The task layer: buckets, chunks and whose turn it is."""

from hypothesis import given
from hypothesis import strategies as st

from meshwright.costs.settings import CostSettings
from meshwright.costs.tasks import gradient_order, merged, num_chunks

sizes = st.lists(st.sampled_from([0.0, 1.0, 3.0, 10.0, 25.0]), max_size=12)


def test_a_bucket_is_closed_once_it_holds_its_bytes_worked_by_hand():
    # 10 + 10 < 25, + 10 = 30 closes; 25 closes by itself; 3 is left, and what has no bytes goes nowhere
    assert merged([10.0, 10.0, 0.0, 10.0, 25.0, 3.0], 25.0) == [(0, 1, 3), (4,), (5,)]
    assert merged([10.0, 0.0, 5.0], None) == [(0,), (2,)]  # without buckets each goes by itself


@given(given=sizes, bucket=st.sampled_from([None, 1.0, 5.0, 30.0, 1e9]))
def test_every_gradient_stands_in_one_bucket_in_order_and_only_the_last_may_be_small(given, bucket):
    result = merged(given, bucket)
    assert [place for places in result for place in places] == [place for place, size in enumerate(given) if size > 0]
    if bucket is not None:
        assert all(sum(given[place] for place in places) >= bucket for places in result[:-1])
        assert all(sum(given[place] for place in places[:-1]) < bucket for places in result)


@given(size=st.floats(0, 1e12), chunk=st.floats(65_536, 1e12))
def test_chunks_are_as_few_as_their_size_allows(size, chunk):
    count = num_chunks(size, CostSettings(message_chunk_bytes=chunk))
    assert count >= 1
    assert size / count <= chunk * (1 + 1e-12)
    assert count == 1 or size / (count - 1) > chunk * (1 - 1e-12)
    assert num_chunks(size, CostSettings()) == 1  # nothing is cut by default


def test_what_the_next_step_wants_first_goes_by_that_place():
    assert gradient_order(7.0, 20.0, CostSettings()) == 7.0
    assert gradient_order(7.0, 20.0, CostSettings(priority="first-consumer")) == 20.0
