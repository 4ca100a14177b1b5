"""The network of a fleet's policy: messages over hosts, trunks, running jobs and jobs on offer; heads that score actions.

Nodes are hosts, trunks (above a leaf switch or a site), running jobs and jobs on offer. In each round nodes receive messages. A
running job receives those of its hosts and the trunks that it loads, a host those of its jobs and the trunks above. A trunk
receives those of the hosts below it and of the jobs that cross it; all nodes receive the pooled whole. Job types are described
by their menu, as a set of entries, so that a network plays types and clusters that it has not seen. An action is scored from the
job on offer, the entry, the placement and the candidate's own features. A host that may be picked is scored from the host and
the job that is being placed.

Without messages (``messages: 0``) every node has only its own features and the pooled whole, at the same width and depth. That
ablation shows the gain by the graph.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from ...envs.fleet.features import (
    CANDIDATE,
    CANDIDATE_STRATEGY,
    CONTEXT,
    ENTRY,
    HOST,
    LEFT,
    OFFER,
    PICKED_ENTRY,
    RUNNING,
    STRATEGY,
    TRUNK,
    CandidateColumn,
    ContextColumn,
    EntryColumn,
    HostColumn,
    OfferColumn,
    RunningColumn,
    trunk_members,
)
from ...envs.fleet.fleet import Fleet
from ...envs.fleet.observation import observer
from ...planners.fleet.linear_prices import MOST_RATIO
from ...simulation.fleet.state import PlacementRule
from ..network import init_small_, init_zero_
from ..settings import FleetNetworkSettings
from .linear_head import LinearHead
from .prices import PriceHead, of_share, price_units

IMPOSSIBLE = -1e9
ROOM = 4
"""Figures of `room`."""

WANTED = PICKED_ENTRY + EntryColumn.HOSTS_WANTED
"""Column of the context."""
PLURAL = {"running": "running", "host": "hosts", "trunk": "trunks"}
HEARD = tuple((source, target) for target in PLURAL for source in ("host", "running", "trunk") if source != target)
"""Which nodes hear which, by source and target."""
TO_COME = 10
"""Figures of the jobs that arrive soon, which only the critic reads, and only in training."""


class MenuTensors(nn.Module):
    """A fleet's menu as tensors that a network reads; no parameters.

    Attributes:
        entry: features of each entry and whether it is there, by type, ``(t, j, f)`` and ``(t, j)``.
        choice: one-hot rule, of blocks none, and share of the device type, ``(p, 5)``.
        member: which trunks are above each host, ``(m, r)``.
        share, ratio: of each entry, share of the cluster's devices, and seconds of a step at best over those of the type's
            fastest entry, ``(t, j)``.
        units: of prices.
        log_waste: logarithm of the device-seconds of each entry over the least of the type's, ``(t, j)``.
        graphs: job graphs of the types; None where the network does not read them.
    """

    entry: Tensor
    is_there: Tensor
    choice: Tensor
    member: Tensor
    share: Tensor
    ratio: Tensor
    log_waste: Tensor

    def __init__(self, fleet: Fleet, settings: FleetNetworkSettings) -> None:
        super().__init__()
        problem = fleet.problem
        self.units = price_units(fleet, relative=settings.relative)
        features, first = observer(fleet).entry, problem.menu.first_entry
        entry = np.zeros((fleet.num_types, problem.entries_per_job, features.shape[1]), np.float32)
        present = np.zeros(entry.shape[:2], np.float32)
        share, ratio, log_waste = np.ones_like(present), np.full_like(present, MOST_RATIO), np.zeros_like(present)
        least = problem.menu.step_s.min(axis=(1, 2, 3))
        for kind in range(fleet.num_types):
            count = first[kind + 1] - first[kind]
            of_kind = slice(first[kind], first[kind + 1])
            share[kind, :count] = problem.menu.degree[of_kind] / problem.num_devices
            ratio[kind, :count] = np.minimum(least[of_kind] / least[of_kind].min(), MOST_RATIO)
            log_waste[kind, :count] = np.log(least[of_kind] * problem.menu.degree[of_kind] / problem.menu.work_device_s[kind])
            entry[kind, :count] = features[first[kind] : first[kind + 1]]
            present[kind, :count] = 1.0
        kinds = max(1, len(fleet.cluster.device_types) - 1)
        rules = np.eye(len(PlacementRule), PlacementRule.BLOCKS)[problem.rule]
        choice = np.concatenate([rules, problem.rule_type[:, None] / kinds], axis=1)
        self.register_buffer("entry", torch.as_tensor(entry), persistent=False)
        self.register_buffer("is_there", torch.as_tensor(present), persistent=False)
        self.register_buffer("choice", torch.as_tensor(choice, dtype=torch.float32), persistent=False)
        self.register_buffer("member", torch.as_tensor(trunk_members(problem.network).T.copy()), persistent=False)
        self.register_buffer("share", torch.as_tensor(share), persistent=False)
        self.register_buffer("ratio", torch.as_tensor(ratio), persistent=False)
        self.register_buffer("log_waste", torch.as_tensor(log_waste), persistent=False)
        self.num_devices = problem.num_devices
        self.describes_candidates = fleet.settings.candidate_features != "none"
        self.num_pauses = problem.visible_running
        self.num_actions = problem.num_actions
        self.first_pause, self.first_refusal = problem.first_pause, problem.first_refusal
        self.may_refuse = problem.may_refuse
        self.num_waiting = problem.visible_waiting


class FleetActor(nn.Module):
    """The policy and value network of a fleet.

    Args:
        settings: widths and rounds.
        fleet: whose menu and cluster it plays; `use` changes them.
        refuses: whether it scores refusals; None where the fleet allows them. One that does not refuses nobody.
    """

    def __init__(self, settings: FleetNetworkSettings, fleet: Fleet, *, refuses: bool | None = None) -> None:
        super().__init__()
        self.settings = settings
        self.menu = MenuTensors(fleet, self.settings)
        width = settings.width
        times = 2 if settings.reads_logs else 1
        more, of_candidate = (len(STRATEGY), len(CANDIDATE_STRATEGY)) if fleet.has_strategies else (0, 0)
        of_entry = (2 if settings.logs else 1) * (len(ENTRY) + more)
        self.type_of = nn.Sequential(nn.Linear(of_entry, width), nn.ReLU(), nn.Linear(width, width))
        self.enter = nn.ModuleDict(
            {
                "hosts": nn.Linear(len(HOST), width),
                "trunks": nn.Linear(len(TRUNK) + (ROOM if settings.room else 0), width),
                "running": nn.Linear(times * len(RUNNING) + width, width),
                "offers": nn.Linear(times * len(OFFER) + width, width),
                "context": nn.Linear(times * (len(CONTEXT) + more + bool(more) * len(LEFT)), width),
            }
        )
        self.rounds = nn.ModuleList(_Round(width) for _ in range(settings.rounds))
        self.value = nn.Sequential(nn.Linear(5 * width + TO_COME, width), nn.ReLU(), nn.Linear(width, 1))
        self.pass_score = nn.Sequential(nn.Linear(5 * width, width), nn.ReLU(), nn.Linear(width, 1))
        self.pause_score = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1))
        has_refusals = fleet.problem.may_refuse if refuses is None else refuses
        self.refusal_score = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 1)) if has_refusals else None
        self.host_score = nn.Sequential(nn.Linear(3 * width, width), nn.ReLU(), nn.Linear(width, 1))
        self.of_offer = nn.Linear(width, width)
        self.of_whole = nn.Linear(5 * width, width, bias=False)
        self.of_entry = nn.Linear(of_entry, width, bias=False)
        self.of_choice = nn.Linear(5, width, bias=False)
        self.of_candidate = nn.Linear(len(CANDIDATE) + of_candidate, width, bias=False)
        self.score = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
        self.prices = PriceHead(width, relative=settings.relative) if settings.prices else None
        self.linear = LinearHead() if settings.linear else None
        for head in (self.value, self.pass_score, self.pause_score, self.host_score, self.score, self.refusal_score):
            if head is not None:
                # Before it learns, a network with searched weights plays as these say.
                (init_zero_ if settings.prices or settings.linear else init_small_)(head[-1])

    def use(self, fleet: Fleet) -> None:
        """Play another fleet from now on."""
        self.menu = MenuTensors(fleet, self.settings).to(next(self.parameters()).device)

    def forget(self) -> None:
        """Do nothing: the network keeps nothing between calls."""

    def forward(self, seen: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the scores ``(b, a)``, impossible actions at `IMPOSSIBLE`, and values ``(b,)``."""
        nodes, whole = self._encode(seen)
        scores = self._scores(seen, nodes, whole)
        return scores.masked_fill(seen["action_mask"] == 0, IMPOSSIBLE), self._value(seen, whole)

    def values(self, seen: Mapping[str, Tensor]) -> Tensor:
        """Return the values of states, ``(b,)``."""
        return self._value(seen, self._encode(seen)[1])

    def _value(self, seen: Mapping[str, Tensor], whole: Tensor) -> Tensor:
        to_come = seen["to_come"] if "to_come" in seen else whole.new_zeros(len(whole), TO_COME)
        result: Tensor = self.value(torch.cat([whole, to_come], dim=1)).squeeze(1)
        return result

    def _encode(self, seen: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        menu = self.menu
        types = self.type_of(self._entries()) * menu.is_there.unsqueeze(2)
        types = types.sum(dim=1) / menu.is_there.sum(dim=1, keepdim=True)
        enter = self.enter
        nodes = {
            "hosts": enter["hosts"](seen["hosts"]),
            "trunks": enter["trunks"](self._trunks(seen)),
            "running": enter["running"](torch.cat([self._read(seen["running"]), types[seen["running_type"].long()]], dim=2)),
            "offers": enter["offers"](torch.cat([self._read(seen["offers"]), types[seen["offer_type"].long()]], dim=2)),
        }
        context = enter["context"](self._read(seen["context"]))
        present = {
            "running": seen["running"][:, :, RunningColumn.IS_THERE, None],
            "offers": seen["offers"][:, :, OfferColumn.IS_THERE, None],
        }
        edges = seen["host_of"], seen["trunk_of"]
        for one in self.rounds:
            nodes, context = one(nodes, context, present, edges if self.settings.messages else None, menu.member)
        return nodes, torch.cat([context, *_pooled(nodes, present)], dim=1)

    def _trunks(self, seen: Mapping[str, Tensor]) -> Tensor:
        """Return the features of trunks, with those of `room` where the settings say so."""
        trunks = seen["trunks"]
        return torch.cat([trunks, room(seen, self.menu.member)], dim=2) if self.settings.room else trunks

    def _read(self, features: Tensor) -> Tensor:
        """Return the features; where logarithms are read, together with that of ``x`` in each that is ``x / (1 + x)``."""
        if not self.settings.reads_logs:
            return features
        return torch.cat([features, of_share(features).clamp(1e-3, 1e3).log() / 4.0], dim=-1)

    def _entries(self) -> Tensor:
        """Return the features of the menu's entries, which are shares; where logarithms are read, together with theirs."""
        entry = self.menu.entry
        return torch.cat([entry, entry.clamp(min=1e-3).log() / 4.0], dim=-1) if self.settings.logs else entry

    def _scores(self, seen: Mapping[str, Tensor], nodes: dict[str, Tensor], whole: Tensor) -> Tensor:
        menu, offers = self.menu, nodes["offers"]
        b, v, _ = offers.shape
        j, p = menu.entry.shape[1], len(menu.choice)
        scores = torch.full((b, menu.num_actions), IMPOSSIBLE, device=whole.device)
        scores[:, 0] = self.pass_score(whole).squeeze(1)
        building = seen["context"][:, ContextColumn.PICKING] > 0
        # Only what is possible is scored: of hundreds of actions that is mostly a few.
        row, action = torch.nonzero(seen["action_mask"][:, 1 : 1 + v * j * p] * (~building).unsqueeze(1), as_tuple=True)
        offer, entry, choice = action // (j * p), action // p % j, action % p
        kind = seen["offer_type"].long()[row, offer]
        mixed = self.of_offer(offers)[row, offer] + self.of_whole(whole)[row]
        mixed = mixed + self.of_entry(self._entries())[kind, entry] + self.of_choice(menu.choice)[choice]
        if menu.describes_candidates:
            mixed = mixed + self.of_candidate(seen["candidates"][row, action + 1])
        starts: Tensor = self.score(mixed).squeeze(1)
        pauses: Tensor | float = 0.0
        if self.prices is not None:
            ratio = menu.ratio[kind, entry]
            if menu.describes_candidates:
                ratio = 1.0 / seen["candidates"][row, action + 1, CandidateColumn.STEP].clamp(min=1.0 / MOST_RATIO)
            priced, pauses = self.prices(seen, offers, self.of_whole(whole), menu, (row, offer, entry), ratio, choice)
            starts = starts + priced
        refusals: Tensor | float = 0.0
        if self.linear is not None:
            more, refusals = self.linear(seen, menu, (row, offer, entry), menu.ratio[kind, entry])
            starts = starts + more
        scores[row, action + 1] = starts
        if menu.num_pauses:
            running = offers[:, menu.num_waiting :]
            scores[:, menu.first_pause : menu.first_refusal] = (
                self.pause_score(self._with_whole(running, whole)).squeeze(2) + pauses
            )
        if menu.may_refuse and self.refusal_score is not None:
            waiting = offers[:, : menu.num_waiting]
            refusals = refusals + self.refusal_score(self._with_whole(waiting, whole)).squeeze(2)
            scores[:, menu.first_refusal : menu.first_refusal + menu.num_waiting] = refusals
        if bool(building.any()):
            placed = (offers * seen["offers"][:, :, OfferColumn.IS_BEING_PLACED, None]).sum(dim=1)
            both = torch.cat([placed, self.of_whole(whole)], dim=1).unsqueeze(1)
            hosts = nodes["hosts"]
            picks = self.host_score(torch.cat([hosts, both.expand(b, hosts.shape[1], both.shape[2])], dim=2)).squeeze(2)
            picks = nn.functional.pad(picks, (0, scores.shape[1] - picks.shape[1]), value=IMPOSSIBLE)
            scores = torch.where(building.unsqueeze(1), picks, scores)
        return scores

    def _with_whole(self, jobs: Tensor, whole: Tensor) -> Tensor:
        """Return the jobs on offer with the whole, ``(b, v, 2 w)``."""
        return torch.cat([jobs, self.of_whole(whole).unsqueeze(1).expand_as(jobs)], dim=2)


def room(seen: Mapping[str, Tensor], member: Tensor) -> Tensor:
    """Return how each trunk suits the job whose hosts are picked, ``(b, r, 4)``; zeros where none are.

    The room of a trunk is the free devices of hosts that may be picked. The four figures are the room that the job would leave,
    as share of the cluster; the same in hosts, cut at four. Then whether the job fits, and the share of its hosts so far that
    are here.
    """
    hosts, context = seen["hosts"], seen["context"]
    count = hosts.shape[1]
    free = hosts[:, :, HostColumn.FREE] * hosts[:, :, HostColumn.MAY_BE_PICKED] / count
    num_requested = context[:, WANTED] * context[:, ContextColumn.STILL_TO_PICK]
    left = free @ member - num_requested.unsqueeze(1)
    picked = hosts[:, :, HostColumn.IS_PICKED]
    here = picked @ member / picked.sum(dim=1, keepdim=True).clamp(min=1.0)
    fits = (left > -0.5 / count).to(left.dtype)
    features = torch.stack([left, (left * count / 4.0).clamp(-1.0, 1.0), fits, here], dim=2)
    return features * (context[:, ContextColumn.PICKING] > 0).to(features.dtype)[:, None, None]


class _Round(nn.Module):
    """One round of messages; without edges, of each node to itself and of the whole to all."""

    def __init__(self, width: int) -> None:
        super().__init__()
        names = ("hosts", "trunks", "running", "offers")
        self.own = nn.ModuleDict({name: nn.Linear(width, width) for name in names})
        self.whole = nn.Linear(5 * width, 4 * width, bias=False)
        self.context = nn.Linear(5 * width, width)
        self.heard = nn.ModuleDict({f"{source}>{target}": nn.Linear(width, width, bias=False) for source, target in HEARD})

    def forward(
        self,
        nodes: dict[str, Tensor],
        context: Tensor,
        present: dict[str, Tensor],
        edges: tuple[Tensor, Tensor] | None,
        member: Tensor,
    ) -> tuple[dict[str, Tensor], Tensor]:
        whole = torch.cat([context, *_pooled(nodes, present)], dim=1)
        shares = self.whole(whole).unsqueeze(1).chunk(4, dim=2)
        new = {name: self.own[name](nodes[name]) + share for name, share in zip(nodes, shares, strict=True)}
        if edges is None:
            sent = {(source, target): nodes[PLURAL[target]] for source, target in HEARD}
        else:
            (host_of, trunk_of), runs = edges, nodes["running"] * present["running"]
            sent = {
                ("host", "running"): _mean(host_of, nodes["hosts"]),
                ("trunk", "running"): _mean(trunk_of, nodes["trunks"]),
                ("running", "host"): host_of.transpose(1, 2) @ runs,
                ("trunk", "host"): member @ nodes["trunks"],
                ("host", "trunk"): member.T @ nodes["hosts"] / member.sum(dim=0).unsqueeze(1),
                ("running", "trunk"): trunk_of.transpose(1, 2) @ runs,
            }
        for (source, target), values in sent.items():
            new[PLURAL[target]] = new[PLURAL[target]] + self.heard[f"{source}>{target}"](values)
        return {name: nodes[name] + torch.relu(value) for name, value in new.items()}, context + torch.relu(self.context(whole))


def _mean(edge: Tensor, nodes: Tensor) -> Tensor:
    """Return the mean of the nodes at the other ends, weighted by the edges."""
    return (edge @ nodes) / edge.sum(dim=2, keepdim=True).clamp(min=1e-6)


def _pooled(nodes: dict[str, Tensor], present: dict[str, Tensor]) -> list[Tensor]:
    result = []
    for name, values in nodes.items():
        if name in present:
            result.append((values * present[name]).sum(dim=1) / present[name].sum(dim=1).clamp(min=1.0))
        else:
            result.append(values.mean(dim=1))
    return result
