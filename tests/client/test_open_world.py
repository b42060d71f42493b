"""Agents that are newer, older or sloppier than the protocol: nothing of it loses a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from client.stage import Scripted, run, until
from coupler.client import connection as provisional_module
from coupler.client.reply import Reply
from coupler.client.session import RemoteSession
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
    Stop,
    Text,
    ToolCall,
)
from coupler.schema.base import Unknown

Script = Callable[[str], Scripted]


def turn(agent: Scripted) -> tuple[list[Event], Reply, RemoteSession]:
    """The events, the reply and the session of one prompt."""

    async def story() -> tuple[list[Event], Reply, RemoteSession]:
        async with agent.connect() as remote:
            session = await remote.new()
            prompt = session.prompt("go")
            return [event async for event in prompt], await prompt, session

    return run(story())


def agent_that_sends(script: Script, *frames: str, end: str = "end(prompt)") -> Scripted:
    """An agent that answers every prompt with these frames between two pieces of text."""
    return script(f"for prompt in prompts(): send(say('a'), {', '.join([*frames, ''])} say('b'), {end})")


def event_of(script: Script, frame: str) -> Event:
    """What becomes of one update; the text around it must be there."""
    events, reply, _ = turn(agent_that_sends(script, frame))
    first, event, last, stop = events
    assert (first, last, stop) == (Text("a"), Text("b"), Stop("end_turn"))
    assert reply.stop_reason == "end_turn"
    return event


def test_an_update_of_an_unknown_kind_is_kept_as_it_came(script: Script) -> None:
    event = event_of(script, "update('telepathy', thought={'deep': [1, None]}, level=3)")
    assert event == Other(
        "telepathy", {"sessionUpdate": "telepathy", "thought": {"deep": [1, None]}, "level": 3}
    )


@pytest.mark.parametrize("reason", ["out_of_coffee", "", "END_TURN"])
def test_an_unknown_stop_reason_ends_the_turn_with_that_reason(script: Script, reason: str) -> None:
    events, reply, _ = turn(agent_that_sends(script, end=f"end(prompt, {reason!r})"))
    assert events[-1] == Stop(reason)
    assert reply.stop_reason == reason
    assert reply.text == "ab"


def test_an_unknown_tool_status_and_kind_are_kept(script: Script) -> None:
    event = event_of(
        script, "update('tool_call', toolCallId='c', title='T', kind='teleport', status='paused')"
    )
    assert isinstance(event, ToolCall)
    assert (event.kind, event.status, event.is_open) == ("teleport", "paused", False)


def test_an_unknown_content_type_is_kept_in_a_message_and_in_a_tool_call(script: Script) -> None:
    event = event_of(script, "update('agent_message_chunk', content={'type': 'hologram', 'size': 3})")
    assert event == Content(Unknown("hologram", {"type": "hologram", "size": 3}), "agent")  # type: ignore[arg-type]
    event = event_of(
        script, "update('tool_call', toolCallId='c', title='T', content=[{'type': 'hologram', 'size': 3}])"
    )
    assert isinstance(event, ToolCall)
    assert event.content == ({"type": "hologram", "size": 3},)


def test_an_unknown_plan_status_and_priority_are_kept(script: Script) -> None:
    _, reply, _ = turn(
        agent_that_sends(
            script, "update('plan', entries=[{'content': 'x', 'priority': 'urgent', 'status': 'blocked'}])"
        )
    )
    [entry] = reply.plan
    assert (entry.content, entry.priority, entry.status) == ("x", "urgent", "blocked")


def test_extra_fields_do_not_matter(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            frame = say("a", extra=1)
            frame["params"]["future"] = {"x": 1}
            frame["params"]["update"]["content"]["colour"] = "red"
            frame["params"]["_meta"] = {"trace": "1"}
            send(frame, end(prompt, extra=True, _meta={"a": 1}))
    """)
    _, reply, _ = turn(agent)
    assert reply.text == "a"


