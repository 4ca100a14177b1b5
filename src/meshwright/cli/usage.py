"""Errors of options and commands that typer finds, in the form of all errors: field, problem, value, nearest choice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from .. import quantities
from ..errors import MeshwrightError, in_our_words, nearest

EXPLAINED_WHEN_EMPTY = ("--set", "--json")
"""Options that say themselves what they want in place of nothing."""


def check_not_empty(arguments: Sequence[str], command: Any) -> None:
    """Refuse an empty word, which a shell makes of a variable that is not set and which as a path is the current folder.

    Args:
        arguments: of the command line.
        command: of typer, with all commands in it.

    Raises:
        MeshwrightError: naming the option or the argument whose value it is.
    """
    for before, word in pairwise(["", *arguments]):
        option, equals, value = word.partition("=")
        if not (equals and option.startswith("--")):
            option, value = (before if before.startswith("--") else _positional(arguments, command)), word
        if not value.strip() and option not in EXPLAINED_WHEN_EMPTY:
            raise MeshwrightError("must not be empty (is a variable of the shell not set?)", field=option, value=value)


def _positional(arguments: Sequence[str], command: Any) -> str:
    """Return the name of the arguments of the called command."""
    for word in arguments:
        commands = getattr(command, "commands", {})
        if word not in commands:
            break
        command = commands[word]
    if hasattr(command, "commands"):
        return "COMMAND"
    return (
        " or ".join(str(parameter.metavar) for parameter in command.params if parameter.param_type_name == "argument")
        or "argument"
    )


def as_our_error(error: Exception) -> MeshwrightError | None:
    """Return the typed error for one of typer's usage errors; None for any other exception."""
    if not callable(getattr(error, "format_message", None)):
        return None
    context = getattr(error, "ctx", None)
    command = getattr(context, "command", None)
    option = getattr(error, "option_name", None)
    parameter = getattr(error, "param", None)
    message = str(getattr(error, "message", error)).rstrip(".")
    if option is not None:
        if message.startswith("No such option"):
            return _unknown_option(option, _options(command, context), _elsewhere(option, context))
        return MeshwrightError("wants a value" if "requires" in message else "takes no value", field=option)
    if parameter is not None:
        return _about(parameter, error, message)
    unknown = re.match(r"No such command '(.*?)'", message)
    if unknown:
        if unknown[1] == "help":
            return MeshwrightError("no such command; did you mean '--help', or 'COMMAND --help'?", value=unknown[1])
        return MeshwrightError("no such command", value=unknown[1], choices=getattr(command, "commands", ()))
    extra = re.fullmatch(r"Got unexpected extra argument(?:\(s\)|s)? \((.*)\)", message)
    if extra:
        return MeshwrightError("more arguments than the command takes", value=extra[1])
    return MeshwrightError(message[:1].lower() + message[1:])


def _elsewhere(option: str, context: Any) -> list[str]:
    """Return the commands of one word that have an option."""
    commands = getattr(getattr(context.find_root(), "command", None), "commands", {}) if context is not None else {}
    return [name for name, one in commands.items() if not hasattr(one, "commands") and option in _options(one, context)]


def _unknown_option(option: str, known: list[str], elsewhere: list[str]) -> MeshwrightError:
    """Return the error, with the nearest option here (dashes do not count), or else up to two other commands with the option."""
    near = nearest(option.lstrip("-"), [name.removeprefix("--") for name in known if name.startswith("--")])
    if near is None and 0 < len(elsewhere) <= 2 and "--resume" not in known:
        others = " and ".join(f"`meshwright {name}`" for name in elsewhere)
        return MeshwrightError(f"no such option here; {others} {'has' if len(elsewhere) == 1 else 'have'} it", field=option)
    if near is None:
        key = option.lstrip("-").replace("-", "_")
        message = f"no such option; a key of the YAML is set by --set {key}=VALUE" if "--resume" in known else "no such option"
        return MeshwrightError(message, field=option, choices=known)
    return MeshwrightError(f"no such option; did you mean '--{near}'?", field=option)


def _about(parameter: Any, error: Exception, message: str) -> MeshwrightError:
    """Return an option or argument that is missing or holds an impossible value."""
    is_option = parameter.param_type_name == "option"
    name = max(parameter.opts, key=len) if is_option else parameter.display_name_raw
    if hasattr(error, "param_type"):
        return MeshwrightError("the option is missing" if is_option else "is missing", field=name)
    result: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    if not result:
        return MeshwrightError(message[:1].lower() + message[1:], field=name)
    kind = str(result[0]["type"]).partition("_")[0]
    problem, value = in_our_words(str(result[0]["msg"])), result[0]["input"]
    if kind in ("int", "float") and isinstance(value, str):
        problem, says_value = quantities.not_plain(value, name.lstrip("-").replace("-", "_"), is_whole=kind == "int")
        value = None if says_value else value
    return MeshwrightError(problem, field=name, value=value)


def _options(command: Any, context: Any) -> list[str]:
    """Return every spelling of every option of a command."""
    parameters = [] if command is None else command.get_params(context)
    return sorted({name for parameter in parameters for name in parameter.opts if name.startswith("-")})
