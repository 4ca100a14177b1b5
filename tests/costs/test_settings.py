"""The settings of the cost model."""

from typing import get_args

import pytest

from meshwright import settings
from meshwright.costs import collectives, compute, flows
from meshwright.costs.settings import CostSettings
from meshwright.errors import ConfigError

OTHER_CHOICES = {
    "compute": "profiled",
    "collectives": "measured",
    "collectives_table": "a100",
    "kernels": "a100",
    "software": "megatron-lm",
    "in_network_trees": 7,
    "in_network_slots": 64,
    "circuits": "once",
    "flows": "store-and-forward",
    "routing": "ecmp",
    "routing_seed": 1,
    "contention": "independent",
    "overlap_slowdown": 1.126,
    "priority": "shortest-first",
    "flows_priority": "edf",
    "gradient_bucket_bytes": 25e6,
    "message_chunk_bytes": 4e6,
    "file_system_gbytes_per_s": 2.0,
    "host_adam_gbytes_per_s": 80.0,
    "gradient_bytes_per_parameter_byte": 2.0,
    "pipeline_skips": "direct",
    "resharding": "send-recv",
    "resharding_order": "size",
    "straggler_sigma": 0.1,
}


def test_every_layer_has_another_choice_here():
    assert OTHER_CHOICES.keys() == CostSettings.model_fields.keys()


@pytest.mark.parametrize("field", OTHER_CHOICES)
def test_the_digest_tells_every_choice_apart(field):
    expected = {"collectives_table": {"collectives": "measured"}, "flows_priority": {"contention": "fair"}}
    settings_of_it = expected.get(field, {})
    assert CostSettings(**settings_of_it, **{field: OTHER_CHOICES[field]}).digest != CostSettings(**settings_of_it).digest


def test_equal_choices_have_equal_digests():
    assert CostSettings(collectives="auto", gradient_bytes_per_parameter_byte=1).digest == CostSettings().digest


def test_layouts_have_defaults_of_their_own_where_nothing_was_given():
    usual = CostSettings().of_layouts
    assert (usual.collectives, usual.overlap_slowdown) == ("calibrated", 1.126)
    assert usual.of_layouts == usual
    # what was given stays, also where it is the default of the others
    for given in ({"collectives": "auto"}, {"overlap_slowdown": 1.0}):
        assert CostSettings(**given).of_layouts.model_dump() == usual.model_dump() | given
    assert CostSettings(contention="fair").of_layouts.model_dump() == usual.model_dump() | {"contention": "fair"}


@pytest.mark.parametrize(
    ("choices", "digest"),
    [
        ({}, "f0bc0d21bd0e0f0e3b7ef3485c390e3e"),
        ({"overlap_slowdown": 1.126}, "e87b531847ebe90a2d3524e595b731fd"),
        ({"contention": "fair"}, "e5215a2bd6b2c19336de34dedcde1f24"),
    ],
)
def test_choices_without_kernels_keep_the_digest_of_recorded_results(choices, digest):
    # These stood before there was a choice of kernels; step times on disk and recorded runs are found by them.
    assert CostSettings(**choices).digest == CostSettings(**choices, kernels=None).digest == digest
    assert "kernels" not in CostSettings(**choices, kernels=None).model_dump()


@pytest.mark.parametrize(
    ("field", "known"), [("compute", compute.MODELS), ("collectives", collectives.ALGORITHMS), ("flows", flows.MODELS)]
)
def test_yaml_offers_what_the_layer_has(field, known):
    assert set(get_args(CostSettings.model_fields[field].annotation)) - {"auto"} == set(known)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"collectives": "rng"}, r"collectives: .*'rng'.*did you mean 'ring'\?"),
        ({"flow": "cut-through"}, r"flow: .*did you mean 'flows'\?"),
        ({"gradient_bytes_per_parameter_byte": 0}, r"gradient_bytes_per_parameter_byte: .*0"),
        ({"gradient_bytes_per_parameter_byte": float("nan")}, r"gradient_bytes_per_parameter_byte: "),
        ({"gradient_bucket_bytes": 0}, "gradient_bucket_bytes"),
        ({"message_chunk_bytes": 1}, "message_chunk_bytes"),
        ({"overlap_slowdown": 0.999}, "overlap_slowdown"),
        ({"overlap_slowdown": -1.0}, "overlap_slowdown"),
        ({"overlap_slowdown": float("inf")}, "overlap_slowdown"),
        ({"collectives": "nccl", "collectives_table": "a100"}, r"a collectives_table wants collectives: measured"),
        ({"contention": "fair", "flows": "store-and-forward"}, "contention fair wants flows cut-through"),
        ({"routing": "ecpm"}, "routing: not a valid choice"),
        ({"routing_seed": -1}, "routing_seed: must be at least 0"),
        ({"routing": "spread", "flows": "store-and-forward"}, "routing spread wants flows cut-through"),
    ],
)
def test_a_bad_setting_is_refused_by_name(data, message):
    with pytest.raises(ConfigError, match=message):
        settings.build_settings(CostSettings, data)
