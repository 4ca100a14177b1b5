"""A fleet's policy on a GPU, where there is one: the same numbers again, and a policy that a core plays."""

import pytest
import torch

from meshwright.errors import ConfigError
from meshwright.models.fleet.network import FleetActor
from meshwright.models.fleet.saved import SavedFleetNetwork
from meshwright.models.settings import FleetNetworkSettings

from ..runs import curve
from ..runs import fleet_config as chosen
from .test_train_fleet import train_fleet


def test_a_gpu_that_is_not_there_is_told_before_anything_is_written(fleet, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device: torch sees no CUDA device here"):
        train_fleet(chosen(device="cuda"), tmp_path / "run", fleet)
    assert not (tmp_path / "run").exists()


def test_what_a_network_reads_of_another_fleet_is_where_the_network_is(fleet):
    network = FleetActor(FleetNetworkSettings(width=8, rounds=1), fleet).to("meta")
    network.use(fleet)
    assert {tensor.device.type for tensor in network.menu.buffers()} == {"meta"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")
def test_the_same_seed_gives_the_same_run_on_a_gpu_and_its_policy_plays_on_a_core(fleet, tmp_path):
    first, second = (train_fleet(chosen(device="cuda"), tmp_path / name, fleet) for name in ("first", "second"))
    assert curve(first.path) == curve(second.path)
    assert all(weight.device.type == "cpu" for weight in SavedFleetNetwork.load(first.policy).weights.values())
