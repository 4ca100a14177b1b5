"""Connections for HTTP, to an address or a socket file."""

from __future__ import annotations

import http.client
import socket
import ssl
from urllib.parse import urlsplit

UNIX = "unix:"
ADDRESSES = "http://HOST:PORT, https://HOST:PORT or unix:PATH"
"""How an address is spelled."""


def is_address(url: str) -> bool:
    """Whether it is spelled as one; a name and password in it are refused."""
    if url.startswith(UNIX):
        return len(url) > len(UNIX)
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None


def connection_to(url: str, wait_s: float) -> http.client.HTTPConnection:
    """A connection, not yet open.

    Args:
        url: as `is_address` takes it; a path behind the port is the caller's.
        wait_s: longest wait for it to open, and for each part of an answer.
    """
    if url.startswith(UNIX):
        return SocketFileConnection(url.removeprefix(UNIX), wait_s)
    parts = urlsplit(url)
    assert parts.hostname is not None, "is_address"
    if parts.scheme == "https":
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=wait_s, context=ssl.create_default_context())
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=wait_s)


class SocketFileConnection(http.client.HTTPConnection):
    """HTTP over a socket file.

    Args:
        path: of the file.
        wait_s: as `connection_to`.
    """

    def __init__(self, path: str, wait_s: float) -> None:
        super().__init__("localhost", timeout=wait_s)
        self._path = path

    def connect(self) -> None:
        """Open the connection."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
