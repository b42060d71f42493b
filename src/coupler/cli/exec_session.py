"""The session of one `coupler exec`: a new one, or the one that is kept under a name, for this run alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from coupler.cli.agent_options import command_of
from coupler.client.errors import AgentError
from coupler.client.remote import OpeningOptions

if TYPE_CHECKING:
    from coupler.cli.exec_output import ExecOptions
    from coupler.client.policy import Policy
    from coupler.client.remote import RemoteAgent
    from coupler.client.session import RemoteSession
    from coupler.store.store import Store

OpenSession = Callable[["RemoteAgent"], Awaitable["RemoteSession"]]


@asynccontextmanager
async def session_of(options: ExecOptions, policy: Policy) -> AsyncIterator[OpenSession]:
    """How to open the session. A name is held from before the agent starts until it has ended."""
    wanted = _wanted(options, policy)
    if options.session is None:
        yield lambda agent: agent.new(**wanted)
        return
    # Imported on use: most answers are not kept.
    from coupler.cli.store_access import UnusableStoreError, user_store
    from coupler.client import kept_sessions

    try:
        with user_store(is_made=True) as store:
            assert store is not None
            async with kept_sessions.held(options.session, store=store, cwd=options.cwd):
                yield lambda agent: _kept(agent, options, wanted, store)
    except UnusableStoreError as error:
        raise AgentError("session", str(error)) from error


async def _kept(
    agent: RemoteAgent, options: ExecOptions, wanted: OpeningOptions, store: Store
) -> RemoteSession:
    """The session of this name, which is gone on with if that is possible."""
    from coupler.client import kept_sessions
    from coupler.client.kept_sessions import fingerprint

    assert options.session is not None
    circumstances = fingerprint(command_of(options.agent, options.cwd), options.cwd, options.mcp_servers)
    return await kept_sessions.open_kept(agent, options.session, circumstances, store=store, **wanted)


def _wanted(options: ExecOptions, policy: Policy) -> OpeningOptions:
    wanted = OpeningOptions(cwd=options.cwd, mcp_servers=options.mcp_servers, permissions=policy)
    if options.schema is not None:
        wanted["output"] = options.schema
    if options.model is not None:
        wanted["model"] = options.model
    if options.mode is not None:
        wanted["mode"] = options.mode
    if options.options:
        wanted["options"] = options.options
    return wanted
