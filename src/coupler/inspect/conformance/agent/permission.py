"""Permission that an agent asks for: how to get it to ask, and how to tell that a tool ran without."""

from __future__ import annotations

from typing import Any

from coupler.inspect.conformance.assertion import Skip
from coupler.inspect.conformance.candidate import Candidate
from coupler.inspect.conformance.reading import objects, part
from coupler.inspect.line_pipe import ScriptError
from coupler.inspect.scripted_client import ScriptedClient
from coupler.inspect.trace import Entry, Exchange, Trace

PERMISSION = "session/request_permission"
NOT_ASKED = "the prompt made the agent ask for no permission; pass a --prompt that does"


async def begin_asking(agent: Candidate, client: ScriptedClient, session: str) -> int:
    """Prompt the agent until it asks for permission; the prompt's id."""
    prompt = client.ask_prompt(session, agent.prompt)
    try:
        question = await client.request_in_turn(prompt, PERMISSION)
    except ScriptError as error:
        if error.kind == "silent":
            raise Skip(f"{NOT_ASKED} within {client.timeout:g} s") from None
        raise
    if question is None:
        raise Skip(NOT_ASKED)
    return prompt


def signs_of_running(trace: Trace, question: Exchange) -> list[Entry]:
    """What the agent sent after the answer that shows that the tool in question ran.

    Other tools may go on meanwhile, so only what belongs to this one counts.
    """
    if question.answer is None:
        return []
    later = [entry for entry in trace.entries[question.answer.number :] if entry.sender == "agent"]
    call = question.params.get("toolCall")
    return [
        entry
        for index, entry in enumerate(later)
        if _completes(entry, call) or _writes(entry, call) or _runs(entry, call, later[:index])
    ]


def _completes(entry: Entry, call: Any) -> bool:
    is_update = entry.method == "session/update" and part(entry.params, "update.status") == "completed"
    return is_update and part(entry.params, "update.toolCallId") == part(call, "toolCallId")


def _writes(entry: Entry, call: Any) -> bool:
    """Whether this changes a file that the call names."""
    named = [each.get("path") for name in ("locations", "content") for each in objects(part(call, name))]
    path = part(entry.params, "path")
    return entry.method == "fs/write_text_file" and path is not None and path in named


def _runs(entry: Entry, call: Any, before: list[Entry]) -> bool:
    """Whether this starts a command, while no other call was reported that it could belong to."""
    if entry.method != "terminal/create" or part(call, "kind") != "execute":
        return False
    reported = [part(each.params, "update.toolCallId") for each in before]
    return all(each in (None, part(call, "toolCallId")) for each in reported)
