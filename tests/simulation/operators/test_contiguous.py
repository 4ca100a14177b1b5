"""The latency of accelerators that run their sets at once: by hand, against plain Python, and the published figures."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.planners.operators.search.contiguous_search import contiguous_search, fill_in_order
from meshwright.simulation.operators.contiguous import contiguous_latency_s
from meshwright.simulation.operators.instance import OperatorInstance

from ...draws import draws
from ...oracles.operators import schedules as plain


def drawn(seed, num_ops=8):
    """Ops on two or three accelerators with memory for most of them, and on a host where they take three times as long."""
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, num_ops + 1)), int(rng.integers(2, 4))
    edges = [(a, b) for a in range(n) for b in range(a + 1, n) if rng.random() < 3 / n]
    seconds, size = rng.lognormal(0, 1, n), rng.uniform(0.1, 1.0, n)
    return OperatorInstance.of_outputs(
        f"boxes-{seed}",
        np.outer(seconds, [1.0] * m + [3.0]),
        edges,
        rng.lognormal(-1, 1, n),
        bandwidth_bytes_per_s=1.0,
        memory_bytes=[0.7 * size.sum() / m] * m + [np.inf],
        resident_bytes=np.minimum(size, 0.7 * size.sum() / m),
        group=rng.integers(0, n, n) if seed % 2 else None,
        is_host=np.arange(m + 1) == m,
    )


def test_a_chain_in_two_boxes_and_on_the_host():
    # 1 + 1 s and 0.5 s out; 0.5 s in and 1 + 1 s: 5 s. The last op on the host takes 3 s and no transfer is paid there.
    chain = OperatorInstance.of_outputs(
        "chain", np.outer(np.ones(4), [1.0, 1.0, 3.0]), [(0, 1), (1, 2), (2, 3)], 0.5,
        bandwidth_bytes_per_s=1.0, is_host=np.array([False, False, True]),
    )  # fmt: skip
    assert contiguous_latency_s(chain, np.array([0, 0, 1, 1])) == 5.0
    assert contiguous_latency_s(chain, np.array([0, 0, 0, 2])) == 3.0 + 0.5 + 3.0
    # 0 waits for 1, which waits for 0; in pieces each piece is a box: 1, 1 s in and out, and so on.
    assert contiguous_latency_s(chain, np.array([0, 1, 0, 0])) == np.inf
    assert contiguous_latency_s(chain, np.array([0, 1, 0, 0]), in_pieces=True) == 1.5 + 2.0 + 2.5


@given(st.integers(0, 10**6))
@draws(60)
def test_the_value_is_that_of_plain_python(seed):
    instance = drawn(seed)
    device_of = np.random.default_rng(seed).integers(0, instance.num_devices, instance.num_ops)
    assert contiguous_latency_s(instance, device_of) == pytest.approx(plain.contiguous_s(instance, device_of.tolist()), rel=1e-12)


@given(st.integers(0, 10**6))
@draws(15)
def test_the_search_is_legal_contiguous_and_no_worse_than_filling(seed):
    instance = drawn(seed)
    result, value_s = contiguous_search(instance, num_steps=2_000)
    assert value_s == pytest.approx(plain.contiguous_s(instance, result.tolist()), rel=1e-12)
    for depth_first in (True, False):
        assert value_s <= contiguous_latency_s(instance, fill_in_order(instance, depth_first=depth_first))


@pytest.mark.reference
def test_the_greedy_baseline_is_the_published_one(reference):
    from meshwright.simulation.operators.published_files import load_published

    instance = load_published(reference / "operators/dnn_partitioning/latency/layers_bert24_inference.json")
    greedy = fill_in_order(instance, depth_first=True)
    assert contiguous_latency_s(instance, greedy) * 1e3 == pytest.approx(100.219, rel=1e-5)
