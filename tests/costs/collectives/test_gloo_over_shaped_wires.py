"""The ring's formula against gloo over links of a known rate, measured between network namespaces (docs/predictions.md)."""

import csv
from pathlib import Path

import numpy as np
import pytest

from meshwright.costs.formulas import ring_all_reduce_s

ROWS = list(csv.DictReader(Path(__file__).with_name("gloo_over_shaped_wires.csv").read_text().splitlines()))
GOODPUT = 1448 / 1514
"""Bytes that TCP carries in a full frame, over the bytes that the shaper counts."""


def relative_error(row):
    payload, bandwidth = float(row["payload_mib"]) * 2**20, float(row["link_mbit_per_s"]) / 8 * 1e6 * GOODPUT
    num_ranks, latency_s = int(row["num_hosts"]), float(row["latency_us"]) / 1e6
    # An all-gather is half of an all-reduce; a message over a switch is one step.
    whole = ring_all_reduce_s(payload, num_ranks, bandwidth, latency_s)
    predicted = {"all-reduce": whole, "all-gather": whole / 2, "send/recv": payload / bandwidth + latency_s}
    return predicted[row["operation"]] * 1e3 / float(row["measured_ms"]) - 1


@pytest.mark.parametrize(("operation", "mean", "largest"), [("all-reduce", 0.02, 0.08), ("send/recv", 0.01, 0.035)])
def test_rings_and_messages_take_as_long_as_the_formula_says(operation, mean, largest):
    errors = np.abs([relative_error(row) for row in ROWS if row["operation"] == operation])
    assert len(errors) >= 10
    assert errors.mean() <= mean
    assert errors.max() <= largest


def test_all_gathers_over_four_hosts_and_more_take_at_most_a_tenth_longer():
    errors = [relative_error(row) for row in ROWS if row["operation"] == "all-gather" and int(row["num_hosts"]) > 2]
    assert min(errors) >= -0.08
    assert max(errors) <= 0.05
