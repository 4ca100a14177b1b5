"""Measures what kernels reach on the device that torch sees: every item of `kernel_table.suite`, family by family.

An item that does not fit the device's memory is left out and named, as is one that the device refuses for another reason.
Nothing on the device is set: clocks and power limit are only queried. Tests compare every family with float64.
"""

from __future__ import annotations

import datetime
import gc
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

import torch

from ... import __version__
from ...costs.training_step.kernels import kernel_settings
from ...devices import device_names, device_type
from ...errors import ConfigError, MeasurementError
from ...profiling.measure import known_device
from ..progress import Progress
from .fit_measured import called
from .kernel_runs import kernel_s, pace_s
from .kernel_table import PAIRED, Item, LayerItem, LeftOut, MeasuredKernels, ModelItem, PaceItem, grid
from .kernel_timing import CallTimer, PassTimes
from .layer_runs import layer_times, model_times, why_no_models

BUDGET_S, QUICK_BUDGET_S = 0.06, 0.02
MIN_REPEATS, QUICK_MIN_REPEATS = 10, 5
UNKNOWN = "unknown"


def measure(
    device: str | None = None, *, quick: bool = False, seed: int = 0, command: str, progress: Progress | None = None
) -> MeasuredKernels:
    """Measure the GPU that torch sees.

    Args:
        device: the device type; by default found from torch's name of the GPU.
        quick: a few items of each family, with fewer repeats.
        seed: of the operands.
        command: by which this was asked for; written down.
        progress: called with a family, items done and items of it.

    Raises:
        MeasurementError: torch sees no GPU.
        ConfigError: an unknown device type; or none that torch's name of the GPU names, or one with other multiprocessors.
    """
    if device is not None:
        device_type(device)
    if not torch.cuda.is_available():
        why = "sees no GPU" if torch.version.cuda else "is a build without CUDA, see docs/quickstart.md"
        raise MeasurementError(f"torch {torch.__version__} {why}, so there is nothing to measure", field="dev calibrate measure")
    gpu = torch.cuda.get_device_name()
    name = known_device(gpu) if device is None else device
    if name is None:
        raise ConfigError("no known device type; name one by --device", field="--device", value=gpu, choices=device_names())
    budget_s, repeats = (QUICK_BUDGET_S, QUICK_MIN_REPEATS) if quick else (BUDGET_S, MIN_REPEATS)
    watch = CallTimer(torch.device("cuda", torch.cuda.current_device()), budget_s, repeats)
    known, seen = kernel_settings(name), watch.num_multiprocessors
    if device is None and known.device == name and known.num_multiprocessors != seen:  # a PCIe card, or a part of a GPU
        problem = f"has {seen} multiprocessors, {name} {known.num_multiprocessors}: its peaks may differ; name a type by --device"
        raise ConfigError(problem, field="--device", value=gpu, choices=device_names())
    return measure_items(grid(quick=quick), watch, name, gpu=gpu, seed=seed, command=command, progress=progress)


