"""Laws of Slurm's lists of hosts; ``tests/schedulers`` holds them against Slurm itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import StateError
from meshwright.live.sources.host_lists import MOST_HOSTS, hosts_in

bounds = st.tuples(st.integers(0, 120), st.integers(0, 12), st.integers(1, 4)).map(
    lambda drawn: f"{drawn[0]:0{drawn[2]}d}" + (f"-{drawn[0] + drawn[1]:0{drawn[2]}d}" if drawn[1] else "")
)
ranges = st.lists(bounds, min_size=1, max_size=3).map(lambda parts: f"[{','.join(parts)}]")
stems = st.sampled_from(["n", "gpu-", "rack3-node", "a0b"])
parts = st.builds(
    lambda stem, some: stem + "".join(some),
    stems,
    st.lists(st.tuples(ranges, st.sampled_from(["", "x", "-ib"])).map("".join), max_size=2),
)
lists = st.lists(parts, min_size=1, max_size=3).map(",".join)


def test_lists_worked_by_hand():
    assert hosts_in("node[1-3,07],login") == ["node1", "node2", "node3", "node07", "login"]
    assert hosts_in("n[08-11]") == ["n08", "n09", "n10", "n11"]  # as wide as the lower bound
    assert hosts_in("n[9-011]") == ["n9", "n10", "n11"]
    assert hosts_in("a[1-2]b[01-02]") == ["a1b01", "a1b02", "a2b01", "a2b02"]
    assert hosts_in("x[1-2]-ib,y") == ["x1-ib", "x2-ib", "y"]


@pytest.mark.parametrize(
    "text", ["", "a,,b", "a,", "a[3-1]", "a[", "a[]", "a]", "a[1-2", "a[1,,2]", "a b", "a[-1]", "a[²]", "[[1]]"]
)
def test_what_is_no_list_is_refused(text):
    with pytest.raises(StateError, match="is no"):
        hosts_in(text)


def test_a_list_of_more_hosts_than_slurm_has_is_refused_at_once():
    assert len(hosts_in(f"n[1-{MOST_HOSTS}]")) == MOST_HOSTS
    for text in (f"n[0-{MOST_HOSTS}]", "n[0-999999999999999999]", "a[1-300]b[1-300]", "n[1-9,1-65530]", f"m,n[1-{MOST_HOSTS}]"):
        with pytest.raises(StateError, match="more than 65,536 hosts"):
            hosts_in(text)


@given(text=lists, other=lists)
def test_two_lists_in_a_row_are_one_list(text, other):
    assert hosts_in(f"{text},{other}") == hosts_in(text) + hosts_in(other)