def test_missing_and_null_optional_fields_do_not_matter(script: Script) -> None:
    events, reply, _ = turn(
        agent_that_sends(
            script,
            "say('1', messageId=None)",
            "say('2', messageId='')",
            "update('tool_call', toolCallId='c', title='T', kind=None, status=None, content=None,"
            " locations=None)",
            "update('usage_update', used=1, size=2, cost=None)",
            end="end(prompt, usage=None, _meta=None)",
        )
    )
    assert reply.text == "a12\n\nb"
    assert events[1:3] == [Text("1"), Text("2")]
    [call] = reply.tool_calls
    assert (call.kind, call.status, call.content, call.locations) == ("other", "pending", (), ())
    assert reply.usage.cost is None and reply.usage.is_estimated


MALFORMED = [
    "{'method': 'session/update'}",
    "{'method': 'session/update', 'params': None}",
    "{'method': 'session/update', 'params': []}",
    "{'method': 'session/update', 'params': {'sessionId': 's1'}}",
    "{'method': 'session/update', 'params': {'sessionId': 7, 'update': {}}}",
    "{'method': 'session/update', 'params': {'sessionId': 's1', 'update': None}}",
    "{'method': 'session/update', 'params': {'sessionId': 's1', 'update': {'sessionUpdate': 7}}}",
    "update('agent_message_chunk')",
    "update('agent_message_chunk', content='text')",
    "update('agent_message_chunk', content={'type': 'text'})",
    "update('agent_message_chunk', content={'type': 'text', 'text': 7})",
    "update('agent_message_chunk', content={'text': 'no type'})",
    "update('tool_call', title='no id')",
    "update('tool_call', toolCallId={'a': 1}, title='T')",
    "update('tool_call_update')",
    "update('plan')",
    "update('usage_update', used=-1, size='big')",
    "update('current_mode_update', currentModeId=7)",
    "{'method': 'session/unheard_of', 'params': {'sessionId': 's1'}}",
    "{'method': '_vendor/ping'}",
    "{'method': '$/progress', 'params': {}}",
    "{'method': '$/cancel_request', 'params': {}}",
    "{'method': '$/cancel_request', 'params': {'requestId': 99}}",
    "{'id': 4711, 'result': {}}",
    "{'id': 'x', 'error': {'code': 1, 'message': 'm'}}",
    "{'id': None, 'error': {'code': -32700, 'message': 'm'}}",
]


def test_malformed_updates_are_dropped_and_the_turn_lives(script: Script) -> None:
    events, reply, _ = turn(agent_that_sends(script, *MALFORMED))
    assert events == [Text("a"), Text("b"), Stop("end_turn")]
    assert (reply.text, reply.stop_reason) == ("ab", "end_turn")
    assert not (reply.thoughts or reply.tool_calls or reply.plan or reply.content)


def test_an_update_for_an_unknown_tool_call_announces_it(script: Script) -> None:
    event = event_of(script, "update('tool_call_update', toolCallId='late', status='in_progress')")
    assert event == ToolCall(id="late", status="in_progress")


def test_null_and_absent_fields_leave_a_tool_call_as_it_was(script: Script) -> None:
    agent = agent_that_sends(
        script,
        "update('tool_call', toolCallId='c', title='T', kind='edit', status='in_progress', name='edit',"
        " locations=[{'path': '/a', 'line': 3}], rawInput={'a': 1}, _meta={'m': 1})",
        "update('tool_call_update', toolCallId='c', title=None, kind=None, status=None, content=None,"
        " locations=None, rawInput=None, rawOutput=None, name=None, _meta=None)",
        "update('tool_call_update', toolCallId='c', rawOutput=[1])",
    )
    events, reply, _ = turn(agent)
    first, second, third = [event for event in events if isinstance(event, ToolCall)]
    assert first == second
    assert (third.title, third.kind, third.status, third.name) == ("T", "edit", "in_progress", "edit")
    assert (third.raw_input, third.raw_output, third.meta) == ({"a": 1}, [1], {"m": 1})
    assert third.locations[0].path == "/a"
    assert reply.tool_calls == (third,)


