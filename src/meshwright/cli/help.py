"""Help in one screen: the options that most people use, examples, and the rest under ``--help-all``.

An option that is declared with ``hidden=True`` is shown by ``--help-all`` alone. A docstring ends in a paragraph ``Examples:``,
which is printed as it is written. `takes_keys` names the class of `key_models` whose keys ``--set`` of a command takes.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from inspect import cleandoc
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

ALL = "--help-all"
Function = TypeVar("Function", bound=Callable[..., Any])
Keys = tuple[str, str]
"""A class of `key_models`, and the mode of the command with which its keys go, or nothing."""
COSTS: Keys = ("CostSettings", "for the cost model")
"""The keys of the cost model."""


def takes_keys(*models: Keys) -> Callable[[Function], Function]:
    """Name the settings whose keys ``--set`` of a command takes, for its ``--help-all``."""

    def named(function: Function) -> Function:
        function.__dict__["set_keys"] = models
        return function

    return named


class _Brief:
    """Common parts of commands and groups."""

    callback: Callable[..., Any] | None
    params: list[Any]
    help: str | None

    def get_params(self, context: Any) -> list[Any]:
        """Return the parameters, and ``--help-all`` where it shows more."""
        result: list[Any] = super().get_params(context)  # type: ignore[misc]
        has_more = any(getattr(param, "hidden", False) for param in self.params) or bool(self._keys())
        return [*result, _help_all()] if has_more else result

    def _keys(self) -> tuple[Keys, ...]:
        return getattr(self.callback, "set_keys", ())

    def format_help_text(self, context: Any, formatter: Any) -> None:
        """Write the text with its examples line by line."""
        text = self.help or ""
        self.help = re.sub(r"\n\nExamples:\n", "\n\n\b\nExamples:\n", text)
        try:
            super().format_help_text(context, formatter)  # type: ignore[misc]
        finally:
            self.help = text


class Command(_Brief, TyperCommand):
    """A command of ours."""


class CommandGroup(_Brief, TyperGroup):
    """A group of ours."""


def group(name: str, text: str, commands: dict[str, tuple[Callable[..., Any], str]], **options: Any) -> typer.Typer:
    """Return a group of commands.

    Args:
        name: of the group.
        text: its help.
        commands: by name a function and one line on it.
        options: further ones of `typer.Typer`.
    """
    made = typer.Typer(name=name, help=cleandoc(text), cls=CommandGroup, **({"no_args_is_help": True} | options))
    add_commands(made, commands)
    return made


def add_commands(to: typer.Typer, commands: dict[str, tuple[Any, str]]) -> None:
    """Add commands and groups to the program or a group: by name a function or a group, and one line on it."""
    for name, (command, short) in commands.items():
        if isinstance(command, typer.Typer):
            to.add_typer(command, name=name, short_help=short)
        else:
            to.command(name, cls=Command, short_help=short)(command)


@cache
def _help_all() -> Any:
    """Return the option as typer makes it of an annotation; the constructor of its class is not public."""
    scratch = typer.Typer(add_completion=False)

    @scratch.command()
    def _(
        shows_all: Annotated[
            bool,
            typer.Option(ALL, is_eager=True, expose_value=False, callback=_show_all, help="Show all options and keys."),
        ] = False,
    ) -> None: ...

    return get_command(scratch).params[0]


def _show_all(context: typer.Context, is_given: bool) -> None:
    """Print the help with every option and the keys of ``--set``, and end."""
    if not is_given or context.resilient_parsing:
        return
    command: Any = context.command
    hidden = [param for param in command.params if getattr(param, "hidden", False)]
    for one in hidden:
        one.hidden = False
    try:
        text = command.get_help(context)
    finally:
        for one in hidden:
            one.hidden = True
    from ..costs.settings import CostSettings
    from . import key_models  # which loads pydantic

    formatter = context.make_formatter()
    for name, about in command._keys():
        model = CostSettings if name == COSTS[0] else getattr(key_models, name)
        of_class = {key: re.split(r"[.] | \(see ", text)[0].rstrip(".") for key, text in attributes(model).items()}
        rows = [(key, _described(field, of_class.get(key, ""))) for key, field in model.model_fields.items()]
        if rows:
            with formatter.section(f"Keys of --set{f' {about}' if name == COSTS[0] else f' with {about}' if about else ''}"):
                formatter.write_dl(rows)
    typer.echo("\n\n".join(part for part in (text, formatter.getvalue().strip("\n")) if part))
    context.exit()


def attributes(model: type[Any]) -> dict[str, str]:
    """Return the texts of the section ``Attributes:`` of a docstring, by name, as Markdown."""
    section = cleandoc(model.__doc__ or "").partition("Attributes:\n")[2].partition("\n\n")[0]
    result = re.findall(r"^ {4}(\w[\w, ]*): (.*(?:\n {8}.*)*)", section, re.M)
    return {name: re.sub(r"\s+", " ", text).replace("``", "`") for names, text in result for name in re.split(r",\s*", names)}


def _described(field: Any, of_class: str) -> str:
    """Return the description of a key, with its default unless that is empty."""
    default, text = field.default, field.description or of_class.replace("`", "")
    if default in (None, ()) or field.is_required():
        return text
    return f"{text} [default: {str(default).lower() if isinstance(default, bool) else default}]".strip()
