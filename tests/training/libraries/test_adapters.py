"""The environments as TorchRL and Tianshou step them: the same episodes as without them."""

import numpy as np
import pytest

from meshwright.envs.job_partitioning_vector import JobPartitioningVectorEnv
from meshwright.errors import ConfigError

pytestmark = pytest.mark.library


def made(mode="Disabled"):
    return JobPartitioningVectorEnv(3, "preset:toy", autoreset_mode=mode)


def plain_rollout(num_steps):
    """First offered action but rejection of each step: masks, rewards and ends of an environment that begins anew at once."""
    envs, rows = made("SameStep"), []
    seen, _ = envs.reset(seed=5)
    for _ in range(num_steps):
        actions = last_offered(seen["action_mask"])
        seen, rewards, terminated, truncated, _ = envs.step(actions)
        rows.append((seen["job"].copy(), rewards, terminated | truncated))
    return rows


def last_offered(mask):
    mask = np.asarray(mask)
    return mask.shape[1] - 1 - (mask > 0)[:, ::-1].argmax(axis=1)


def test_torchrl_finds_nothing_to_complain_of_and_sees_the_same_episodes():
    pytest.importorskip("torchrl", reason="`bash .ci/libraries` installs it")
    import torch
    from torchrl.envs.utils import check_env_specs, step_mdp

    from meshwright.training.libraries.torchrl import TorchRLBatch

    check_env_specs(TorchRLBatch(made()))
    env = TorchRLBatch(made(), ["job"])
    env.set_seed(5)
    state = env.reset()
    # set_seed may spread seeds in its own way; begin as the plain one does.
    seen, _ = env._env.reset(seed=5)
    state["job"], state["action_mask"] = torch.from_numpy(seen["job"]), torch.from_numpy(seen["action_mask"]) > 0
    for job, rewards, over in plain_rollout(130):
        state["action"] = torch.from_numpy(last_offered(state["action_mask"]))
        stepped, state = env.step_and_maybe_reset(state)
        np.testing.assert_array_equal(stepped["next", "reward"].squeeze(1), rewards.astype(np.float32))
        np.testing.assert_array_equal(stepped["next", "done"].squeeze(1), over)
        np.testing.assert_array_equal(state["job"], job)
    assert step_mdp is not None
    with pytest.raises(ConfigError, match="autoreset_mode: must be Disabled"):
        TorchRLBatch(made("NextStep"))


def test_tianshou_sees_the_same_episodes():
    pytest.importorskip("tianshou", reason="`bash .ci/libraries` installs it")
    from meshwright.training.libraries.tianshou import TianshouBatch

    env = TianshouBatch(made(), ["job", "action_mask"])
    env.seed(5)
    seen, infos = env.reset()
    assert [info["env_id"] for info in infos] == [0, 1, 2]
    assert env.action_space == [made().single_action_space] * 3
    for job, rewards, over in plain_rollout(130):
        seen, paid, terminated, truncated, _ = env.step(last_offered(seen.action_mask))
        np.testing.assert_array_equal(paid, rewards)
        np.testing.assert_array_equal(terminated | truncated, over)
        if over.any():
            again, _ = env.reset(np.flatnonzero(over))
            seen[np.flatnonzero(over)] = again
        np.testing.assert_array_equal(seen.job, job)
    with pytest.raises(ConfigError, match="all are stepped at once"):
        env.step(np.zeros(2, np.int64), [0, 1])
    with pytest.raises(ConfigError, match="autoreset_mode: must be Disabled"):
        TianshouBatch(made("SameStep"))