def measure_items(
    items: Sequence[Item],
    watch: CallTimer,
    device: str,
    *,
    gpu: str,
    seed: int,
    command: str,
    progress: Progress | None = None,
) -> MeasuredKernels:
    """Measure items, in their order, on any device of torch; a CPU will do.

    Raises:
        MeasurementError: nothing at all could be measured.
    """
    results: list[Item] = []
    left_out: list[LeftOut] = []
    clock_mhz: float | None = None
    with _seeded(watch, seed):
        for family, of_family in groupby(items, key=lambda item: item.family):
            own = list(of_family)
            torch.manual_seed(seed)
            if family == "model" and (reason := why_no_models()) is not None:
                left_out.append(LeftOut(family=family, name="all", reason=reason))
                continue
            done = 0
            while done < len(own):
                if progress is not None:
                    progress(family, done, len(own))
                together = _together(own[done:])
                try:
                    results += _measured(together, watch, seed)
                except RuntimeError as error:  # torch's class for all that a device refuses, too little memory among it
                    left_out += [LeftOut(family=family, name=called(item), reason=_reason(error)) for item in together]
                done += len(together)
                _free(watch)
            if progress is not None:
                progress(family, len(own), len(own))
            if family == "product" and watch.is_cuda:
                clock_mhz = _query_number("clocks.sm", watch.device)
    if not results:
        raise MeasurementError(f"nothing could be measured: {left_out[0].reason}" if left_out else "nothing could be measured")
    return MeasuredKernels(
        device=device,
        gpu=gpu,
        date=datetime.datetime.now().astimezone().date().isoformat(),
        torch=torch.__version__,
        cuda=torch.version.cuda or UNKNOWN,
        driver=(_query("driver_version", watch.device) or UNKNOWN) if watch.is_cuda else UNKNOWN,
        python=platform.python_version(),
        meshwright=__version__,
        command=command,
        power_limit_w=_query_number("power.limit", watch.device) if watch.is_cuda else None,
        sm_clock_max_mhz=_query_number("clocks.max.sm", watch.device) if watch.is_cuda else None,
        sm_clock_mhz=clock_mhz,
        cache_bytes=watch.cache_bytes,
        num_multiprocessors=watch.num_multiprocessors,
        min_repeats=watch.min_repeats,
        budget_ms=watch.budget_s * 1e3,
        seed=seed,
        left_out=tuple(left_out),
        items=tuple(results),
    )


def _reason(error: RuntimeError) -> str:
    if isinstance(error, torch.OutOfMemoryError):
        return "does not fit the device's memory"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _together(items: Sequence[Item]) -> Sequence[Item]:
    """Return the next item, with the other pass of the same layer or network where that follows."""
    first = items[0]
    if first.family in PAIRED and len(items) > 1:
        both = {"is_backward": False, "us": None, "host_us": None}
        if first.model_copy(update=both) == items[1].model_copy(update=both):
            return items[:2]
    return items[:1]


def _measured(items: Sequence[Item], watch: CallTimer, seed: int) -> list[Item]:
    torch.manual_seed(seed)
    first = items[0]
    if isinstance(first, LayerItem | ModelItem):
        times = layer_times(first, watch) if isinstance(first, LayerItem) else model_times(first, watch)
        return [_with_passes(item, times) for item in items]
    seconds = pace_s(first, watch) if isinstance(first, PaceItem) else kernel_s(first, watch)
    return [first.model_copy(update={"us": _microseconds(seconds)})]


def _with_passes(item: Item, times: PassTimes) -> Item:
    is_backward = bool(getattr(item, "is_backward"))  # noqa: B009
    us, host_us = (times.backward_s, times.backward_host_s) if is_backward else (times.forward_s, times.forward_host_s)
    return item.model_copy(update={"us": _microseconds(us), "host_us": _microseconds(host_us)})


def _microseconds(seconds: float) -> float:
    return float(f"{seconds * 1e6:.5g}")


@contextmanager
def _seeded(watch: CallTimer, seed: int) -> Iterator[None]:
    """Restore the caller's seeds afterwards; on a GPU a stream of its own, which graphs can capture."""
    devices = [watch.device] if watch.is_cuda else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        if not watch.is_cuda:
            yield
            return
        watch.wait()
        own = torch.cuda.Stream(watch.device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(own):
            yield
        watch.wait()


def _free(watch: CallTimer) -> None:
    """Give memory back where much is held; doing so each time would cost more than the item."""
    if watch.is_cuda and torch.cuda.memory_reserved(watch.device) > torch.cuda.mem_get_info(watch.device)[1] / 4:
        gc.collect()
        watch.wait()
        torch.cuda.empty_cache()


def _query_number(key: str, device: torch.device) -> float | None:
    try:
        return float(_query(key, device) or "")
    except ValueError:  # not reported, or "[N/A]"
        return None


def _query(key: str, device: torch.device) -> str | None:
    """Query nvidia-smi for a value of the device, without setting anything; None without the program or a value."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    command = [
        program,
        f"--id={uuid if uuid.startswith('GPU-') else 'GPU-' + uuid}",
        f"--query-gpu={key}",
        "--format=csv,noheader,nounits",
    ]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip() or None
