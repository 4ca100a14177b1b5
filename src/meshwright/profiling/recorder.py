"""Records the calls of PyTorch that a model makes, and makes a job graph of them.

Tensors are known by their storage, so that views of a tensor are that tensor. A call that launches nothing is no op. Neither is
one that no parameter and no number of the input reaches (positions, masks, the shifting of labels): it is counted and left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from ..errors import TraceError
from ..jobs.graph import JobGraph
from .op_costs import OpCost, cost_of, name_of, num_bytes, tensors_of


@dataclass(frozen=True)
class RecordedOp:
    """One op of the model.

    Attributes:
        name: its module's path and its kind, unique.
        kind: as `op_costs.name_of` says.
        func, args, kwargs: the call; its tensors hold no data.
        inputs: numbers of the ops whose output it reads.
        cost: see `OpCost`.
        output_bytes: of what it returns.
        parameter_bytes: of the parameters that it reads first.
        input_shapes, output_shapes: of its tensors.
    """

    name: str
    kind: str
    func: Callable[..., Any]
    args: Any
    kwargs: Any
    inputs: tuple[int, ...]
    cost: OpCost
    output_bytes: float
    parameter_bytes: float
    input_shapes: tuple[tuple[int, ...], ...]
    output_shapes: tuple[tuple[int, ...], ...]


@dataclass
class Recorder:
    """Records the calls of a model.

    Attributes:
        module: the model.
        ops: in the order in which they ran.
        num_left_out: calls that prepare data, see above.
    """

    module: torch.nn.Module
    ops: list[RecordedOp] = field(default_factory=list)
    num_left_out: int = 0
    _producer: dict[int, int] = field(default_factory=dict)
    _reached: set[int] = field(default_factory=set)
    _unread: dict[int, float] = field(default_factory=dict)
    _alive: list[Any] = field(default_factory=list)
    _names: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for parameter in self.module.parameters():  # each once, whatever it is tied to
            key = _key(parameter)
            self._unread[key] = self._unread.get(key, 0.0) + num_bytes(parameter)
            self._reached.add(key)

    @property
    def unread_bytes(self) -> float:
        """Bytes of parameters that no op has read."""
        return sum(self._unread.values())

    def note_inputs(self, inputs: Any) -> None:
        """Note the inputs of the model; numbers in them are what it computes on."""
        self._reached.update(_key(tensor) for tensor in tensors_of(inputs) if tensor.is_floating_point())

    def call(self, path: str, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Call a function, and keep what it did where it is an op.

        Args:
            path: of the module that calls it.
            func, args, kwargs: the call.
        """
        read = tensors_of((args, kwargs))
        before = {id(tensor): tensor._version for tensor in read}  # nothing public counts changes in place
        out = func(*args, **kwargs)
        made = tensors_of(out)
        if not made:
            return out
        self._alive += [*read, *made]
        keys = [_key(tensor) for tensor in read]
        is_reached = any(key in self._reached for key in keys)
        changed = [tensor for tensor in read if tensor._version != before[id(tensor)]]
        if not changed and all(_key(tensor) in keys for tensor in made) and not _copies(func):
            return out
        cost = cost_of(func, args, kwargs)
        if not cost.is_work:
            return out
        if not is_reached:
            self.num_left_out += 1
            return out
        sources = tuple(dict.fromkeys(self._producer[key] for key in keys if key in self._producer))
        parameters = sum(self._unread.pop(key, 0.0) for key in dict.fromkeys(keys))
        kind = name_of(func)
        name = f"{path}.{kind}" if path else kind
        self._names[name] += 1
        number = self._names[name]
        self.ops.append(
            RecordedOp(
                name if number == 1 else f"{name}:{number}",
                kind,
                func,
                args,
                kwargs,
                sources,
                cost,
                float(sum({_key(tensor): num_bytes(tensor) for tensor in made}.values())),
                parameters,
                tuple(tuple(tensor.shape) for tensor in read),
                tuple(tuple(tensor.shape) for tensor in made),
            )
        )
        for tensor in (*made, *changed):
            self._producer[_key(tensor)] = len(self.ops) - 1
            self._reached.add(_key(tensor))
        return out

    def graph(self, name: str, samples: int | None) -> JobGraph:
        """Return the untimed job graph of what was recorded, see `graph_of`."""
        widths = {one.element_size() for one in self.module.parameters() if one.is_floating_point()}
        return graph_of(self.ops, name, samples, max(widths, default=2))


def graph_of(ops: Sequence[RecordedOp], name: str, samples: int | None, element_bytes: int) -> JobGraph:
    """Return the untimed job graph of ops that compute in numbers of a size.

    Raises:
        TraceError: there is none.
    """
    if not ops:
        raise TraceError("computes nothing with its parameters or its input", value=name)
    zeros = np.zeros(len(ops))
    return JobGraph(
        name=name,
        op_names=tuple(op.name for op in ops),
        op_kinds=tuple(op.kind for op in ops),
        forward_s=zeros,
        backward_s=zeros,
        forward_flops=np.array([op.cost.forward_flops for op in ops]),
        backward_flops=np.array([op.cost.backward_flops for op in ops]),
        activation_bytes=np.array([op.output_bytes for op in ops]),
        parameter_bytes=np.array([op.parameter_bytes for op in ops]),
        workspace_bytes=np.array([op.cost.workspace_bytes for op in ops]),
        edges=np.array([(source, number) for number, op in enumerate(ops) for source in op.inputs], np.int64),
        samples_per_step=samples,
        element_bytes=element_bytes,
    )


class Watch(TorchFunctionMode):
    """While it is entered, a recorder keeps every call of PyTorch's functions, under the module that runs."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder
        self._path = [""]
        self._hooks: list[Any] = []

    def __enter__(self) -> Any:
        for path, module in self.recorder.module.named_modules():
            self._hooks.append(module.register_forward_pre_hook(lambda *_, path=path: self._path.append(path)))
            self._hooks.append(module.register_forward_hook(lambda *_: self._leave()))
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *details: Any) -> None:
        for hook in self._hooks:
            hook.remove()
        super().__exit__(*details)  # type: ignore[no-untyped-call]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.recorder.call(self._path[-1], func, args, kwargs or {})

    def _leave(self) -> None:
        self._path.pop()


def _key(tensor: Any) -> int:
    return int(tensor.untyped_storage()._cdata)  # on the meta device the public data_ptr is 0 for all


def _copies(func: Any) -> bool:
    """Return whether a function may change what it is given."""
    return name_of(func).startswith("setitem") or str(getattr(func, "__name__", "")).endswith("_")
