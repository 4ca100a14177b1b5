"""How the process ends after a command."""

from __future__ import annotations

from threading import Event

is_at_once = Event()
"""Set by commands that end with more objects than can be freed one by one in less than seconds, such as a large search."""
