"""How trunks suit a job whose hosts are picked, worked by hand."""

import numpy as np
import pytest
import torch

from meshwright.envs.fleet.features import CONTEXT, HOST
from meshwright.models.fleet.network import FleetActor, room
from meshwright.models.settings import FleetNetworkSettings

from ...tiny_fleet import tiny_fleet

# Hosts 0 to 2 below one leaf, 3 to 5 below another.
MEMBER = torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3)


def seen(free, picked, expected, *, picks=True):
    """Six hosts; ``expected`` hosts in all, and some of them are picked."""
    hosts = np.zeros((1, 6, len(HOST)), np.float32)
    hosts[0, :, HOST.index("free share")] = free
    hosts[0, picked, HOST.index("is picked")] = 1.0
    hosts[0, :, HOST.index("may be picked")] = [share == 1.0 and host not in picked for host, share in enumerate(free)]
    context = np.zeros((1, len(CONTEXT)), np.float32)
    context[0, CONTEXT.index("hosts are being picked")] = picks
    context[0, CONTEXT.index("hosts still to pick")] = 1 - len(picked) / expected
    context[0, CONTEXT.index("hosts wanted of the entry whose hosts are picked")] = expected / 6
    return {"hosts": torch.as_tensor(hosts), "context": torch.as_tensor(context)}


def test_a_job_of_three_fits_below_a_free_leaf_alone():
    (remark,) = room(seen([1, 1, 1, 1, 0.5, 1], [], 3), MEMBER)
    # All three hosts of the first are wanted; the second has two of them: one of six too few.
    assert remark.tolist() == [pytest.approx(row) for row in ([0.0, 0.0, 1.0, 0.0], [-1 / 6, -1 / 4, 0.0, 0.0])]


def test_what_is_picked_is_wanted_no_more_and_is_told_where_it_is():
    (remark,) = room(seen([1, 1, 1, 1, 1, 1], [0, 4], 4), MEMBER)
    # Two more are wanted; two are left below each, and one of the two picks is below each.
    assert remark.tolist() == [pytest.approx([0.0, 0.0, 1.0, 0.5])] * 2


def test_where_no_hosts_are_picked_nothing_is_told():
    assert not room(seen([1, 1, 1, 1, 1, 1], [], 2, picks=False), MEMBER).any()


def test_a_network_reads_it_only_where_its_settings_say_so(tmp_path):
    fleet = tiny_fleet(tmp_path, num_jobs=20)
    plain, message = (FleetActor(FleetNetworkSettings(width=8, rounds=1, room=tells), fleet) for tells in (False, True))
    widths = [network.enter["trunks"].in_features for network in (plain, message)]
    assert widths[1] - widths[0] == 4
    assert FleetNetworkSettings().model_dump() == FleetNetworkSettings(room=False).model_dump()
    assert "room" not in FleetNetworkSettings().model_dump()
