"""A client changes a session's mode or an option: checked, told to the agent, kept, and told to the client.

They are handled one after the other and also while a turn runs. What the agent refuses is taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from coupler.agent.errors import agent_failed
from coupler.agent.hooks import call_hook
from coupler.agent.session import Session
from coupler.agent.settings import MODE, SettingError
from coupler.schema import v1
from coupler.wire.messages import INVALID_PARAMS, RpcError

OptionChange = v1.SetSessionConfigBooleanRequest | v1.SetSessionConfigSelectRequest


async def change_mode(session: Session, params: v1.SetSessionModeRequest) -> v1.SetSessionModeResponse:
    """What `session/set_mode` asks for."""
    await _change(session, "modeId", MODE, lambda: session.settings.set_mode(params.mode_id))
    return v1.SetSessionModeResponse()


async def change_option(session: Session, params: OptionChange) -> v1.SetSessionConfigOptionResponse:
    """What `session/set_config_option` asks for; one option may change others, so all are in the answer."""
    option, value = params.config_id, params.value
    await _change(session, "value", option, lambda: session.settings.set_by_client(option, value))
    options = session.settings.as_options()
    return v1.SetSessionConfigOptionResponse(options if isinstance(options, tuple) else ())


async def _change(session: Session, field: str, option: str, change: Callable[[], bool]) -> None:
    async with session.in_order:
        before = session.settings.saved()
        try:
            is_changed = change()
        except SettingError as error:
            raise RpcError.because(INVALID_PARAMS, str(error), path=field) from None
        if not is_changed:
            return
        is_mode = option == MODE and session.mode is not None
        try:
            if is_mode:
                await call_hook(session.agent.mode_changed, session)
            else:
                await call_hook(session.agent.option_changed, session, option)
        except BaseException as error:
            # Only this one: the agent may have changed others meanwhile.
            session.settings.restore(
                {"mode": before["mode"]} if is_mode else {"options": {option: before["options"][option]}}
            )
            raise error if isinstance(error, asyncio.CancelledError) else agent_failed(error) from None
        session.tell_settings(mode_changed=is_mode)
        session.keep_state()
        await session.until_stored()
