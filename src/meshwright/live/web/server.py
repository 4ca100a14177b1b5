"""The server of a service: it says where it listens, closes connections that ask nothing, and ends waits when it stops."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ... import temporaries
from ...errors import InputFileError
from ..service import Service

HEAD_S, BODY_S = 10.0, 60.0
"""Longest that the head, and then the body, of a request may take to arrive."""
MOST_HEAD_BYTES = 64 * 2**10
MOST_CONNECTIONS = 4096
"""And at most half of the files that the process may have open, for it needs some itself."""
SAID_EVERY_S = 60.0
"""Between two lines of the log about connections that were closed."""

LOG = logging.getLogger("meshwright.serve")


def limits() -> dict[str, Any]:
    """Return uvicorn's options that bound the cost of a connection, once the process may have all possible open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = 2 * MOST_CONNECTIONS
    if soft != resource.RLIM_INFINITY and soft < target:
        soft = target if hard == resource.RLIM_INFINITY else min(target, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    most = MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, soft // 2)
    protocol = type("LimitedConnection", (Connection,), {"most": most})
    return {"http": protocol, "ws": "none", "backlog": max(1, most // 2)}  # so many are accepted before any is counted


class Connection(HttpToolsProtocol):
    """A connection that is closed where no whole request arrives in time, or where others wait for its place.

    Attributes:
        most: connections at a time. Of more, the one that has waited longest to send its request is closed.
    """

    most = MOST_CONNECTIONS
    _closed = 0
    _said_s = -float("inf")

    _timer: asyncio.TimerHandle | None = None
    _since_s = 0.0
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Count a new connection, and wait for its request."""
        super().connection_made(transport)
        self._wait(HEAD_S)
        if len(self.connections) > self.most:
            waiting = [one for one in self.connections if isinstance(one, Connection) and one._timer is not None]
            min(waiting, key=lambda one: one._since_s)._close(f"more than {self.most} at a time")

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._wait(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        before = self.cycle
        super().data_received(data)
        if self.transport.is_closing():
            self._wait(None)
        elif self.cycle is None or (self.cycle.response_complete and not self.cycle.more_body):
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._close(f"a head of more than {MOST_HEAD_BYTES >> 10} KiB")
            elif self._timer is None:
                self._wait(HEAD_S)
        elif not self.cycle.more_body:
            self._wait(None)
        elif self.cycle is not before or self._timer is None:
            self._wait(BODY_S)

    def _wait(self, allowed_s: float | None) -> None:
        """Close the connection if the request is not whole by then; None: it is."""
        if self._timer is not None:
            self._timer.cancel()
        self._head_bytes, self._since_s = 0, time.monotonic()
        late = f"no whole request in {allowed_s:g} s" if allowed_s is not None else ""
        self._timer = None if allowed_s is None else self.loop.call_later(allowed_s, self._close, late)

    def _close(self, why: str) -> None:
        """Close the connection, and say so once in a while."""
        self._wait(None)
        self.connections.discard(self)  # its place is free at once
        self.transport.abort()
        Connection._closed += 1
        if time.monotonic() - Connection._said_s > SAID_EVERY_S:
            LOG.warning("connections closed: %d, the last one for %s", Connection._closed, why)
            Connection._closed, Connection._said_s = 0, time.monotonic()


@contextmanager
def bound(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Bind sockets to every address of a host for a server to listen on; close them at the end.

    Raises:
        InputFileError: no such host, or an address cannot be had.
    """
    try:
        result = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InputFileError(f"no such address: {getattr(error, 'strerror', error)}", field="--listen", value=host) from None
    made: list[socket.socket] = []
    absent: OSError | None = None
    with ExitStack() as sockets:
        for family, kind, protocol, _, address in dict.fromkeys(result):
            try:
                one = sockets.enter_context(socket.socket(family, kind, protocol))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)  # in spite of an ended service's connections
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, True)
                one.bind(address)
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise _unbound(error, host, port) from None
                absent = error  # as ::1 of localhost where a machine has no IPv6
            else:
                made.append(one)
        if absent is not None and not made:
            raise _unbound(absent, host, port)
        yield made


@contextmanager
def bound_file(path: Path) -> Iterator[list[socket.socket]]:
    """Listen on a socket file, from which a server then accepts; it is removed at the end.

    From the moment it exists, only its owner may use it. The group of its folder may too if the folder lets that group in and
    nobody else. A file on which nobody listens is replaced. One that another program has put in its place is not removed.

    Raises:
        InputFileError: another program listens there, or the file cannot be made.
    """
    status: os.stat_result | None = None

    def remove() -> None:
        if made.getsockname() if status is None else os.path.samestat(status, path.lstat()):
            path.unlink()

    with socket.socket(socket.AF_UNIX) as made, temporaries.removed_at_end(remove):
        try:
            if path.is_socket():
                with socket.socket(socket.AF_UNIX) as other:
                    other.setblocking(False)  # a program that does not accept is there too
                    if other.connect_ex(str(path)) != errno.ECONNREFUSED:
                        problem = f"{path} is in use, maybe by another service; stop that, or choose another file"
                        raise InputFileError(problem, field="--listen")
                path.unlink()
            before = os.umask(0o177)
            try:
                made.bind(str(path))
            finally:
                os.umask(before)
            status = path.lstat()
            made.listen()  # another start sees at once that it is in use
            _share_with_group(path)
        except OSError as error:
            raise InputFileError(f"cannot be made ({error.strerror or error})", field="--listen", value=str(path)) from None
        yield [made]


def _share_with_group(path: Path) -> None:
    """Let the group of its folder use a socket file where the folder keeps others out; a link in its place changes nothing."""
    folder = path.parent.stat()
    if folder.st_mode & 0o011 != 0o010:
        return
    number = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    opened = Path(f"/proc/self/fd/{number}")
    try:
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            with suppress(PermissionError):  # of a group that the service is not in
                os.chown(opened, -1, folder.st_gid)
                opened.chmod(0o660)
    finally:
        os.close(number)


def _unbound(error: OSError, host: str, port: int) -> InputFileError:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        problem = f"{where} is in use, maybe by another service; stop that, or choose another port (0: any free one)"
        return InputFileError(problem, field="--listen")
    if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        return InputFileError("is no address of this machine", field="--listen", value=host)
    return InputFileError(f"the system refuses {where}: {error.strerror or error}", field="--listen")


class ServiceServer(uvicorn.Server):
    """See the module.

    Args:
        config: of the server.
        service: that it serves.
        listens: called with its address once it listens.
    """

    def __init__(self, config: uvicorn.Config, service: Service, listens: Callable[[str], None]) -> None:
        super().__init__(config)
        self._service, self._listens = service, listens

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen.

        Raises:
            InputFileError: another program has begun to listen there in the meantime.
        """
        try:
            await super().startup(sockets)
        except OSError as error:
            await self._service.begin_to_stop()
            await self.lifespan.shutdown()
            raise _unbound(error, self.config.host, self.config.port) from None
        if self.started:
            self._listens(self._address())

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop, once nobody waits for changes any more."""
        await self._service.begin_to_stop()
        await super().shutdown(sockets)

    def _address(self) -> str:
        config = self.config
        if config.uds is not None:
            return f"unix:{Path(config.uds).absolute()}"
        port = next(server.sockets[0].getsockname()[1] for server in self.servers)
        host = f"[{config.host}]" if ":" in config.host else config.host
        return f"{'https' if config.is_ssl else 'http'}://{host}:{port}"
