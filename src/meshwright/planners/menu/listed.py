"""Rows of a menu in plans and decisions."""

from __future__ import annotations


def listed_of_menu(*, has_deadline: bool, framework: str | None = None) -> str:
    """Return which layouts of its menu a plan or decision lists as choices, in words; with a framework all."""
    fit = "fit what is free" + (" and meet the deadline" if has_deadline else "")
    if framework is not None:
        return f"listed are the layouts of the menu for {framework} that {fit}"
    return f"listed are the layouts of the menu that {fit}, without those that another one beats in time and in devices"
