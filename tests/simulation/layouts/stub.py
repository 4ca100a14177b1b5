"""A step of whole seconds: stages whose passes, transfers and gradients take what a test says."""

from dataclasses import dataclass

from meshwright.costs.work.operations import Message
from meshwright.plans.partition import Layout
from meshwright.simulation.layouts.pass_segments import Segments, Template


@dataclass(frozen=True, eq=False)
class StubStep:
    """Every chunk has ``num_blocks`` blocks; a message of ``b`` bytes takes ``latency_s + b`` seconds.

    ``items`` follow each block's kernels, in both directions.
    """

    layout: Layout
    forward_s: float = 1.0
    backward_s: float = 2.0
    num_blocks: int = 1
    send_bytes: float = 0.0
    gradient_bytes: float = 0.0
    parameter_bytes: float = 0.0
    update_s: float = 0.0
    latency_s: float = 0.0
    items: tuple[Message, ...] = ()

    def on(self, devices):
        return self

    def template(self, chunk, kind, *, cut) -> Template:
        made = Segments(f"chunk {chunk}", lambda message: True, cut)
        for number in range(self.num_blocks) if kind == 0 else reversed(range(self.num_blocks)):
            made.begin()
            made.run(f"block {chunk}.{number}", (self.forward_s, self.backward_s)[kind] / self.num_blocks)
            made.items(f"block {chunk}.{number}", self.items, lambda item: 0.0)
            made.end(f"block {chunk}.{number}", 1.0)
        return made.template()

    def rank_seconds(self, chunk, kind, *, cut):
        return None

    def rank_optimizer_s(self, stage):
        return None

    def boundary(self, chunk, kind):
        return (Message("activations", "send_recv", "pp", self.send_bytes),) if self.send_bytes else ()

    def crossing(self, chunk, kind):
        return None

    def at(self, step):
        return self

    def sync_at(self, stage, step):
        return self.sync(stage)

    def codec_s(self, stage):
        return 0.0, 0.0

    def sync(self, stage):
        return (Message("gradients", "all_reduce", "dp_cp", self.gradient_bytes),) if self.gradient_bytes else ()

    def gather(self, stage):
        return (Message("parameters", "all_gather", "dp_cp", self.parameter_bytes),) if self.parameter_bytes else ()

    def optimizer_s(self, stage):
        return self.update_s

    def message_s(self, message, group):
        return self.latency_s + message.payload_bytes

    def held_bytes(self, stage):
        return 100.0

    def kept_bytes(self, chunk):
        return 10.0


def layout(**changes):
    """One micro-batch of one sample on each replica unless changed."""
    options = {"micro_batch": 1, "global_batch": changes.get("dp", 1) * changes.pop("num_micro_batches", 1)}
    return Layout(**(options | changes))
