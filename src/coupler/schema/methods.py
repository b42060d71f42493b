"""The methods of ACP: which side handles each, its types, and the capability it needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, TypeAlias

from msgspec import UNSET, Struct
from msgspec.structs import replace

from coupler.schema import unstable, v1

PROTOCOL_VERSION = 1
"""The version of ACP that the stable methods belong to."""

Direction: TypeAlias = Literal["agent", "client", "both"]


class Method(Struct, frozen=True):
    """One method; `direction` is the side that handles it, and a notification has no `result`.

    `gate` is the path of the capability which that side must have advertised. `deadline` is how many seconds
    it has to answer; None leaves it all the time it wants. `unstable` says that drafts are part of it.
    """

    name: str
    direction: Direction
    params: type[Any]
    result: type[Any] | None = None
    gate: str | None = None
    deadline: float | None = None
    unstable: bool = False


def offers(capabilities: Struct, gate: str | None) -> bool:
    """Tell whether decoded capabilities open a gate: a boolean must be true, an object must be there."""
    if gate is None:
        return True
    value: object = capabilities
    for name in gate.split("."):
        value = getattr(value, _snake(name), UNSET)
    if isinstance(value, v1.ElicitationCapabilities):  # unlike elsewhere, `{}` offers nothing here
        return offers(value, "form") or offers(value, "url")
    return value is True or isinstance(value, Struct)


def method_for(params: type[Any]) -> Method:
    """The method that carries these params; a form or URL elicitation has its own gate."""
    for kind in params.__mro__:
        if kind in _BY_PARAMS:
            return _BY_PARAMS[kind]
    raise LookupError(f"no method carries {params.__name__}")


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _by_name(*methods: Method) -> dict[str, Method]:
    return {method.name: method for method in methods}


def _by_params(methods: Iterable[Method]) -> dict[type[Any], Method]:
    return {method.params: method for method in methods}


METHODS: dict[str, Method] = _by_name(
    Method("initialize", "agent", v1.InitializeRequest, v1.InitializeResponse),
    Method("authenticate", "agent", v1.AuthenticateRequest, v1.AuthenticateResponse),
    Method("logout", "agent", v1.LogoutRequest, v1.LogoutResponse, "auth.logout"),
    Method("session/new", "agent", v1.NewSessionRequest, v1.NewSessionResponse),
    Method("session/load", "agent", v1.LoadSessionRequest, v1.LoadSessionResponse, "loadSession"),
    Method(
        "session/resume",
        "agent",
        v1.ResumeSessionRequest,
        v1.ResumeSessionResponse,
        "sessionCapabilities.resume",
    ),
    Method(
        "session/list", "agent", v1.ListSessionsRequest, v1.ListSessionsResponse, "sessionCapabilities.list"
    ),
    Method(
        "session/delete",
        "agent",
        v1.DeleteSessionRequest,
        v1.DeleteSessionResponse,
        "sessionCapabilities.delete",
    ),
    Method(
        "session/close", "agent", v1.CloseSessionRequest, v1.CloseSessionResponse, "sessionCapabilities.close"
    ),
    Method("session/set_mode", "agent", v1.SetSessionModeRequest, v1.SetSessionModeResponse),
    Method(
        "session/set_config_option",
        "agent",
        v1.SetSessionConfigOptionRequest,
        v1.SetSessionConfigOptionResponse,
    ),
    Method("session/prompt", "agent", v1.PromptRequest, v1.PromptResponse),
    Method("session/cancel", "agent", v1.CancelNotification),
    Method("session/update", "client", v1.SessionNotification),
    Method("session/request_permission", "client", v1.RequestPermissionRequest, v1.RequestPermissionResponse),
    Method(
        "fs/read_text_file", "client", v1.ReadTextFileRequest, v1.ReadTextFileResponse, "fs.readTextFile", 30
    ),
    Method(
        "fs/write_text_file",
        "client",
        v1.WriteTextFileRequest,
        v1.WriteTextFileResponse,
        "fs.writeTextFile",
        30,
    ),
    Method("terminal/create", "client", v1.CreateTerminalRequest, v1.CreateTerminalResponse, "terminal", 30),
    Method("terminal/output", "client", v1.TerminalOutputRequest, v1.TerminalOutputResponse, "terminal", 30),
    Method(
        "terminal/wait_for_exit",
        "client",
        v1.WaitForTerminalExitRequest,
        v1.WaitForTerminalExitResponse,
        "terminal",
    ),
    Method("terminal/kill", "client", v1.KillTerminalRequest, v1.KillTerminalResponse, "terminal", 30),
    Method(
        "terminal/release", "client", v1.ReleaseTerminalRequest, v1.ReleaseTerminalResponse, "terminal", 30
    ),
    Method(
        "elicitation/create",
        "client",
        v1.CreateElicitationRequest,
        v1.CreateElicitationResponse,
        "elicitation",
    ),
    Method("elicitation/complete", "client", v1.CompleteElicitationNotification, gate="elicitation.url"),
    Method("$/cancel_request", "both", v1.CancelRequestNotification),
    Method(
        "session/fork",
        "agent",
        unstable.ForkSessionRequest,
        unstable.ForkSessionResponse,
        "sessionCapabilities.fork",
        unstable=True,
    ),
)

# The same methods with the types that also carry the drafts Coupler uses.
UNSTABLE_METHODS: dict[str, Method] = METHODS | _by_name(
    Method("initialize", "agent", unstable.InitializeRequest, unstable.InitializeResponse, unstable=True),
    Method("session/prompt", "agent", v1.PromptRequest, unstable.PromptResponse, unstable=True),
    Method("session/update", "client", unstable.SessionNotification, unstable=True),
)

_BY_PARAMS: dict[type[Any], Method] = {
    **_by_params(UNSTABLE_METHODS.values()),
    **_by_params(METHODS.values()),
    v1.CreateFormElicitationRequest: replace(METHODS["elicitation/create"], gate="elicitation.form"),
    v1.CreateUrlElicitationRequest: replace(METHODS["elicitation/create"], gate="elicitation.url"),
}