def test_a_call_that_is_announced_again_begins_again(script: Script) -> None:
    _, reply, _ = turn(
        agent_that_sends(
            script,
            "update('tool_call', toolCallId='c', title='One', status='completed', rawOutput=1)",
            "update('tool_call', toolCallId='c', title='Two')",
        )
    )
    assert reply.tool_calls == (ToolCall(id="c", title="Two"),)


@pytest.mark.parametrize(
    ("frame", "event"),
    [
        ("update('current_mode_update', currentModeId='code')", Mode("code")),
        ("update('session_info_update', title='Fixes', updatedAt=None)", Info("Fixes", None)),
        ("update('notice', severity='warning', title='Slow')", Notice("warning", "Slow")),
        ("update('available_commands_update', availableCommands=[])", Commands(())),
        ("update('config_option_update', configOptions=[])", Options(())),
        (
            "update('compaction_update', compactionId='k', status='in_progress')",
            Compaction("k", "in_progress"),
        ),
        (
            "update('compaction_update', compactionId='k', status='completed', summary=None)",
            Compaction("k", "completed", None),
        ),
    ],
)
def test_every_kind_of_update_has_its_event(script: Script, frame: str, event: Event) -> None:
    assert event_of(script, frame) == event


def test_pieces_of_a_compaction_and_of_the_users_words_are_events_too(script: Script) -> None:
    block = "{'type': 'text', 'text': 'x'}"
    summary = event_of(script, f"update('compaction_summary_chunk', compactionId='k', content={block})")
    assert isinstance(summary, CompactionSummary)
    assert (summary.id, summary.block.text) == ("k", "x")  # type: ignore[union-attr]
    said = event_of(script, f"update('user_message_chunk', content={block}, messageId='m')")
    assert isinstance(said, Content)
    assert (said.role, said.message_id) == ("user", "m")
    image = event_of(
        script,
        "update('agent_thought_chunk', content={'type': 'image', 'data': 'AA', 'mimeType': 'image/png'})",
    )
    assert isinstance(image, Content)
    assert image.role == "thought"


def test_the_state_of_a_session_follows_its_updates(script: Script) -> None:
    _, _, session = turn(
        agent_that_sends(
            script,
            "update('session_info_update', title='Fixes')",
            "update('session_info_update', updatedAt='2026-01-01T00:00:00Z')",
            "update('current_mode_update', currentModeId='code')",
            "update('available_commands_update', availableCommands=[{'name': 'plan', 'description': 'd'}])",
        )
    )
    assert (session.title, session.mode) == ("Fixes", "code")
    assert [command.name for command in session.commands] == ["plan"]


def test_a_title_can_be_cleared(script: Script) -> None:
    _, _, session = turn(
        agent_that_sends(
            script,
            "update('session_info_update', title='Fixes')",
            "update('session_info_update', title=None)",
        )
    )
    assert session.title is None


