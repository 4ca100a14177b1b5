"""Hand-made plans whose ranks have coordinates, on hosts and in an order of the test's choice."""

from meshwright.plans import legality
from meshwright.plans.document import PlacementPlan


def plan_of(layout, order=None, num_hosts=2, host_of=None, shift=0, stages=(), keep_layout=True, **changed):
    """A hand-made plan: rank r has the coordinates of the layout's rank ``order[r]``; hosts hold runs of the layout's ranks."""
    world = layout.world
    order = list(range(world)) if order is None else order
    per_host = world // num_hosts
    ranks = []
    for rank, own in enumerate(order):
        # hosts are named against the alphabet, devices count down
        host = f"gpu-{9 - own // per_host:02d}" if host_of is None else host_of(rank)
        local = (per_host - 1 - own % per_host + shift) if host_of is None else rank
        coordinates = layout.coordinates(own).model_dump() | changed.get(f"rank{rank}", {})
        ranks.append({"rank": rank, "host": host, "local_rank": local, "device": local, "coordinates": coordinates})
    data = {"schema_version": 1, "job": {"name": "gpt"}, "ranks": ranks, "stages": list(stages)}
    if keep_layout:
        data["partition"] = {"kind": "layout", "layout": layout.model_dump()}
    plan = PlacementPlan.model_validate(data)
    legality.check(plan)
    return plan


def stage(number, chunk, *ops, ranks=(0,)):
    return {"stage": number, "chunk": chunk, "ranks": list(ranks), "num_ops": len(ops), "ops": list(ops)}


def layer(number):
    return [f"layer{number}.attention", f"layer{number}.mlp"]
