"""`_meta` passes a relay both ways, as it came."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from client.stage import Scripted
from coupler.schema import v1
from coupler.schema.base import Unknown
from coupler.schema.methods import METHODS
from raw_client import Frame, texts
from relay.conftest import Serve
from relay.editing import answering, chosen, updates

Script = Callable[[str], Scripted]

FROM_THE_EDITOR = {
    "initialize": "InitializeRequest",
    "authenticate": "AuthenticateRequest",
    "logout": "LogoutRequest",
    "session/new": "NewSessionRequest",
    "session/resume": "ResumeSessionRequest",
    "session/prompt": "PromptRequest",
    "answer to session/request_permission": "RequestPermissionResponse",
    "answer to fs/read_text_file": "ReadTextFileResponse",
    "answer to fs/write_text_file": "WriteTextFileResponse",
    "answer to terminal/create": "CreateTerminalResponse",
    "answer to terminal/output": "TerminalOutputResponse",
    "answer to terminal/wait_for_exit": "WaitForTerminalExitResponse",
    "answer to terminal/kill": "KillTerminalResponse",
    "answer to terminal/release": "ReleaseTerminalResponse",
    "answer to elicitation/create": "CreateElicitationResponse",
}
FROM_THE_AGENT = {
    "answer to initialize": "InitializeResponse",
    "answer to authenticate": "AuthenticateResponse",
    "answer to logout": "LogoutResponse",
    "answer to session/new": "NewSessionResponse",
    "answer to session/resume": "ResumeSessionResponse",
    "answer to session/prompt": "PromptResponse",
    "session/request_permission": "RequestPermissionRequest",
    "fs/read_text_file": "ReadTextFileRequest",
    "fs/write_text_file": "WriteTextFileRequest",
    "terminal/create": "CreateTerminalRequest",
    "terminal/output": "TerminalOutputRequest",
    "terminal/wait_for_exit": "WaitForTerminalExitRequest",
    "terminal/kill": "KillTerminalRequest",
    "terminal/release": "ReleaseTerminalRequest",
    "elicitation/create": "CreateElicitationRequest",
    "elicitation/complete": "CompleteElicitationNotification",
    "agent_message_chunk": "AgentMessageChunk",
    "agent_thought_chunk": "AgentThoughtChunk",
    "tool_call": "ToolCall",
    "tool_call_update": "ToolCallUpdate",
    "plan": "Plan",
    "usage_update": "UsageUpdate",
    "notice": "Notice",
    "compaction_update": "CompactionUpdate",
    "compaction_summary_chunk": "CompactionSummaryChunk",
}
NOT_PASSED = {
    "session/list": "Coupler lists, closes and deletes the sessions that it stores",
    "session/close": "as above",
    "session/delete": "as above",
    "session/load": "an editor's load is Coupler's own replay; the agent resumes or loads its session for it",
    "session/fork": "a draft, and a copy that Coupler makes",
    "session/set_mode": "Coupler keeps the settings, and tells each side of them itself",
    "session/set_config_option": "as above",
    "current_mode_update": "as above",
    "config_option_update": "as above",
    "available_commands_update": "as above",
    "session_info_update": "as above",
    "session/cancel": "a turn is cancelled, by whatever asked for it",
    "$/cancel_request": "belongs to one connection",
    "session/update": "the update in it has its own",
    "user_message_chunk": "what the user said is not shown again while it is answered",
}

EVERYTHING = """
    def marked(name, /, **fields):
        return {**fields, "_meta": {"acme": name}}

    def told(kind, /, **fields):
        return update(kind, **marked(kind, **fields))

    def asked(id, method, /, **params):
        send(request(id, method, **marked(method, sessionId="s1", **params)))
        return answer_to(id)["result"]

    HELLO["agentCapabilities"] = {"sessionCapabilities": {"resume": {}}, "auth": {"logout": {}}}
    HELLO["authMethods"] = [{"id": "key", "name": "Key"}]
    while True:
        got = read()
        method = got.get("method")
        if method == "initialize":
            send(result(got, marked("answer to initialize", **HELLO)))
        elif method == "session/new":
            send(result(got, marked("answer to session/new", sessionId="s1")))
        elif method in ("authenticate", "logout", "session/resume"):
            send(result(got, marked(f"answer to {method}")))
        elif method == "session/prompt":
            text = {"type": "text", "text": "said"}
            send(
                told("agent_thought_chunk", content=text),
                told("agent_message_chunk", content=text),
                told("tool_call", toolCallId="c1", title="Look", kind="other", status="pending"),
                told("plan", entries=[{"content": "one", "priority": "low", "status": "pending"}]),
                told("usage_update", used=1, size=2),
                told("notice", severity="info", title="note"),
                told("compaction_update", compactionId="k1", status="in_progress"),
                told("compaction_summary_chunk", compactionId="k1", content=text),
            )
            options = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
            asked(1, "session/request_permission", toolCall={"toolCallId": "c1"}, options=options)
            send(told("tool_call_update", toolCallId="c1", status="completed"))
            file = os.getcwd() + "/a.txt"
            asked(2, "fs/read_text_file", path=file)
            asked(3, "fs/write_text_file", path=file, content="b")
            terminal = asked(4, "terminal/create", command="true")["terminalId"]
            for number, what in enumerate(("output", "wait_for_exit", "kill", "release"), 5):
                asked(number, f"terminal/{what}", terminalId=terminal)
            page = {"mode": "url", "elicitationId": "e1", "url": "https://example.com", "message": "look"}
            asked(9, "elicitation/create", **page)
            complete = marked("elicitation/complete", elicitationId="e1")
            send({"method": "elicitation/complete", "params": complete})
            send(end(got, **marked("answer to session/prompt")))
