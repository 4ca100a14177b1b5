"""A program: one process of a pipeline that is cut by mesh.py's ``split_policy`` and trains a model with branches.

Arguments: the folder of mesh.py, the file of the rendezvous, the rank. It ends with 0 if the gradients of its stage are those of
the whole model.
"""

import copy
import sys

import torch
import torch.distributed as dist


class Branches(torch.nn.Module):
    """``d(b(a(x)) + c(a(x)) + a(x))``, called in the order a, b, c, d; the ops are named so."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d = (torch.nn.Linear(4, 4) for _ in range(4))

    def forward(self, x):
        first = self.a(x).t().contiguous().t()  # strides that are not sent as they are
        return self.d(self.b(first) + self.c(first) + first)


def main(folder, rendezvous, rank):
    from torch.distributed.pipelining import ScheduleGPipe, pipeline

    sys.path.insert(0, folder)
    import mesh

    last = len(mesh.STAGES) - 1
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=last + 1)
    torch.manual_seed(0)
    model, x, target = Branches(), torch.randn(8, 4), torch.randn(8, 4)
    whole = copy.deepcopy(model)
    pipe = pipeline(model, mb_args=(x[:2],), split_policy=mesh.split_policy())
    stage = pipe.build_stage(mesh.stage(rank), torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 4, loss_fn=torch.nn.functional.mse_loss)
    given = {"target": target} if rank == last else {}
    schedule.step(*([x] if rank == 0 else []), **given)
    torch.nn.functional.mse_loss(whole(x), target).backward()
    held = dict(stage.submod.named_parameters())
    assert {name.split(".")[0] for name in held} == set(mesh.STAGE_OPS[rank])
    for name, parameter in held.items():
        torch.testing.assert_close(parameter.grad, whole.get_parameter(name).grad)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
