"""Keeps sessions under a name, and resumes them when the name is used again in that directory.

    session = await open_kept(agent, "review", fingerprint(command, cwd), store=store, cwd=cwd)

The agent loads or resumes the session, where it can. If it cannot, or if the circumstances are others than
they were, there is a new session under the name, and `SessionOpened.reason` tells why.

A caller that uses a session locks its name meanwhile, so that no two talk to it at the same time:

    async with name_lock("review", store=store, cwd=cwd):
        …
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import msgspec
from msgspec.structs import replace

from coupler.client.errors import AgentError
from coupler.config.lookup import project_files
from coupler.schema.v1 import McpServer, McpServerHttp, McpServerSse, McpServerStdio
from coupler.store.errors import HeldError, StoreError
from coupler.store.sessions import KeptSession

if TYPE_CHECKING:
    from coupler.client.remote import OpeningOptions, RemoteAgent
    from coupler.client.reply import TokenReports
    from coupler.client.session import RemoteSession
    from coupler.store.store import Store


log = logging.getLogger("coupler.client")

RESUME_CAPABILITY = "sessionCapabilities.resume"
LOAD_CAPABILITY = "loadSession"

FINGERPRINT_BYTES = 16
"""Bytes of a fingerprint."""


@asynccontextmanager
async def name_lock(name: str, *, store: Store, cwd: str | os.PathLike[str]) -> AsyncIterator[None]:
    """Lock a name in a directory for the block; a process that dies releases it. Raises of kind `busy`."""
    directory = _real(cwd)
    try:
        await store.hold_name(name, directory)
    except HeldError as error:
        message = (
            f"the session {name!r} is in use by another run in this directory (process {error.pid}): wait "
            "until that is done, or use another name"
        )
        raise AgentError("busy", message) from None
    try:
        yield
    finally:
        await store.release_name(name, directory)


async def open_kept(
    agent: RemoteAgent, name: str, fingerprint: str, *, store: Store, **options: Unpack[OpeningOptions]
) -> RemoteSession:
    """Resume the session of this name in the directory `cwd`, or open a new one; it is kept from now on."""
    directory = _real(options.get("cwd", agent.cwd))
    if not name.strip() or "\0" in name:
        raise AgentError("session", f"a kept session has a name that is not blank, not {name!r}")
    earlier = await store.find_kept(name, directory)
    reason = _why_not(agent, earlier, fingerprint)
    session = None
    if earlier is not None and reason is None:
        try:
            session = await _opened_again(agent, earlier, options)
        except AgentError as error:
            if error.kind != "session":
                raise
            reason = f"the session {name!r} could not be opened again: {error.message}"
    tokens = None if session is None or earlier is None else earlier.tokens
    if session is None:
        session = await agent.new(**_with_reason(options, reason))
    session.token_reports.go_on_from(tokens)
    kept = KeptSession(name, directory, session.id, session.cwd, fingerprint, tokens=tokens)
    await store.keep_session(kept)
    session.at_end(lambda: _keep_sum(session.token_reports, kept, store))
    return session


async def _keep_sum(reports: TokenReports, kept: KeptSession, store: Store) -> None:
    """Keep the sum of tokens of a session that ends, so that the next run is charged what comes later."""
    if reports.sum in (None, kept.tokens):
        return
    try:
        await store.keep_session(replace(kept, tokens=reports.sum))
    except StoreError as error:
        log.warning("the tokens of the session %r were not kept: %s", kept.name, error)


async def forget(agent: RemoteAgent, name: str, *, store: Store, cwd: str | os.PathLike[str]) -> bool:
    """Forget the name in a directory; the agent deletes its session, if it supports that."""
    directory = _real(cwd)
    earlier = await store.find_kept(name, directory)
    if earlier is not None and agent.offers("sessionCapabilities.delete"):
        await agent.delete(earlier.session_id)
    return await store.forget_kept(name, directory)


def fingerprint(
    command: str | Sequence[str],
    cwd: str | os.PathLike[str],
    mcp_servers: Iterable[McpServer] = (),
    *,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """Return a short hash of what a session in this directory depends on: command, servers, project files.

    A session that was opened under other circumstances is not resumed: it would have tools that are gone, or
    follow rules that were changed. Secrets do not count: of variables and headers only the names are
    included.
    """
    directory = os.path.realpath(cwd)
    circumstances = [
        command if isinstance(command, str) else [*command],
        [_known_of(server) for server in mcp_servers],
        [[file.path, _content(file.path)] for file in project_files(directory, environ)],
    ]
    return blake2b(msgspec.json.encode(circumstances), digest_size=FINGERPRINT_BYTES).hexdigest()


def _why_not(agent: RemoteAgent, earlier: KeptSession | None, fingerprint: str) -> str | None:
    """Say why an earlier session cannot be resumed; None if it can be tried, or there is none."""
    if earlier is None:
        return None
    if earlier.fingerprint != fingerprint:
        return (
            f"the session {earlier.name!r} was opened under other circumstances: the command, the MCP "
            "servers or the project's coupler.toml are not those of then"
        )
    if not agent.offers(RESUME_CAPABILITY) and not agent.offers(LOAD_CAPABILITY):
        return f"the agent can open no session again, so {earlier.name!r} is a new one"
    return None


async def _opened_again(agent: RemoteAgent, earlier: KeptSession, options: OpeningOptions) -> RemoteSession:
    if agent.offers(RESUME_CAPABILITY):
        return await agent.resume(earlier.session_id, **options)
    return await agent.load(earlier.session_id, **options)


def _with_reason(options: OpeningOptions, reason: str | None) -> OpeningOptions:
    return options if reason is None else {**options, "reason": reason}


def _real(directory: str | os.PathLike[str]) -> str:
    return os.path.realpath(directory)


def _known_of(server: McpServer) -> list[Any]:
    match server:
        case McpServerStdio():
            names = sorted(variable.name for variable in server.env)
            return ["stdio", server.name, server.command, [*server.args], names]
        case McpServerHttp() | McpServerSse():
            kind = "http" if isinstance(server, McpServerHttp) else "sse"
            return [kind, server.name, server.url, sorted(header.name for header in server.headers)]
        case _:
            return [type(server).__name__]


def _content(path: str) -> str:
    try:
        return blake2b(Path(path).read_bytes(), digest_size=FINGERPRINT_BYTES).hexdigest()
    except OSError:
        return ""  # whoever loads it will say what is wrong
