"""Accumulating Adam as an optimizer of PyTorch, for the snippet of gossip: its source as text.

Source:
    Wang et al., "From promise to practice: realizing high-performance decentralized training", 2024, arXiv 2410.11998.
"""

from __future__ import annotations

ACCUMULATING_ADAM = '''

class AccumAdam(torch.optim.Optimizer):
    """Adam whose moments take in the mean gradient of every accum_iter steps; in between a step adds its own gradient to them."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, accum_iter={accum_iter}):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, accum_iter=accum_iter))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            (first, second), every = group["betas"], group["accum_iter"]
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                gradient, state = weight.grad, self.state[weight]
                if not state:
                    state["step"] = 0
                    state |= {{name: torch.zeros_like(weight) for name in ("moment", "square", "summed")}}
                state["step"] += 1
                rounds = -(-state["step"] // every)
                moment = (state["moment"] + (1 - first) * gradient) / (1 - first**rounds)
                square = (state["square"] + (1 - second) * gradient**2) / (1 - second**rounds)
                weight -= group["lr"] * moment / (square.sqrt() + group["eps"])
                state["summed"] += gradient
                if state["step"] % every == 0:
                    mean = state["summed"] / every
                    state["moment"] = first * (state["moment"] + (1 - first) * mean)
                    state["square"] = second * (state["square"] + (1 - second) * mean**2)
                    state["summed"].zero_()
        return loss
'''
