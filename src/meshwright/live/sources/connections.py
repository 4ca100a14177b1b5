"""Requests over HTTP, to an address or a socket file."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from urllib.parse import urlsplit

from ...errors import InputFileError
from .programs import MOST_BYTES

UNIX = "unix:"
ADDRESSES = "http://HOST:PORT, https://HOST:PORT or unix:PATH"
"""How an address is spelled."""

_CHUNK_BYTES = 2**20


def is_address(url: str) -> bool:
    """Return whether it is spelled as one; a name and password in it are refused."""
    if url.startswith(UNIX):
        return len(url) > len(UNIX)
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None


def exchange(
    url: str, method: str, path: str, headers: dict[str, str], *, body: bytes | None = None, wait_s: float, server: str
) -> tuple[int, str]:
    """Send a request; the status and the text of its answer.

    Args:
        url: as `is_address` takes it; a path behind the port comes before the request's.
        method, path, headers, body: of the request.
        wait_s: longest wait for the whole answer.
        server: what answers there, for messages.

    Raises:
        InputFileError: nobody answers, not in time, not whole, or more than `MOST_BYTES`.
    """
    ends_s = time.monotonic() + wait_s
    parsed = urlsplit("" if url.startswith(UNIX) else url)
    connection: http.client.HTTPConnection
    if url.startswith(UNIX):
        connection = SocketFileConnection(url.removeprefix(UNIX), wait_s)
    elif parsed.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(str(parsed.hostname), parsed.port, timeout=wait_s, context=context)
    else:
        connection = http.client.HTTPConnection(str(parsed.hostname), parsed.port, timeout=wait_s)
    try:
        connection.request(method, parsed.path.rstrip("/") + path, body, headers)
        with connection.getresponse() as answer:
            parts, size = [], 0
            while chunk := answer.read1(_CHUNK_BYTES):
                size += len(chunk)
                if size > MOST_BYTES:
                    raise InputFileError(f"the answer is longer than {MOST_BYTES >> 20} MiB")
                if time.monotonic() > ends_s:
                    raise TimeoutError
                parts.append(chunk)
            if answer.length:
                raise http.client.IncompleteRead(b"", answer.length)
    except TimeoutError:
        raise InputFileError(f"no answer within {wait_s:g} s") from None
    except http.client.IncompleteRead:
        raise InputFileError("the answer is cut short") from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise InputFileError(f"no answer: {reason}; is {server} running?") from None
    finally:
        connection.close()
    return answer.status, b"".join(parts).decode(errors="replace")


class SocketFileConnection(http.client.HTTPConnection):
    """HTTP over a socket file.

    Args:
        path: of the file.
        wait_s: longest wait for it to open, and for each part of an answer.
    """

    def __init__(self, path: str, wait_s: float) -> None:
        super().__init__("localhost", timeout=wait_s)
        self._path = path

    def connect(self) -> None:
        """Open the connection."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
