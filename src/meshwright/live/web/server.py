"""The server of a service: it says where it listens, and lets those go that wait before it stops."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from ..service import Service


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
        """Begin to listen."""
        await super().startup(sockets)
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
