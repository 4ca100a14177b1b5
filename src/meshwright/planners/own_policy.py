"""Policies that users write: ``python:MODULE:NAME``, in every world, with each mistake of theirs in one line."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import inputs
from ..errors import MeshwrightError, PolicyError
from .policy import Policy, WorldDecision, checked

OWN = "python:"


class OwnPolicy:
    """A user's object as a `Policy`: what its code raises is reported with file and line.

    Args:
        spec: its spelling.
        file: of its module.
        made: the object.
        reset: its method that starts an episode.
        choose: its method that decides.

    Attributes:
        name: its own, or that of the callable.
        observes: whether it is handed observations.
    """

    def __init__(self, spec: str, file: str | None, made: Any, reset: Callable[..., Any], choose: Callable[..., Any]) -> None:
        self._spec, self._file, self._reset, self._choose = spec, file, reset, choose
        self.name: str = made.name if isinstance(getattr(made, "name", None), str) else spec.rpartition(":")[2]
        self.observes = bool(getattr(made, "observes", True))

    def reset(self, seed: int) -> None:
        """See `Policy`."""
        called(self._spec, self._file, self._reset, seed)

    def choose(self, decision: Any, observation: Mapping[str, NDArray[Any]]) -> int:
        """See `Policy`."""
        choice: int = called(self._spec, self._file, self._choose, decision, observation)
        return choice


def possible_choice(policy: Policy, decision: WorldDecision, observe: Callable[[], Mapping[str, NDArray[Any]]]) -> int:
    """Return the action of a policy, which is handed an observation unless it wants none.

    Raises:
        PolicyError: it is no action, or none that is possible now.
    """
    observation = observe() if getattr(policy, "observes", True) else {}
    choice = checked(policy.choose(decision, observation), policy.name, len(decision.mask))
    if not decision.mask[choice]:
        possible = np.flatnonzero(decision.mask).astype(str)
        raise PolicyError("this action is masked: it is not possible now", field=policy.name, value=choice, choices=possible)
    return choice


def own_policy(spec: str) -> Callable[[object], Policy]:
    """Import a user's callable, and return a function that makes a policy of it for a world.

    Raises:
        PolicyError: no such module or callable, or wrong arguments. The returned function raises it if the object lacks a method
            or the user's code raises anything.
    """
    make, file = own_callable(spec)
    name = spec.rpartition(":")[2]
    first_arguments = () if _takes(make, ()) and not _takes(make, ("world",)) else ("scenario",)
    _check_takes(make, first_arguments, name, spec)

    def made_for(world: object) -> Policy:
        made = called(spec, file, make, *((world,) if first_arguments else ()))
        methods = []
        for method, other, arguments in (("reset", "begin", ("seed",)), ("choose", "act", ("decision", "observation"))):
            held = other if hasattr(made, other) and not hasattr(made, method) else method
            if not callable(getattr(made, held, None)):
                raise PolicyError(f"{name} has no method {method}({', '.join(arguments)})", value=spec)
            _check_takes(getattr(made, held), arguments, f"{name}.{held}", spec)
            methods.append(getattr(made, held))
        return OwnPolicy(spec, file, made, *methods)

    return made_for


def own_callable(spec: str, what: str = "policy") -> tuple[Callable[..., Any], str | None]:
    """Import a user's callable, ``python:MODULE:NAME``, from the current folder or the Python path; and the file of its module.

    Raises:
        PolicyError: no such module or callable, or the module's own code raises.
    """
    module, colon, name = spec.removeprefix(OWN).partition(":")
    if not colon or not all(part.isidentifier() for part in (*module.split("."), name)):
        raise PolicyError(f"a {what} of your own is spelled python:MODULE:NAME", value=spec)
    if "" not in sys.path and str(Path.cwd()) not in sys.path:  # an installed command does not look there by itself
        sys.path.insert(0, str(Path.cwd()))
    try:
        home = import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.split(".")[0] and error.name != module:
            raise _policy_error(spec, None, error) from error
        raise PolicyError("no such module in this folder or on the Python path", field=spec, value=module) from None
    except Exception as error:
        raise _policy_error(spec, None, error) from error
    file = home.__file__
    if file is not None:
        inputs.note(Path(file))
    if not callable(getattr(home, name, None)):
        names = [n for n, value in vars(home).items() if callable(value) and not n.startswith("_")]
        raise PolicyError(f"module {module} has no such callable", value=name, choices=names)
    return getattr(home, name), file


def called(spec: str, file: str | None, function: Callable[..., Any], *arguments: object) -> Any:
    """Call a user's function.

    Raises:
        PolicyError: what it raises, with its file and line.
    """
    try:
        return function(*arguments)
    except MeshwrightError:
        raise
    except Exception as error:
        raise _policy_error(spec, file, error) from error


def _policy_error(spec: str, file: str | None, error: Exception) -> PolicyError:
    """Return the error of a user's code at its last line in a file; None: in any file on disk."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if not each.filename.startswith("<frozen")]
    inside = [each for each in frames if each.filename == file] or frames[-1:]
    if isinstance(error, SyntaxError) and error.filename is not None:
        place = error.filename, error.lineno
    else:
        place = inside[-1].filename, inside[-1].lineno
    problem = f"{type(error).__name__}: {error.msg if isinstance(error, SyntaxError) else error}"
    return PolicyError(problem, file=place[0], line=place[1], field=spec)


def _takes(function: Callable[..., object], arguments: tuple[str, ...]) -> bool:
    """Return whether a callable can be called with so many arguments; one that does not say what it takes can."""
    try:
        taken = inspect.signature(function)
    except (TypeError, ValueError):  # of a class or function that is not written in Python
        return True
    try:
        taken.bind(*arguments)
    except TypeError:
        return False
    return True


def _check_takes(function: Callable[..., object], arguments: tuple[str, ...], name: str, spec: str) -> None:
    """Refuse a callable that cannot be called with so many arguments.

    Raises:
        PolicyError: it cannot.
    """
    if not _takes(function, arguments):
        problem = f"{name}{inspect.signature(function)} is called with {len(arguments)} argument{'s' * (len(arguments) > 1)}"
        raise PolicyError(f"{problem}: {', '.join(arguments)}", value=spec)
