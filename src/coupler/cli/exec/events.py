"""What `coupler exec` tells programs: each event as one JSON object, and the result as the last.

Every object has `event`. Parts of messages and of tool calls are as ACP spells them; the rest is documented
in the manual, and only grows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import UNSET

from coupler.client.observation import (
    AgentEnded,
    Observation,
    PermissionDecided,
    PromptSent,
    Received,
    SessionOpened,
    ToolFinished,
    TurnFinished,
)
from coupler.events import (
    Commands,
    Compaction,
    CompactionSummary,
    Content,
    Event,
    Info,
    Mode,
    Notice,
    Options,
    Other,
    Plan,
    Stop,
    Text,
    Thought,
    ToolCall,
    Usage,
)

if TYPE_CHECKING:
    from coupler.client.errors import AgentError
    from coupler.client.policy import Decision
    from coupler.client.reply import Reply

JsonObject = dict[str, Any]


def event_object(observation: Observation) -> JsonObject | None:
    """An observation for programs; None for what another one tells as well."""
    match observation:
        case SessionOpened():
            return _present(
                event="session",
                session_id=observation.session_id,
                how=observation.how,
                reason=observation.reason,
            )
        case PromptSent():
            return {"event": "prompt", "content": observation.content}
        case Received(event=event, late=late):
            told = _received(event)
            return {**told, "late": True} if late else told
        case ToolFinished(call=call, bridged=True):
            return {"event": "tool_call", **tool_call_object(call), "bridged": True}
        case PermissionDecided(decision=decision):
            return {"event": "permission", **permission_object(decision)}
        case TurnFinished(reply=reply) if reply is not None:
            return {"event": "turn", "stop_reason": reply.stop_reason, "usage": usage_object(reply)}
        case AgentEnded(message):
            return {"event": "agent_ended", "message": message}
        case _:
            return None


def result_object(
    reply: Reply | None,
    error: AgentError | None,
    *,
    session_id: str | None,
    exit_code: int,
    session_reason: str | None = None,
) -> JsonObject:
    """How it all ended; a turn that failed has what came until then."""
    return {
        "text": "" if reply is None else reply.text,
        "stop_reason": None if reply is None or error is not None else reply.stop_reason,
        "output": None if reply is None else reply.output,
        "output_way": None if reply is None else reply.output_way,
        "thoughts": "" if reply is None else reply.thoughts,
        "tool_calls": [] if reply is None else [*map(tool_call_object, reply.tool_calls)],
        "permissions": [] if reply is None else [*map(permission_object, reply.permissions)],
        "denied": [] if reply is None else [*map(denial_object, reply.denied)],
        "files": [] if reply is None else [*reply.files],
        "plan": [] if reply is None else [*reply.plan],
        "content": [] if reply is None else [piece.block for piece in reply.content],
        "usage": None if reply is None else usage_object(reply),
        "rounds": 0 if reply is None else reply.rounds,
        "session_id": session_id,
        "session_reason": session_reason,
        "error": None if error is None else error_object(error),
        "exit_code": exit_code,
    }


def tool_call_object(call: ToolCall) -> JsonObject:
    """A tool call as it stands."""
    return _present(
        id=call.id,
        title=call.title,
        kind=call.kind,
        status=call.status,
        name=call.name,
        locations=call.locations or None,
        content=call.content or None,
        input=call.raw_input,
        output=call.raw_output,
    )


def permission_object(decision: Decision) -> JsonObject:
    """What the agent asked for, and what it was told."""
    option = decision.option
    return _present(
        tool_call_id=decision.tool_call.id,
        title=decision.tool_call.title,
        kind=decision.tool_call.kind,
        allowed=decision.is_allowed,
        option=None if option is None else {"id": option.option_id, "name": option.name, "kind": option.kind},
    )


def denial_object(decision: Decision) -> JsonObject:
    """What was denied, and what would allow it."""
    return {**permission_object(decision), "remedy": decision.remedy}


def usage_object(reply: Reply) -> JsonObject:
    """Tokens and money."""
    usage = reply.usage
    return {name: getattr(usage, name) for name in usage.__struct_fields__}


def error_object(error: AgentError) -> JsonObject:
    """What went wrong."""
    return _present(
        kind=error.kind,
        message=error.message,
        code=error.code,
        data=error.data,
        agent_exit_code=error.exit_code,
        agent_stderr=error.stderr or None,
    )


def _received(event: Event) -> JsonObject:
    match event:
        case Text(text, message_id):
            return _present(event="text", text=text, message_id=message_id)
        case Thought(text, message_id):
            return _present(event="thought", text=text, message_id=message_id)
        case Content():
            return _present(
                event="content", role=event.role, content=event.block, message_id=event.message_id
            )
        case ToolCall():
            return {"event": "tool_call", **tool_call_object(event)}
        case Plan(entries):
            return {"event": "plan", "entries": entries}
        case Notice(severity, title, description):
            return _present(event="notice", severity=severity, title=title, description=description)
        case Stop(reason):
            return {"event": "stop", "stop_reason": reason}
        case _:
            return _state_received(event)


def _state_received(
    event: Usage | Commands | Mode | Options | Info | Compaction | CompactionSummary | Other,
) -> JsonObject:
    """What an agent tells of the session, in a turn or between two."""
    match event:
        case Usage(used, size, cost):
            return _present(event="usage", used=used, size=size, cost=cost)
        case Commands(commands):
            return {"event": "commands", "commands": commands}
        case Mode(id):
            return {"event": "mode", "mode": id}
        case Options(options):
            return {"event": "options", "options": options}
        case Info():
            changes = {"title": event.title, "updated_at": event.updated_at}
            return {"event": "info", **{name: each for name, each in changes.items() if each is not UNSET}}
        case Compaction():
            return _present(
                event="compaction",
                id=event.id,
                status=event.status,
                summary=event.summary or None,
                error=event.error or None,
            )
        case CompactionSummary(id, block):
            return {"event": "compaction_summary", "id": id, "content": block}
        case Other(kind, raw):
            return {"event": "other", "kind": kind, "update": raw}


def _present(**members: Any) -> JsonObject:
    """The members that have a value."""
    return {name: value for name, value in members.items() if value is not None}
