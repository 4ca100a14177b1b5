"""megatron-core's own numbering of ranks, loaded without the rest of its package, which takes seconds of CPU a process.

The tests and the ranks that they launch import it; nothing of what it is asked is stood in for.
"""

import importlib
import importlib.util
import sys
import types
import warnings


def parallel_state() -> types.ModuleType | None:
    """The module that makes process groups; None where megatron-core is not installed."""
    package = importlib.util.find_spec("megatron")
    if package is None or package.submodule_search_locations is None:
        return None
    core = types.ModuleType("megatron.core")
    core.__path__ = [f"{folder}/core" for folder in package.submodule_search_locations]
    sys.modules.setdefault(core.__name__, core)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what its optional parts say of themselves
        return importlib.import_module("megatron.core.parallel_state")