"""

ANSWERS: dict[str, Frame] = {
    "session/request_permission": {"outcome": {"outcome": "selected", "optionId": "yes"}},
    "fs/read_text_file": {"content": "a"},
    "fs/write_text_file": {},
    "terminal/create": {"terminalId": "t1"},
    "terminal/output": {"output": "", "truncated": False},
    "terminal/wait_for_exit": {"exitCode": 0},
    "terminal/kill": {},
    "terminal/release": {},
    "elicitation/create": {"action": "accept"},
}


def test_the_table_has_every_message_of_the_schema() -> None:
    updates_of_schema = get_args(v1.SessionUpdate)
    known = {
        **{name: method.params for name, method in METHODS.items()},
        **{f"answer to {name}": method.result for name, method in METHODS.items() if method.result},
        **{each.__struct_config__.tag: each for each in updates_of_schema if each is not Unknown},
    }
    passed = FROM_THE_EDITOR | FROM_THE_AGENT
    sorted_out = {*passed, *NOT_PASSED, *(f"answer to {name}" for name in NOT_PASSED)}

    assert {*known} - sorted_out == set()
    assert {name: known[name].__name__ for name in passed} == passed


def test_every_message_that_is_passed_on_keeps_what_was_added(
    script: Script, relay: Serve, tmp_path: Path
) -> None:
    agent = script(EVERYTHING)

    frames = exchange_everything(agent, relay, tmp_path)

    assert _marks(frames, "acme") == {*FROM_THE_AGENT}
    assert _marks(agent.received, "zed") == {*FROM_THE_EDITOR}


def test_secrets_are_masked_in_every_message_to_the_editor(
    script: Script, relay: Serve, tmp_path: Path
) -> None:
    agent = script(EVERYTHING.replace('{"acme": name}', '{"acme": os.environ["ACME_API_KEY"] + name}'))

    frames = exchange_everything(agent, relay, tmp_path, ACME_API_KEY="k9dkq2mvb7w0zx1r")

    marks = _marks(frames, "acme")
    assert len(marks) == len(FROM_THE_AGENT)
    assert {mark for mark in marks if "k9dkq2mvb7w0zx1r" in mark} == set()


def exchange_everything(agent: Scripted, relay: Serve, tmp_path: Path, **env: str) -> list[Frame]:
    """Has each side send each message once that is passed on; returns what the editor got."""

    def mark(name: str, params: Frame) -> Frame:
        return {**params, "_meta": {"zed": name}}

    def answer(frame: Frame) -> Frame:
        method = frame["method"]
        return {"result": mark(f"answer to {method}", ANSWERS[method])}

    def send(method: str, **params: Any) -> Frame:
        frames.extend(answering(editor, editor.request(method, mark(method, params)), answer))
        assert "result" in frames[-1], frames[-1]
        return dict(frames[-1]["result"])

    (tmp_path / "a.txt").write_text("a")
    frames: list[Frame] = []
    capabilities = {
        "fs": {"readTextFile": True, "writeTextFile": True},
        "terminal": True,
        "elicitation": {"url": {}},
        "session": {"notices": {}, "compaction": {}},
    }
    info = {"name": "zed", "version": "1"}
    place = {"cwd": str(tmp_path), "mcpServers": []}
    hello = {"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": info}
    with relay(agent, cwd=tmp_path, env=env) as editor:
        send("initialize", **hello)
        send("authenticate", methodId="key")
        session = send("session/new", **place)["sessionId"]
        send("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}])
        send("logout")
    with relay(agent, cwd=tmp_path, env=env) as editor:
        send("initialize", **hello)
        send("session/resume", sessionId=session, **place)
    return frames


def _marks(value: Any, key: str) -> set[str]:
    """The names in all `_meta`, however deep."""
    if isinstance(value, list):
        return {mark for each in value for mark in _marks(each, key)}
    if not isinstance(value, dict):
        return set()
    own = value.get("_meta")
    found = {own[key]} if isinstance(own, dict) and key in own else set()
    return found | {mark for each in value.values() for mark in _marks(each, key)}


def test_both_ways_of_a_permission_request_keep_what_was_added(
    script: Script, relay: Serve, tmp_path: Path
) -> None:
    agent = script("""
        for prompt in prompts():
            asked = permission("p1", title="Look", _meta={"acme": "call"})
            asked["params"]["_meta"] = {"acme": "request"}
            asked["params"]["options"][0]["_meta"] = {"acme": "option"}
            send(asked)
            answer_to("p1")
            send(end(prompt))
    """)
    outcome = {"outcome": "selected", "optionId": "yes", "_meta": {"zed": "outcome"}}
    with relay(agent) as editor:
        editor.initialize()
        request = editor.prompt_request(editor.new_session(str(tmp_path)), "go")
        answer = {"outcome": outcome, "_meta": {"zed": 1}}
        frames = answering(editor, request, lambda frame: {"result": answer})
    [asked] = [frame["params"] for frame in frames if frame.get("method") == "session/request_permission"]

    assert asked["_meta"] == {"acme": "request"}
    assert asked["toolCall"]["_meta"] == {"acme": "call"}
    assert [option.get("_meta") for option in asked["options"][:2]] == [{"acme": "option"}, None]
    [answered] = agent.answers_to("p1")
    assert answered["result"] == answer


TALKS = """
    while True:
        asked = read()
        method = asked.get("method")
        if method == "initialize":
            capabilities = {"_meta": {"acme": {"steering": True}}}
            send(result(asked, {**HELLO, "_meta": {"acme": "hello"}, "agentCapabilities": capabilities}))
        elif method == "session/new":
            send(result(asked, {"sessionId": "s1", "_meta": {"acme": "opened"}}))
        elif method == "session/prompt":
            chunk = {"type": "text", "text": "said"}
            send(
                update("agent_thought_chunk", content={"type": "text", "text": "hm"}, _meta={"acme": 0}),
                update("agent_message_chunk", content=chunk, messageId="m1", _meta={"acme": 1}),
                update("agent_message_chunk", content=chunk, messageId="m1"),
                update("agent_message_chunk", content=chunk, messageId="m1", _meta={"acme": 2}),
                end(asked, _meta={"acme": {"quota": 7}}),
            )
