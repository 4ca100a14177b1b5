"""What typer finds wrong with options and commands, told as every other error is: field, problem, value, nearest choice."""

from __future__ import annotations

import re
from typing import Any

from ..errors import MeshwrightError, nearest

_KINDS = {"int": "must be a whole number", "float": "must be a number"}


def is_call_for_help(error: Exception) -> bool:
    """Whether a command that wants more words was given none; the error's text is then its help."""
    return type(error).__name__ == "NoArgsIsHelpError"


def told(error: Exception) -> MeshwrightError | None:
    """The typed error for one of typer's usage errors; None for any other exception."""
    if not callable(getattr(error, "format_message", None)):
        return None
    context = getattr(error, "ctx", None)
    command = getattr(context, "command", None)
    option = getattr(error, "option_name", None)
    parameter = getattr(error, "param", None)
    message = str(getattr(error, "message", error)).rstrip(".")
    if option is not None:
        if message.startswith("No such option"):
            return _unknown_option(option, _options(command, context))
        return MeshwrightError("wants a value" if "requires" in message else "takes no value", field=option)
    if parameter is not None:
        return _about(parameter, error, message)
    unknown = re.match(r"No such command '(.*?)'", message)
    if unknown:
        return MeshwrightError("no such command", value=unknown[1], choices=getattr(command, "commands", ()))
    extra = re.fullmatch(r"Got unexpected extra argument(?:\(s\)|s)? \((.*)\)", message)
    if extra:
        return MeshwrightError("more arguments than the command takes", value=extra[1])
    return MeshwrightError(message[:1].lower() + message[1:])


def _unknown_option(option: str, known: list[str]) -> MeshwrightError:
    """The dashes, which all options share, do not make two of them alike."""
    near = nearest(option.lstrip("-"), [name.removeprefix("--") for name in known if name.startswith("--")])
    if near is None:
        return MeshwrightError("no such option", field=option, choices=known)
    return MeshwrightError(f"no such option; did you mean '--{near}'?", field=option)


def _about(parameter: Any, error: Exception, message: str) -> MeshwrightError:
    """An option or argument that is missing or holds an impossible value."""
    is_option = parameter.param_type_name == "option"
    name = max(parameter.opts, key=len) if is_option else parameter.display_name_raw
    if hasattr(error, "param_type"):
        return MeshwrightError("the option is missing" if is_option else "is missing", field=name)
    found: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    if not found:
        return MeshwrightError(message[:1].lower() + message[1:], field=name)
    kind = str(found[0]["type"]).partition("_")[0]
    return MeshwrightError(_KINDS.get(kind, str(found[0]["msg"])), field=name, value=found[0]["input"])


def _options(command: Any, context: Any) -> list[str]:
    """Every spelling of every option of a command."""
    parameters = [] if command is None else command.get_params(context)
    return sorted({name for parameter in parameters for name in parameter.opts if name.startswith("-")})