def test_updates_before_the_answer_that_opens_the_session_are_kept(script: Script) -> None:
    agent = script("""
        hello()
        request = read()
        commands = [{"name": "plan", "description": "Plan"}]
        send(
            update("available_commands_update", "early", availableCommands=commands),
            update("tool_call", "early", toolCallId="c", title="Index"),
            update("session_info_update", "other", title="not yours"),
        )
        send(update("tool_call_update", "early", toolCallId="c", status="completed"))
        behind = update("session_info_update", "early", title="Right behind")
        send(result(request, {"sessionId": "early"}), behind)
        prompt = read()
        send(say("a", "early"), end(prompt))
        read()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            assert [command.name for command in session.commands] == ["plan"]
            assert session.tool_calls["c"].status == "completed"
            assert session.title == "Right behind"
            assert (await session.prompt("go")).tool_calls == ()
            assert remote._connection._provisional._waiting == []

    run(story())


def test_updates_of_sessions_that_nobody_opens_cost_nothing(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            send(*[say("x", f"ghost{number}") for number in range(2000)], say("a"), end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            assert (await session.prompt("go")).text == "a"
            assert remote._connection._provisional._waiting == []

    run(story())


@pytest.mark.parametrize(("limit", "most"), [("MOST_UPDATES", 3), ("MOST_BYTES", 400)])
def test_updates_that_come_too_early_are_kept_within_limits(
    script: Script, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr(provisional_module, limit, most)
    agent = script("""
        hello()
        request = read()
        send(
            update("tool_call", "s1", toolCallId="1", title="T"),
            update("tool_call", "ghost", toolCallId="2", title="T"),
            update("tool_call", "s1", toolCallId="3", title="T"),
            *[update("tool_call", "s1", toolCallId=str(number), title="T" * 100) for number in range(4, 100)],
            result(request, {"sessionId": "s1"}),
        )
        prompt = read()
        send(say("a"), end(prompt))
        read()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            assert [*session.tool_calls] == ["1", "3"]
            assert remote._connection._provisional._bytes == 0
            assert (await session.prompt("go")).text == "a"

    run(story())


def test_updates_after_the_answer_change_the_session_and_nobodys_reply(script: Script) -> None:
    agent = script("""
        for number, prompt in enumerate(prompts()):
            send(
                say(f"turn {number}"),
                end(prompt),
                say(" too late"),
                update("tool_call", toolCallId=f"c{number}", title="Background"),
                update("session_info_update", title=f"after turn {number}"),
            )
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            for number in range(3):
                reply = await session.prompt("go")
                assert (reply.text, reply.tool_calls) == (f"turn {number}", ())
                await until(lambda number=number: session.title == f"after turn {number}")
                assert f"c{number}" in session.tool_calls

    run(story())


def test_a_call_that_ends_in_a_later_turn_is_reported_there_with_its_whole_state(script: Script) -> None:
    agent = script("""
        for number, prompt in enumerate(prompts()):
            if number == 0:
                send(update("tool_call", toolCallId="c", title="Watch", status="in_progress"), end(prompt))
            else:
                send(update("tool_call_update", toolCallId="c", status="completed"), end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            assert (await session.prompt("start")).tool_calls[0].status == "in_progress"
            assert (await session.prompt("look")).tool_calls == (
                ToolCall(id="c", title="Watch", status="completed"),
            )

    run(story())


def test_a_second_answer_is_ignored(script: Script) -> None:
    agent = script("""
        for number, prompt in enumerate(prompts()):
            send(say(str(number)), end(prompt), end(prompt, "refusal"), error(prompt, -1, "no"))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            for number in range(3):
                reply = await session.prompt("go")
                assert (reply.text, reply.stop_reason) == (str(number), "end_turn")

    run(story())


def test_ids_may_come_back_as_they_must_and_in_no_other_form(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            wrong = dict(prompt, id=str(prompt["id"]))
            send(end(wrong, "refusal"), say("a"), end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            reply = await (await remote.new()).prompt("go")
            assert (reply.text, reply.stop_reason) == ("a", "end_turn")

    run(story())


def test_usage_that_cannot_be_read_does_not_cost_the_reply(script: Script) -> None:
    _, reply, _ = turn(agent_that_sends(script, end="end(prompt, usage={'totalTokens': 'many'})"))
    assert (reply.text, reply.usage.is_estimated) == ("ab", True)


def test_an_answer_beside_a_null_error_is_an_answer(script: Script) -> None:
    agent = script("for prompt in prompts(): send(say('a'), {**end(prompt), 'error': None})")
    _, reply, _ = turn(agent)
    assert (reply.text, reply.stop_reason) == ("a", "end_turn")


def test_a_lone_surrogate_is_replaced(script: Script) -> None:
    agent = script(r"""
        for prompt in prompts():
            frame = json.dumps({"jsonrpc": "2.0", **say("SURROGATE")}).replace("SURROGATE", "\\ud83d!")
            write(frame.encode() + b"\n")
            send(end(prompt))
    """)
    _, reply, _ = turn(agent)
    assert reply.text == "\ufffd!"


def test_text_of_ours_that_utf8_cannot_hold_is_cleaned(script: Script) -> None:
    agent = script("for prompt in prompts(): send(say(text_of(prompt)), end(prompt))")

    async def story() -> Any:
        async with agent.connect() as remote:
            return await (await remote.new()).prompt("\ud83d!\n\u2028")

    assert run(story()).text == "\ufffd!\n\u2028"