"""


def test_what_both_sides_add_arrives(script: Script, relay: Serve, tmp_path: Path) -> None:
    agent = script(TALKS)
    with relay(agent) as editor:
        hello = editor.initialize(_meta={"terminal_output": True})["result"]
        assert hello["_meta"] == {"acme": "hello"}
        assert hello["agentCapabilities"]["_meta"] == {"acme": {"steering": True}}
        place = {"cwd": str(tmp_path), "mcpServers": [], "_meta": {"acme": {"option": 1}}}
        opened = editor.call("session/new", place)["result"]
        assert opened["_meta"] == {"acme": "opened"}
        request = editor.prompt_request(opened["sessionId"], "go")
        request["params"]["_meta"] = {"acme": {"turn": 1}}
        frames = answering(editor, request, chosen(""))
        assert frames[-1]["result"] == {"stopReason": "end_turn", "_meta": {"acme": {"quota": 7}}}
        said = updates(frames, "agent_message_chunk")
        assert [each.get("_meta") for each in said] == [{"acme": 1}, None, {"acme": 2}]
        assert [each["_meta"] for each in updates(frames, "agent_thought_chunk")] == [{"acme": 0}]
        assert texts(said) == "saidsaidsaid"
    [hello] = agent.received_of("initialize")
    assert hello["params"]["clientCapabilities"]["_meta"] == {"terminal_output": True}
    [new] = agent.received_of("session/new")
    assert new["params"]["_meta"] == {"acme": {"option": 1}}
    [prompt] = agent.received_of("session/prompt")
    assert prompt["params"]["_meta"] == {"acme": {"turn": 1}}


def test_secrets_in_it_are_masked(script: Script, relay: Serve, tmp_path: Path) -> None:
    agent = script("""
        import os
        for prompt in prompts():
            secret = {"acme": "the key is " + os.environ["ACME_API_KEY"]}
            text = {"type": "text", "text": "said"}
            send(update("agent_message_chunk", content=text, _meta=secret),
                 end(prompt, _meta=secret))
    """)
    with relay(agent, env={"ACME_API_KEY": "k9dkq2mvb7w0zx1r"}) as editor:
        editor.initialize()
        told, answer = editor.prompt(editor.new_session(str(tmp_path)), "go")
    assert "k9dkq2mvb7w0zx1r" not in str((told, answer))
    assert answer["result"]["_meta"]["acme"].startswith("the key is ")


def test_a_secret_that_is_cut_into_two_pieces_of_a_terminals_output_is_masked(
    script: Script, relay: Serve, tmp_path: Path
) -> None:
    agent = script("""
        import os
        def wrote(call, terminal, data, kind="tool_call_update", **more):
            output = {"terminal_output": {"terminal_id": terminal, "data": data}, **more}
            return update(kind, toolCallId=call, _meta=output)
        for prompt in prompts():
            key = os.environ["ACME_API_KEY"]
            first = {"terminal_output": {"terminal_id": "t1", "data": "first,"}}
            send(
                update("tool_call", toolCallId="c1", title="Run", status="in_progress", _meta=first),
                wrote("c1", "t1", "key=" + key[:6]),
                wrote("c1", "t2", key[:5]),
                wrote("c1", "t1", key[6:] + ";" + key[:4]),
                wrote("c1", "t1", "x" + key[:4], terminal_exit={"terminal_id": "t1", "exit_code": 0}),
                update("tool_call_update", toolCallId="c1", status="completed"),
                update("tool_call", toolCallId="c2", title="Run", status="in_progress"),
                wrote("c2", "t3", key[:5]),
                end(prompt),
            )
    """)
    key = "k9dkq2mvb7w0zx1r"
    with relay(agent, env={"ACME_API_KEY": key}) as editor:
        editor.initialize(_meta={"terminal_output": True})
        session = editor.new_session(str(tmp_path))
        told, _ = editor.prompt(session, "go")
    shown: dict[str, str] = {}
    for each in told:
        if (output := each.get("_meta", {}).get("terminal_output")) is not None:
            shown[output["terminal_id"]] = shown.get(output["terminal_id"], "") + output["data"]
    assert shown == {
        "t1": f"first,key=[secret:ACME_API_KEY];{key[:4]}x{key[:4]}",
        "t2": key[:5],
        "t3": key[:5],
    }
    assert key[6:] not in str(told)

    with relay(agent, env={"ACME_API_KEY": key}) as editor:
        editor.initialize()
        place = {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
        replayed = answering(editor, editor.request("session/load", place), chosen(""))
    assert "[secret:ACME_API_KEY]" in str(replayed)
    assert key[6:] not in str(replayed)


def test_a_terminal_that_the_agent_shows_by_terminal_info_is_one_for_the_editor(
    script: Script, relay: Serve, tmp_path: Path
) -> None:
    agent = script("""
        for prompt in prompts():
            wrote = {"terminal_output": {"terminal_id": "t1", "data": "tick\\n"}}
            send(
                update("tool_call", toolCallId="c1", title="Run", kind="execute", status="in_progress",
                       content=[{"type": "terminal", "terminalId": "t1"}],
                       _meta={"terminal_info": {"terminal_id": "t1"}}),
                update("tool_call_update", toolCallId="c1", _meta=wrote),
                update("tool_call_update", toolCallId="c1", _meta=wrote),
                update("tool_call_update", toolCallId="c1", status="completed",
                       _meta={"terminal_exit": {"terminal_id": "t1", "exit_code": 0}}),
                end(prompt),
            )
    """)
    with relay(agent) as editor:
        editor.initialize(_meta={"terminal_output": True})
        session = editor.new_session(str(tmp_path))
        told, _ = editor.prompt(session, "go")
    calls = [each for each in told if each["sessionUpdate"].startswith("tool_call")]
    assert calls[0]["_meta"] == {"terminal_info": {"terminal_id": "t1"}}
    shown = [each["content"] for each in calls if each.get("content")]
    assert shown == [[{"type": "terminal", "terminalId": "t1"}]]
    written = [each["_meta"].get("terminal_output") for each in calls if "_meta" in each]
    assert [*filter(None, written)] == [{"terminal_id": "t1", "data": "tick\n"}] * 2
    assert "terminal_exit" in calls[-1]["_meta"]

    with relay(agent) as editor:
        editor.initialize()
        place = {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []}
        replayed = answering(editor, editor.request("session/load", place), chosen(""))
        [call] = updates(replayed, "tool_call")
        assert "".join(_text(item) for item in call["content"]) == "tick\ntick\n"


def _text(item: Frame) -> str:
    return str(item["content"]["text"])
