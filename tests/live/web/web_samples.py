"""A service on a cluster of three hosts, asked over HTTP in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI
from fastapi.testclient import TestClient

from meshwright.live.service import Service
from meshwright.live.sources.listings import Listing
from meshwright.live.sources.source import Source
from meshwright.live.web.access import Access
from meshwright.live.web.app import build_app

from ..controller_samples import Clock, all_up, controller

OPEN = Access(None, frozenset({"testserver"}))


class Told:
    """A source that says what a test puts in, or fails."""

    def __init__(self, listing: Listing | None = None):
        self.listing = listing or all_up()
        self.error = None

    @property
    def source(self) -> Source:
        return Source("slurm", "scontrol", self._ask, lambda text, known: self.listing)

    def _ask(self) -> str:
        if self.error is not None:
            raise self.error
        return ""


@contextmanager
def client(path, planners, sources=(), access=OPEN, clock=None, **options) -> Iterator[TestClient]:
    """A client of a service that runs meanwhile."""
    made = controller(path, planners, clock or Clock())
    service = Service(made, path, [source.source for source in sources], **options)
    with TestClient(build_app(service, access), raise_server_exceptions=False) as server:
        server.service = service
        yield server


@contextmanager
def serving(app: FastAPI, **options: object) -> Iterator[int]:
    """The port of a real server of an application on the loopback, which runs meanwhile."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", **options))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    thread.join()


def wait_for(client: TestClient, decision: str) -> dict:
    """The decision once it is no longer prepared."""
    while (result := client.get(f"/v1/decisions/{decision}").json())["status"] == "preparing":
        time.sleep(0.05)
    return result
