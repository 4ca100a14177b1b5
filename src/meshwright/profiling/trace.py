"""Traces a model: by ``torch.export``, or while it runs where that fails.

Both ways run on the ``meta`` device, where tensors have a shape and no data. So a model of any size is traced on any machine.
Both feed one recorder, so the graph does not depend on the way.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from typing import Any

import torch
from torch.fx import Interpreter

from ..errors import MeshwrightError, TraceError
from ..jobs.graph import JobGraph
from .op_costs import num_bytes
from .recorder import RecordedOp, Recorder, Watch

_NO_CHECKS = "TRANSFORMERS_DISABLE_TORCH_CHECK"


@dataclass(frozen=True)
class Model:
    """A model to trace.

    Attributes:
        name: of the job.
        module: on the ``meta`` device, in training mode.
        args, kwargs: its inputs, on the ``meta`` device.
        samples: of a step.
        remarks: how it was made, for people.
    """

    name: str
    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    samples: int | None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class TracedModel:
    """A model and the ops that it runs.

    Attributes:
        graph: untimed.
        ops: of the graph, with their calls and shapes.
        num_parameters: of the model, tied ones once, read or not.
        parameter_bytes: of the same.
        remarks: how it was made and traced, and what is left out, for people.
    """

    graph: JobGraph
    ops: tuple[RecordedOp, ...]
    num_parameters: int
    parameter_bytes: float
    remarks: tuple[str, ...]


_WANTS_NUMBERS = ("on meta tensors", "out of meta tensor", "data-independent implementation", "data-dependent", "DataDependent")
"""PyTorch's errors where code reads numbers of a tensor that has none."""

_WANTS_WHOLE_NUMBERS = "scalar types: Long, Int; but got"
"""PyTorch's error where an index, as of an embedding, is a floating-point number."""


def trace(model: Model) -> TracedModel:
    """Trace the forward pass of a model; what its backward pass costs follows from each op.

    Raises:
        TraceError: its forward pass fails on both ways, or computes nothing.
    """
    recorder = Recorder(model.module)
    recorder.note_inputs((model.args, model.kwargs))
    remarks = list(model.remarks)
    with quiet(), _unchecked():
        try:
            exported = torch.export.export(model.module, model.args, dict(model.kwargs), strict=False)
            runner = _ExportedRun(exported.module(), recorder)
        except Exception as error:  # whatever the code of a user raises while it is exported
            remarks.append(f"torch.export fails, so that the model was traced while it ran: {first_line(error)}")
            _watched(model, recorder)
        else:
            try:
                runner.run(*model.args, *model.kwargs.values())
            except MeshwrightError:
                raise
            except Exception as error:  # as above
                raise TraceError(f"the exported program does not run: {_why(error, model)}", value=model.name) from None
            remarks.append("traced by torch.export")
    parameters = list(model.module.parameters())
    if recorder.num_left_out:
        remarks.append(f"left out: {recorder.num_left_out} calls that only prepare data (positions, masks, labels)")
    if recorder.unread_bytes:
        remarks.append(f"left out: {recorder.unread_bytes:,.0f} bytes of parameters that the forward pass does not read")
    return TracedModel(
        recorder.graph(model.name, model.samples),
        tuple(recorder.ops),
        sum(parameter.numel() for parameter in parameters),
        sum(map(num_bytes, parameters)),
        tuple(remarks),
    )


def first_line(error: BaseException) -> str:
    """Return an error of other code in one line of bearable length."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    message = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return message if len(message) <= 300 else message[:297] + "..."


@contextmanager
def quiet() -> Iterator[None]:
    """Run without the warnings, logs and outputs of other code."""
    disabled = logging.root.manager.disable
    with warnings.catch_warnings(), redirect_stderr(StringIO()), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)


@contextmanager
def _unchecked() -> Iterator[None]:
    """Run without the checks by which transformers compares numbers in tensors (one token of a text for each piece of an image).

    Traced tensors hold no numbers. The package reads the switch at each of its checks.
    """
    held = os.environ.get(_NO_CHECKS)
    os.environ[_NO_CHECKS] = "1"
    try:
        yield
    finally:
        if held is None:
            del os.environ[_NO_CHECKS]
        else:
            os.environ[_NO_CHECKS] = held


def _watched(model: Model, recorder: Recorder) -> None:
    """Run the model under the recorder.

    Raises:
        TraceError: it fails.
    """
    try:
        with Watch(recorder):
            model.module(*model.args, **model.kwargs)
    except Exception as error:  # whatever the code of a user raises
        raise TraceError(f"the forward pass fails: {_why(error, model)}", value=model.name) from None


def _why(error: Exception, model: Model) -> str:
    """Return PyTorch's message on a failed forward pass, after its meaning where that is known."""
    said = first_line(error)
    if any(words in str(error) for words in _WANTS_NUMBERS):
        return f"its way depends on numbers in tensors, and a model is traced without numbers ({said})"
    if _WANTS_WHOLE_NUMBERS in str(error):
        arguments = [("", arg) for arg in model.args] + [(f"{name}=", one) for name, one in model.kwargs.items()]
        shapes = [f"{name}{'x'.join(map(str, one.shape))}" for name, one in arguments if one.is_floating_point()]
        return f"whole numbers are wanted, as --input {' or '.join(f'{shape}:int64' for shape in shapes)} ({said})"
    return said


class _ExportedRun(Interpreter):
    """Runs an exported program node by node under a recorder."""

    def __init__(self, program: torch.fx.GraphModule, recorder: Recorder) -> None:
        super().__init__(program)
        self._recorder = recorder
        self._path = ""

    def run_node(self, n: torch.fx.Node) -> Any:
        """See `Interpreter.run_node`."""
        stack = n.meta.get("nn_module_stack") or {}
        self._path = next((path for path, _ in reversed(stack.values())), "")
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """See `Interpreter.call_function`."""
        return self._recorder.call(self._path, target, args, kwargs)
