"""Which picks of hosts count as right, worked by hand."""

import numpy as np
import torch

from meshwright.envs.fleet.features import CONTEXT, HOST, TRUNK
from meshwright.training.fleet.imitation import HOSTS_ARE_PICKED, right_actions

# Hosts 0 to 3 below two leaves of two, hosts 4 and 5 below a third; the first two leaves are of one site.
LEAF = [0, 0, 1, 1, 2, 2]
SITE = [3, 3, 3, 3, 4, 4]
MEMBER = torch.tensor([[float(trunk in (LEAF[host], SITE[host])) for trunk in range(5)] for host in range(6)])


def seen(free, picked=(), *, picks=True, more_actions=2):
    """One observation: the free share of each host, what is picked already."""
    hosts = np.zeros((1, 6, len(HOST)), np.float32)
    hosts[0, :, HOST.index("free share")] = free
    hosts[0, list(picked), HOST.index("is picked")] = 1.0
    trunks = np.zeros((1, 5, len(TRUNK)), np.float32)
    for trunk in range(5):
        below = [host for host in range(6) if trunk in (LEAF[host], SITE[host])]
        trunks[0, trunk, TRUNK.index("free share")] = np.mean([free[host] for host in below])
        trunks[0, trunk, TRUNK.index("share of all hosts")] = len(below) / 6
        trunks[0, trunk, TRUNK.index("is of a site")] = trunk > 2
    context = np.zeros((1, len(CONTEXT)), np.float32)
    context[0, HOSTS_ARE_PICKED] = picks
    mask = np.zeros((1, 6 + more_actions), np.int8)
    mask[0, :6] = [share > 0 and host not in picked for host, share in enumerate(free)]
    arrays = {"hosts": hosts, "trunks": trunks, "context": context, "action_mask": mask}
    return {name: torch.as_tensor(array) for name, array in arrays.items()}


def right(observation, action):
    return torch.nonzero(right_actions(observation, torch.tensor([action]), MEMBER)[0]).flatten().tolist()


def test_empty_leaves_of_one_site_are_alike_and_another_site_is_not():
    assert right(seen([1.0] * 6), 0) == [0, 1, 2, 3]
    assert right(seen([1.0] * 6), 4) == [4, 5]


def test_after_a_pick_its_leaf_is_unlike_the_other():
    assert right(seen([1.0] * 6, picked=[0]), 1) == [1]
    assert right(seen([1.0] * 6, picked=[0]), 3) == [2, 3]


def test_a_host_partly_taken_and_one_below_a_fuller_leaf_look_otherwise():
    assert right(seen([0.5, 1.0, 1.0, 1.0, 1.0, 1.0]), 0) == [0]
    assert right(seen([0.5, 1.0, 1.0, 1.0, 1.0, 1.0]), 1) == [1]
    assert right(seen([0.5, 1.0, 1.0, 0.5, 1.0, 1.0]), 1) == [1, 2]


def test_what_cannot_be_picked_is_never_right_and_other_decisions_have_one_answer():
    assert right(seen([0.0, 1.0, 0.0, 1.0, 1.0, 1.0]), 1) == [1, 3]
    assert right(seen([1.0] * 6, picks=False), 7) == [7]
    assert right(seen([1.0] * 6, picks=False), 2) == [2]
