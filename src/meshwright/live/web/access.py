"""Access rights: tokens with a scope, sessions of the page, and the hosts and origins that a request may name."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from ... import files
from ...errors import ConfigError, InputFileError, MeshwrightError

Scope = Literal["read", "decide", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "decide", "admin")
"""Each may do what those before it may: look; decide, confirm, release, observe; drain hosts and ask for replays."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")
"""Names of this machine for itself; all of 127.0.0.0/8 is its own too."""
COOKIE = "meshwright_session"
MOST_SESSIONS = 1000
LOG = logging.getLogger("meshwright.serve")
_LINE = re.compile(r"(read|decide|admin) ([0-9a-f]{64})(?: until=(\S+))?(?: (\S.*))?")
_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::[0-9]{0,5})?", re.IGNORECASE)


@dataclass(frozen=True)
class Token:
    """A token as a file holds it: what it may, its SHA-256, whose it is, and the instant from which it is known no more."""

    scope: Scope
    digest: str
    owner: str = ""
    until: datetime | None = None


@dataclass
class Access:
    """Decides on requests.

    Attributes:
        tokens: those that are known; None: nobody needs one, as only this machine can reach the service.
        hosts: names under which the service may be asked for, without ports; None: under any, as on a socket file.
        file: of the tokens, which are read again whenever it has changed; nobody is let in while it cannot be read.
        sessions: the digest of the token with which each session of the page began.
    """

    tokens: Sequence[Token] | None
    hosts: frozenset[str] | None
    file: Path | None = None
    sessions: dict[str, str] = field(default_factory=dict)
    _read_of: tuple[int, ...] = ()

    def scope_of(self, authorization: str | None, cookie: str | None) -> Scope | None:
        """Return the scope of a request; None without known credentials."""
        if self.tokens is None:
            return "admin"
        if authorization is not None:
            scheme, _, token = authorization.partition(" ")
            return self.scope_of_token(token.strip()) if scheme.lower() == "bearer" else None
        return self._scope_of_digest(self.sessions.get(cookie, "")) if cookie is not None else None

    def scope_of_token(self, token: str) -> Scope | None:
        """Return the scope of a token; it is compared with every known one, each in constant time."""
        return self._scope_of_digest(_digest(token))

    def _scope_of_digest(self, digest: str) -> Scope | None:
        self._read_again()
        now, result = datetime.now(UTC), None
        for known in self.tokens or ():
            if hmac.compare_digest(known.digest, digest) and (known.until is None or now < known.until):
                result = known.scope
        return result

    def _read_again(self) -> None:
        """Read the file of tokens where it is another one than before."""
        if self.file is None:
            return
        read_of: tuple[int, ...] = (0,)
        with suppress(OSError):
            result = os.stat(self.file)
            read_of = result.st_mtime_ns, result.st_size, result.st_ino, result.st_mode
        if read_of == self._read_of:
            return
        self._read_of = read_of
        try:
            self.tokens = read_tokens(self.file)
        except MeshwrightError as error:
            self.tokens = ()
            LOG.error("nobody is let in: %s", error)

    def begin_session(self, token: str) -> str:
        """Return the secret of a new session of the page, which ends with its token; the oldest ends where there are too many."""
        if len(self.sessions) >= MOST_SESSIONS:
            del self.sessions[next(iter(self.sessions))]
        secret = secrets.token_urlsafe(32)
        self.sessions[secret] = _digest(token)
        return secret

    def end_session(self, secret: str | None) -> None:
        """End the session of a secret, where there is one."""
        if secret is not None:
            self.sessions.pop(secret, None)

    def is_known_host(self, host: str | None) -> bool:
        """Return whether a ``Host`` header names this service."""
        return self.hosts is None or (host is not None and _name(host) in self.hosts)

    def is_own_origin(self, origin: str | None, host: str | None) -> bool:
        """Return whether an ``Origin`` header, where there is one, names this service as the ``Host`` header does, port too."""
        if origin is None:
            return True
        try:
            origin_host = urlsplit(origin).netloc.lower()
        except ValueError:
            return False
        return bool(origin_host) and host is not None and origin_host == host.lower() and self.is_known_host(host)


def access(bound: str | None, token_file: Path | None, names: Iterable[str] = ()) -> Access:
    """Return the access to a service.

    Args:
        bound: address on which it listens; None for a socket file.
        token_file: of its tokens; None: it wants none.
        names: further names under which it is asked for, as that of a proxy.

    Raises:
        ConfigError: others can reach it and there are no tokens, or a line of the file is no token.
        InputFileError: the file cannot be read, or others may read it.
    """
    if token_file is None and bound is not None and bound not in LOOPBACK and not _is_loopback(bound):
        problem = "others can reach this address: give the service tokens with --token-file (`meshwright serve token` makes them)"
        raise ConfigError(problem, field="--listen", value=bound)
    tokens = None if token_file is None else read_tokens(token_file)
    return Access(tokens, None if bound is None else frozenset(map(str.lower, (*LOOPBACK, bound, *names))), token_file)


def read_tokens(path: Path) -> tuple[Token, ...]:
    """Return the tokens of a file, one a line: scope, SHA-256, ``until=`` an instant where it expires, owner.

    Raises:
        ConfigError: a line is no token, or there is none.
        InputFileError: the file cannot be read, or others may write it.
    """
    if path.is_file() and path.stat().st_mode & 0o022:
        raise InputFileError("others may write this file of tokens; take the right away (chmod go-w)", file=path)
    results = []
    for number, line in enumerate(files.read_text(path).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            problem = "no token; a line is scope, SHA-256 and owner, as `meshwright serve token` writes it"
            raise ConfigError(problem, file=path, line=number)
        scope = next(one for one in SCOPES if one == match[1])
        try:
            until = None if match[3] is None else datetime.fromisoformat(match[3])
        except ValueError:
            until = datetime.min
        if until is not None and until.tzinfo is None:
            problem = "must be an instant with its time zone, as 2026-11-24T15:00:00Z"
            raise ConfigError(problem, file=path, line=number, field="until", value=match[3])
        results.append(Token(scope, match[2], match[4] or "", until))
    if not results:
        raise ConfigError("holds no token", file=path)
    return tuple(results)


def new_token(scope: Scope, owner: str = "", until: datetime | None = None) -> tuple[str, str]:
    """Return a new token, and the line of it for the file."""
    token = secrets.token_urlsafe(32)
    ends = [] if until is None else [f"until={until.isoformat(timespec='seconds')}"]
    return token, " ".join([scope, _digest(token), *ends, *([owner] if owner else [])])


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()


def _is_loopback(address: str) -> bool:
    try:
        return ip_address(address).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str:
    """Return a host without its port; empty where it is no host."""
    match = _HOST.fullmatch(host)
    return "" if match is None else (match[1] or match[2]).lower()
