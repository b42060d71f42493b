"""`_meta` passes a relay both ways, as it came."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from client.stage import Scripted
from raw_client import Frame, texts
from relay.conftest import Serve
from relay.editing import answering, chosen, updates

Script = Callable[[str], Scripted]

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
