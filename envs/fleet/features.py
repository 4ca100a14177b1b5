"""The meaning of each column of an observation of a fleet, in order."""

from __future__ import annotations

ENTRY = (
    "devices",
    "step against best",
    "device-seconds against least",
    "slowdown on hosts far apart",
    "slowdown on the slowest device type",
    "memory",
    "hosts wanted",
)
HOST = ("free share", "free wholly", "load out", "load in", "is picked", "may be picked", "device type")
TRUNK = ("free share", "wholly free hosts", "load up", "load down", "jobs across", "share of all hosts", "is of a site")
LINK = ("bandwidth of the host's card", "bandwidth of the trunk", "load out", "load in")
"""Of a host below a trunk, where links are observed; bandwidths as shares of the fastest link's."""
RUNNING = (
    "devices",
    "progress",
    "time left",
    "age",
    "slowdown",
    "restarts now",
    "hosts",
    "groups of hosts",
    "time to deadline",
    "is told",
)
OFFER = (
    "is there",
    "is running",
    "age",
    "least time left",
    "least device-seconds left",
    "devices asked for",
    "time to deadline",
    "has deadline",
    "progress",
    "devices held",
    "restart time",
    "share of waiting jobs on offer with less work",
    "share with an earlier deadline",
    "is being placed",
)
CONTEXT = (
    "free devices",
    "waiting jobs",
    "running jobs",
    "waiting jobs that are not offered",
    "jobs to come",
    "is a round",
    "hosts are being picked",
    "hosts still to pick",
    *(f"{name} of the entry whose hosts are picked" for name in ENTRY),
)
CANDIDATE = (
    "time left",
    "time left against best",
    "device-seconds against least",
    "hosts of a group",
    "part of a host",
    "time against deadline",
    "slowdown",
    "slowdown of others",
)
STRATEGY = ("exactness", "steps wanted against synchronous ones", "exposed communication")
"""Of an entry, beside `ENTRY`, where the menu has entries with names: 1 exact, 0.5 with a bound, 0 neither; ``rho / (1 + rho)``;
the share of a step on its fastest placement in which nothing is computed while something is sent."""
LEFT = ("aggregation trees left", "servers left")
"""Of the context, behind the entry whose hosts are picked, in that case: of the cluster, by `Resource`."""
CANDIDATE_STRATEGY = (
    "exactness",
    "steps wanted against synchronous ones",
    "memory",
    "exposed communication",
    "aggregation trees left afterwards",
    "servers left afterwards",
    "share of its busiest link left afterwards",
)
"""Of a candidate, beside `CANDIDATE`, in that case; exposed communication of its own placement. The last, of the link with most
load among those that the job uses, is told where the steps of all jobs are (`candidate_features: simulated`), and otherwise 0."""
