"""The server of a service: it says where it listens, and lets those go that wait before it stops."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import uvicorn

from ...errors import InputFileError
from ..service import Service


@contextmanager
def bound(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Sockets bound to every address of a host, which a server then listens on; closed at the end.

    Raises:
        InputFileError: no such host, or an address cannot be had.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise InputFileError(f"no such address: {getattr(error, 'strerror', error)}", field="--host", value=host) from None
    made: list[socket.socket] = []
    absent: OSError | None = None
    with ExitStack() as sockets:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                one = sockets.enter_context(socket.socket(family, kind, protocol))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)  # beside connections of a service that has ended
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


def _unbound(error: OSError, host: str, port: int) -> InputFileError:
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        told = f"{where} is in use, maybe by another service; stop that, or choose another port (0: any free one)"
        return InputFileError(told, field="--port")
    if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        return InputFileError("is no address of this machine", field="--host", value=host)
    return InputFileError(f"the system refuses {where}: {error.strerror or error}", field="--port")


class ServiceServer(uvicorn.Server):
    """See the module.

    Args:
        config: of the server.
        service: that it serves.
        listens: called with its address once it listens.
    """

    def __init__(self, config: uvicorn.Config, service: Service, listens: Callable[[str], None]) -> None:
        super().__init__(config)
        self._service = service
        self._listens = listens

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
            if sockets is None:
                raise
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
        port = next(one.sockets[0].getsockname()[1] for one in self.servers)
        host = f"[{config.host}]" if ":" in config.host else config.host
        return f"{'https' if config.is_ssl else 'http'}://{host}:{port}"
