"""A network of your own on the job graph and the cluster graph, with plain PyTorch Geometric: how long will a step take?

The same network is trained twice, with messages between nodes and without, to predict how many times faster HEFT's schedule of a
job on some devices is than the fastest device alone.

    python examples/own_network.py --instances 600 --epochs 30
"""

from __future__ import annotations

import argparse
import json

import gymnasium
import numpy as np
import torch
from torch import nn
from torch_geometric.data import HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.nn import HeteroConv, SAGEConv, global_add_pool, global_mean_pool
from torch_geometric.transforms import ToUndirected

import meshwright  # noqa: F401 - its environments become known
from meshwright.planners.operators.rules.heft import heft_devices
from meshwright.simulation.operators.instance import OperatorInstance
from meshwright.simulation.operators.placement import placed

KINDS = [
    ("op", "feeds", "op"),
    ("op", "rev_feeds", "op"),
    ("device", "link", "device"),
    ("op", "runs_on", "device"),
    ("device", "rev_runs_on", "op"),
]


class StepTimeNetwork(nn.Module):
    """Rounds of messages along all edges of both graphs, then a sum over ops and a mean over devices."""

    def __init__(self, sample: HeteroData, with_messages: bool, width: int = 32, rounds: int = 6) -> None:
        super().__init__()
        self.enter = nn.ModuleDict({kind: nn.Linear(sample[kind].x.shape[1], width) for kind in ("op", "device")})
        self.rounds = nn.ModuleList(
            HeteroConv({kind: SAGEConv((width, width), width, aggr="max") for kind in KINDS}) for _ in range(rounds)
        )
        self.alone = nn.ModuleList(nn.ModuleDict({k: nn.Linear(width, width) for k in ("op", "device")}) for _ in range(rounds))
        self.leave = nn.Sequential(nn.Linear(3 * width, width), nn.ReLU(), nn.Linear(width, 1))
        self.with_messages = with_messages

    def forward(self, data: HeteroData) -> torch.Tensor:
        """One number for each graph."""
        x = {kind: layer(data[kind].x).relu() for kind, layer in self.enter.items()}
        for talk, alone in zip(self.rounds, self.alone, strict=True):
            heard = talk(x, data.edge_index_dict) if self.with_messages else {kind: alone[kind](x[kind]) for kind in x}
            x = {kind: x[kind] + heard[kind].relu() for kind in x}
        ops, devices = x["op"], x["device"]
        of_op, of_device = data["op"].batch, data["device"].batch
        pooled = [global_mean_pool(ops, of_op), global_add_pool(ops, of_op) / 30, global_mean_pool(devices, of_device)]
        return self.leave(torch.cat(pooled, dim=1)).squeeze(1)


def examples(split: str, number: int) -> list[HeteroData]:
    """Graphs of the environment's instances, each with the logarithm of the speed-up as ``y``."""
    env = gymnasium.make("meshwright/OperatorPlacement-v0", split=split).unwrapped
    found = []
    for seed in range(number):
        env.reset(seed=seed)
        data = graph_of(env.instance)
        plan = placed(env.instance, heft_devices(env.instance), "latency", "heft")
        data.y = torch.tensor([env.instance.times_s.sum(axis=0).min() / plan.value_s]).log().float()
        found.append(data)
    return found


def graph_of(instance: OperatorInstance) -> HeteroData:
    """The job graph, the cluster graph and which op may run where; all times are told in mean times of an op."""
    mean_s = instance.times_s.mean(axis=1)
    apart = ~np.eye(instance.num_devices, dtype=bool)
    link_s = instance.latency_s + instance.edge_bytes.mean() / np.where(apart, instance.bandwidth_bytes_per_s, np.inf)
    sent = np.bincount(instance.edges[:, 0], instance.edge_bytes, instance.num_ops) / instance.edge_bytes.mean()
    speed = instance.times_s.mean(axis=0) / mean_s.mean()
    data = HeteroData()
    data["op"].x = torch.tensor(np.stack([np.log(mean_s / mean_s.mean()), np.log1p(sent)], axis=1)).float()
    links = np.log(link_s.sum(axis=1) / (instance.num_devices - 1) / mean_s.mean())
    data["device"].x = torch.tensor(np.stack([np.log(speed), links], axis=1)).float()
    data["op", "feeds", "op"].edge_index = torch.tensor(instance.edges.T.copy())
    data["device", "link", "device"].edge_index = torch.tensor(np.stack(np.nonzero(apart)))
    data["op", "runs_on", "device"].edge_index = torch.tensor(np.stack(np.nonzero(instance.can_run[instance.group])))
    return ToUndirected(merge=False)(data)


def main() -> None:
    """Train both and print their mean absolute error on instances that neither saw, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=600)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    training, test = examples("training", chosen.instances), examples("test", 200)
    mean = torch.cat([data.y for data in training]).mean()
    errors = {"mean of all": float(torch.cat([(data.y - mean).abs() for data in test]).mean())}
    for name, with_messages in (("without messages", False), ("with messages", True)):
        torch.manual_seed(chosen.seed)
        network = StepTimeNetwork(training[0], with_messages)
        optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, chosen.epochs)
        for _ in range(chosen.epochs):
            for batch in DataLoader(training, batch_size=32, shuffle=True):
                optimizer.zero_grad()
                nn.functional.huber_loss(network(batch), batch.y, delta=0.1).backward()
                nn.utils.clip_grad_norm_(network.parameters(), 1.0)
                optimizer.step()
            schedule.step()
        network.eval()
        with torch.no_grad():
            told = [(network(batch) - batch.y).abs() for batch in DataLoader(test, batch_size=200)]
        errors[name] = float(torch.cat(told).mean())
    print(json.dumps({name: round(error, 4) for name, error in errors.items()}))


if __name__ == "__main__":
    main()
