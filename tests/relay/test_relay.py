"""Any agent behind `coupler serve -- COMMAND`: what it says, asks and does reaches the editor, and back."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from client import vendor_forms
from client.stage import Scripted, gone_within
from raw_client import COUPLER, RawClient, is_answer_to, texts
from relay.editing import answering, chosen, updates

Script = Callable[[str], Scripted]
Serve = Callable[..., RawClient]

ECHO = """
    for prompt in prompts():
        send(say(text_of(prompt), prompt["params"]["sessionId"]), end(prompt))
"""


def test_what_the_agent_says_arrives_with_its_ids(script: Script, relay: Serve) -> None:
    agent = script("""
        for prompt in prompts():
            plan = [{"content": "Look", "priority": "high", "status": "pending"}]
            send(
                say("he", messageId="m1"), say("llo", messageId="m1"),
                update("agent_thought_chunk", content={"type": "text", "text": "hm"}, messageId="m2"),
                update("tool_call", toolCallId="c1", title="Look", kind="read", rawInput={"path": "/a"}),
                update("tool_call_update", toolCallId="c1", status="completed",
                       content=[{"type": "content", "content": {"type": "text", "text": "seen"}}]),
                update("plan", entries=plan),
                update("usage_update", used=5, size=10),
                end(prompt, "max_tokens"),
            )
    """)
    with relay(agent) as editor:
        editor.initialize()
        told, answer = editor.prompt(editor.new_session(), "go")
    assert answer["result"] == {"stopReason": "max_tokens"}
    said = [each for each in told if each["sessionUpdate"] == "agent_message_chunk"]
    assert [(each["content"]["text"], each["messageId"]) for each in said] == [("he", "m1"), ("llo", "m1")]
    calls = [each for each in told if each["sessionUpdate"].startswith("tool_call")]
    assert {each["toolCallId"] for each in calls} == {"c1"}
    assert calls[0]["kind"] == "read" and calls[0]["rawInput"] == {"path": "/a"}
    assert calls[-1]["status"] == "completed"
    [shown] = [each["content"] for each in calls if each.get("content")]
    assert shown == [{"type": "content", "content": {"type": "text", "text": "seen"}}]
    assert {"plan", "usage_update", "agent_thought_chunk"} <= {each["sessionUpdate"] for each in told}


def test_content_that_is_replaced_is_shown_in_place_of_what_was_there(script: Script, relay: Serve) -> None:
    agent = script("""
        def shows(*items):
            content = [{"type": "content", "content": {"type": "text", "text": item}} for item in items]
            return update("tool_call_update", toolCallId="c1", content=content)
        for prompt in prompts():
            send(update("tool_call", toolCallId="c1", title="Work"), shows("a"), shows("a", "b"), shows("c"),
                 update("tool_call_update", toolCallId="c1", status="completed"), end(prompt))
    """)
    with relay(agent) as editor:
        editor.initialize()
        session = editor.new_session()
        told, _ = editor.prompt(session, "go")
        last = [each["content"] for each in told if each.get("toolCallId") == "c1" and each.get("content")][
            -1
        ]
        assert [item["content"]["text"] for item in last] == ["c"]
    with relay(agent) as editor:
        editor.initialize()
        request = editor.request("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
        [call] = updates(answering(editor, request, chosen("")), "tool_call")
        assert [item["content"]["text"] for item in call["content"]] == ["c"]


def test_settings_are_mirrored_both_ways(script: Script, relay: Serve) -> None:
    agent = script("""
        MODES = {"currentModeId": "ask", "availableModes": [
            {"id": "ask", "name": "Ask"}, {"id": "auto", "name": "Auto"}]}
        def options(value):
            return [{"type": "select", "id": "model", "name": "Model", "category": "model",
                     "currentValue": value,
                     "options": [{"value": "small", "name": "Small"}, {"value": "large", "name": "Large"}]}]
        while True:
            frame = read()
            method = frame.get("method")
            if method == "initialize":
                send(result(frame, HELLO))
            elif method == "session/new":
                send(result(frame, {"sessionId": "s1", "modes": MODES, "configOptions": options("small")}),
                     update("available_commands_update",
                            availableCommands=[{"name": "web", "description": "Search"}]))
            elif method == "session/set_config_option":
                send(result(frame, {"configOptions": options(frame["params"]["value"])}))
            elif method == "session/set_mode":
                send(result(frame, {}))
            elif method == "session/prompt":
                send(update("current_mode_update", currentModeId="ask"),
                     update("session_info_update", title="A title"), say("done"), end(frame))
    """)
    with relay(agent) as editor:
        editor.initialize()
        opened = editor.call("session/new", {"cwd": "/", "mcpServers": []})["result"]
        session = opened["sessionId"]
        assert opened["modes"]["currentModeId"] == "ask"
        assert [option["id"] for option in opened["configOptions"]] == ["mode", "model"]
        editor.call("session/set_mode", {"sessionId": session, "modeId": "auto"})
        wish = {"sessionId": session, "configId": "model", "value": "large"}
        changed = editor.call("session/set_config_option", wish)["result"]["configOptions"]
        assert [option["currentValue"] for option in changed] == ["auto", "large"]
        refused = editor.call("session/set_config_option", {**wish, "value": "huge"})
        assert refused["error"]["code"] == -32602
        told, _ = editor.prompt(session, "go")
        assert {"sessionUpdate": "current_mode_update", "currentModeId": "ask"} in told
        assert {"sessionUpdate": "session_info_update", "title": "A title"} in told
        offered = [each["availableCommands"] for each in told if "availableCommands" in each]
        assert [command["name"] for command in offered[-1]] == ["web"]
    assert agent.received_of("session/set_mode")[0]["params"]["modeId"] == "auto"
    assert len(agent.received_of("session/set_config_option")) == 1


ASKS = """
    for prompt in prompts():
        id = prompt["id"] + 100
        send(update("tool_call", toolCallId="c" + str(id), title="Delete", kind="delete",
                    locations=[{"path": text_of(prompt)}]),
             request(id, "session/request_permission", sessionId="s1", toolCall={"toolCallId": "c" + str(id)},
                     options=[{"optionId": "go", "name": "Go ahead", "kind": "allow_once"},
                              {"optionId": "stop", "name": "Stop", "kind": "reject_once"}]))
        send(say(answer_to(id)["result"]["outcome"].get("optionId", "cancelled")), end(prompt))
"""


def test_the_user_is_asked_with_the_agents_own_options_and_what_is_remembered_holds(
    script: Script, relay: Serve, tmp_path: Path
) -> None:
    agent = script(ASKS)
    path = str(tmp_path / "notes.txt")
    with relay(agent) as editor:
        editor.initialize()
        session = editor.new_session(str(tmp_path))
        frames = answering(editor, editor.prompt_request(session, path), chosen("go"))
        [asked] = [frame["params"] for frame in frames if frame.get("method") == "session/request_permission"]
        shown = [option["name"] for option in asked["options"]]
        assert shown[:2] == ["Allow once: Go ahead", "Reject once: Stop"]
        names = [(option["optionId"], option["kind"]) for option in asked["options"]]
        assert names[:2] == [("go", "allow_once"), ("stop", "reject_once")]
        assert [kind for _, kind in names[2:]] == ["allow_always", "reject_always"]
        assert asked["toolCall"]["title"] == "Delete" and asked["sessionId"] == session
        assert texts(updates(frames, "agent_message_chunk")) == "go"
        # "Always" is ours: the agent is told yes, and the next time nobody is asked.
        answering(editor, editor.prompt_request(session, path), chosen("allow_always"))
        told, _ = editor.prompt(session, path)
        assert texts(told) == "go"


def test_a_rule_decides_before_the_user_is_asked(script: Script, relay: Serve, tmp_path: Path) -> None:
    (tmp_path / "coupler.toml").write_text('[permissions]\ndeny = ["delete"]\n')
    with relay(script(ASKS)) as editor:
        editor.initialize()
        told, _ = editor.prompt(editor.new_session(str(tmp_path)), str(tmp_path / "notes.txt"))
        assert texts(told) == "stop"


@pytest.mark.parametrize(
    ("rules", "answers"), [('deny = ["mcp:tickets"]', {"no"}), ('allow = ["mcp:tickets(echo)"]', {"yes"})]
)
def test_a_rule_about_an_mcp_server_decides_in_the_form_of_every_agent(
    script: Script, relay: Serve, tmp_path: Path, coupler_home: Path, rules: str, answers: set[str]
) -> None:
    coupler_home.mkdir()
    (coupler_home / "coupler.toml").write_text(f"[permissions]\n{rules}\n")
    agent = script(vendor_forms.ASKS)
    forms = vendor_forms.asked_by_agents("tickets", "echo", {"text": "hi"})
    server = {"name": "tickets", "command": "no-such-program", "args": [], "env": []}
    with relay(agent) as editor:
        editor.initialize()
        editor.prompt(editor.new_session(str(tmp_path), server), json.dumps([*forms.values()]))
    told = dict(zip(forms, agent.noted("answer"), strict=True))
    assert {*told.values()} == answers, told


def test_what_the_agents_own_id_says_reaches_whoever_is_asked(
    script: Script, relay: Serve, tmp_path: Path
) -> None:
    agent = script(vendor_forms.ASKS)
    forms = vendor_forms.asked_by_agents("tickets", "echo", {"text": "hi"})
    server = {"name": "tickets", "command": "no-such-program", "args": [], "env": []}
    with relay(agent) as editor:
        editor.initialize()
        session = editor.new_session(str(tmp_path), server)
        frames = answering(
            editor, editor.prompt_request(session, json.dumps([*forms.values()])), chosen("no")
        )
    asked = [frame["params"] for frame in frames if frame.get("method") == "session/request_permission"]
    assert {each["toolCall"].get("name") for each in asked} == {"mcp__tickets__echo"}
    assert len(asked) == len(forms)


def test_a_question_with_several_yeses_is_the_users_even_if_a_rule_would_allow_it(
    script: Script, relay: Serve, tmp_path: Path, coupler_home: Path
) -> None:
    coupler_home.mkdir()
    (coupler_home / "coupler.toml").write_text('[permissions]\nallow = ["other"]\n')
    agent = script("""
        for prompt in prompts():
            send(permission(7, [("red", "allow_once"), ("blue", "allow_once"), ("no", "reject_once")],
                            title="Which colour?", kind="other"))
            send(say(answer_to(7)["result"]["outcome"]["optionId"]), end(prompt))
    """)
    with relay(agent) as editor:
        editor.initialize()
        frames = answering(editor, editor.prompt_request(editor.new_session(), "go"), chosen("blue"))
        assert texts(updates(frames, "agent_message_chunk")) == "blue"


READS = """
    for prompt in prompts():
        send(request(7, "fs/read_text_file", sessionId="s1", path=text_of(prompt)))
        answer = answer_to(7)
        content = answer["result"]["content"] if "result" in answer else answer["error"]["message"]
        send(say(content), end(prompt))
"""


def test_files_are_the_editors_where_it_offers_them_and_the_disks_otherwise(
    script: Script, relay: Serve, tmp_path: Path
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("saved")
    with relay(script(READS)) as editor:
        editor.initialize(fs={"readTextFile": True, "writeTextFile": False})
        session = editor.new_session(str(tmp_path))
        unsaved = {"result": {"content": "unsaved"}}
        frames = answering(editor, editor.prompt_request(session, str(path)), lambda frame: unsaved)
        assert texts(updates(frames, "agent_message_chunk")) == "unsaved"
        [asked] = [frame["params"] for frame in frames if frame.get("method") == "fs/read_text_file"]
        assert (asked["sessionId"], asked["path"]) == (session, str(path))
    with relay(script(READS)) as editor:
        editor.initialize()
        told, _ = editor.prompt(editor.new_session(str(tmp_path)), str(path))
        assert texts(told) == "saved"


@pytest.mark.parametrize("is_missing", [True, False])
def test_an_empty_text_for_a_file_that_is_missing_is_an_error(
    script: Script, relay: Serve, tmp_path: Path, is_missing: bool
) -> None:
    path = tmp_path / "notes.txt"
    if not is_missing:
        path.touch()
    with relay(script(READS)) as editor:
        editor.initialize(fs={"readTextFile": True, "writeTextFile": False})
        request = editor.prompt_request(editor.new_session(str(tmp_path)), str(path))
        frames = answering(editor, request, lambda frame: {"result": {"content": ""}})
    said = texts(updates(frames, "agent_message_chunk"))
    assert said == (f"there is no file {str(path)!r}" if is_missing else "")


@pytest.mark.parametrize("offered", [True, False])
def test_nothing_outside_of_the_sessions_directories_is_read(
    script: Script, relay: Serve, tmp_path: Path, offered: bool
) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    with relay(script(READS)) as editor:
        editor.initialize(fs={"readTextFile": offered, "writeTextFile": False})
        told, _ = editor.prompt(editor.new_session(str(tmp_path / "inside")), str(tmp_path / "secret.txt"))
        assert "outside of the session's directories" in texts(told)


RUNS = """
    for prompt in prompts():
        first = prompt["id"] * 100
        send(request(first, "terminal/create", sessionId="s1", command="echo", args=["hello"]))
        answer = answer_to(first)
        if "error" in answer:
            send(say(answer["error"]["message"]), end(prompt))
            continue
        terminal = answer["result"]["terminalId"]
        send(update("tool_call", toolCallId="c1", title="Say hello", kind="execute", status="in_progress",
                    content=[{"type": "terminal", "terminalId": terminal}]),
             request(first + 1, "terminal/wait_for_exit", sessionId="s1", terminalId=terminal))
        answer_to(first + 1)
        send(request(first + 2, "terminal/output", sessionId="s1", terminalId=terminal))
        output = answer_to(first + 2)["result"]["output"]
        send(request(first + 3, "terminal/release", sessionId="s1", terminalId=terminal))
        answer_to(first + 3)
        send(update("tool_call_update", toolCallId="c1", status="completed"), say(output), end(prompt))
"""


def test_a_command_runs_here_if_the_editor_has_no_terminals(
    script: Script, relay: Serve, tmp_path: Path
) -> None:
    with relay(script(RUNS)) as editor:
        editor.initialize()
        told, _ = editor.prompt(editor.new_session(str(tmp_path)), "go")
        assert texts(told) == "hello\n"
        shown = [each["content"] for each in told if each.get("toolCallId") == "c1" and each.get("content")]
        assert shown[-1] == [{"type": "content", "content": {"type": "text", "text": "hello\n"}}]


def test_a_command_runs_in_the_editors_terminal_and_its_output_is_kept(
    script: Script, relay: Serve, tmp_path: Path
) -> None:
    answers = {
        "terminal/create": {"terminalId": "t1"},
        "terminal/wait_for_exit": {"exitCode": 0},
        "terminal/output": {"output": "from the editor", "truncated": False},
        "terminal/release": {},
    }
    agent = script(RUNS)
    with relay(agent) as editor:
        editor.initialize(terminal=True)
        session = editor.new_session(str(tmp_path))
        request = editor.prompt_request(session, "go")
        frames = answering(editor, request, lambda frame: {"result": answers[frame["method"]]})
        assert texts(updates(frames, "agent_message_chunk")) == "from the editor"
        assert {"type": "terminal", "terminalId": "t1"} in [
            item for each in updates(frames, "tool_call_update") for item in each.get("content") or ()
        ]
        [created] = [frame["params"] for frame in frames if frame.get("method") == "terminal/create"]
        assert (created["sessionId"], created["cwd"]) == (session, str(tmp_path))
    with relay(agent) as editor:
        editor.initialize()
        place = {"cwd": str(tmp_path), "mcpServers": []}
        replayed = answering(
            editor, editor.request("session/load", {"sessionId": session, **place}), chosen("")
        )
        [call] = updates(replayed, "tool_call")
        assert [item["content"]["text"] for item in call["content"]] == ["from the editor"]


def test_a_command_runs_here_if_the_editors_terminals_change_arguments(
    script: Script, relay: Serve, tmp_path: Path
) -> None:
    answers = {
        "terminal/create": {"terminalId": "t1"},
        "terminal/wait_for_exit": {"exitCode": 0},
        "terminal/output": {"output": "[two]n[spaces]n", "truncated": False},
        "terminal/release": {},
    }
    with relay(script(RUNS)) as editor:
        editor.initialize(client="VS Code ACP Client", terminal=True)
        request = editor.prompt_request(editor.new_session(str(tmp_path)), "go")
        frames = answering(editor, request, lambda frame: {"result": answers[frame["method"]]})
        [created] = [frame["params"] for frame in frames if frame.get("method") == "terminal/create"]
        assert created["command"] == "printf"
        told = texts(updates(frames, "agent_message_chunk"))
        assert "Commands do not run in your editor's terminals" in told
        assert told.endswith("hello\n")


def test_a_rule_forbids_what_the_agent_does_without_asking(
    script: Script, relay: Serve, tmp_path: Path
) -> None:
    (tmp_path / "coupler.toml").write_text('[permissions]\ndeny = ["execute(echo *)"]\n')
    with relay(script(RUNS)) as editor:
        editor.initialize()
        told, _ = editor.prompt(editor.new_session(str(tmp_path)), "go")
        assert texts(told).startswith("not permitted")


def test_a_rule_that_asks_has_the_user_asked_before_the_agent_goes_on(
    script: Script, relay: Serve, tmp_path: Path
) -> None:
    (tmp_path / "coupler.toml").write_text('[permissions]\nask = ["execute(echo *)"]\n')
    with relay(script(RUNS)) as editor:
        editor.initialize()
        session = editor.new_session(str(tmp_path))
        frames = answering(editor, editor.prompt_request(session, "go"), chosen("reject_once"))
        assert "not permitted" in texts(updates(frames, "agent_message_chunk"))
        frames = answering(editor, editor.prompt_request(session, "go"), chosen("allow_once"))
        assert texts(updates(frames, "agent_message_chunk")) == "hello\n"


def test_a_form_reaches_an_editor_that_takes_it_and_is_not_offered_otherwise(
    script: Script, relay: Serve
) -> None:
    agent = script("""
        for prompt in prompts():
            schema = {"type": "object", "properties": {"name": {"type": "string"}}}
            send(request(os.getpid(), "elicitation/create", sessionId="s1", mode="form", message="Who?",
                         requestedSchema=schema))
            answer = answer_to(os.getpid())
            send(say(answer["result"]["content"]["name"] if "result" in answer else "nobody"), end(prompt))
    """)
    with relay(agent) as editor:
        editor.initialize(elicitation={"form": {}})
        filled_in = {"result": {"action": "accept", "content": {"name": "Ada"}}}
        request = editor.prompt_request(editor.new_session(), "go")
        frames = answering(editor, request, lambda frame: filled_in)
        assert texts(updates(frames, "agent_message_chunk")) == "Ada"
    with relay(agent) as editor:
        editor.initialize()
        assert texts(editor.prompt(editor.new_session(), "go")[0]) == "nobody"
    offered = [frame["params"]["clientCapabilities"] for frame in agent.received_of("initialize")]
    assert ["elicitation" in each for each in offered] == [True, False]


def test_a_cancel_is_passed_on_and_the_dialog_is_taken_back(script: Script, relay: Serve) -> None:
    agent = script("""
        for prompt in prompts():
            send(say("started"), permission(7, kind="edit", title="Edit"))
            read_until(is_cancel)
            send(end(prompt, "cancelled"))
    """)
    with relay(agent) as editor:
        editor.initialize()
        session = editor.new_session()
        request = editor.prompt_request(session, "go")
        editor.send(request)
        editor.read_until(lambda frame: frame.get("method") == "session/request_permission")
        editor.send({"method": "session/cancel", "params": {"sessionId": session}})
        assert editor.answer_to(request)["result"] == {"stopReason": "cancelled"}
    assert len(agent.received_of("session/cancel")) == 1


def test_an_agent_that_dies_costs_the_turn_and_the_next_prompt_starts_it_again(
    script: Script, relay: Serve
) -> None:
    agent = script("""
        for prompt in prompts():
            if "die" in text_of(prompt)[-5:]:
                sys.stderr.write("out of luck\\n")
                sys.stderr.flush()
                os._exit(3)
            send(say("alive"), end(prompt))
    """)
    with relay(agent) as editor:
        editor.initialize()
        session = editor.new_session()
        editor.prompt(session, "my name is Ada")
        _, answer = editor.prompt(session, "die")
        assert "out of luck" in answer["error"]["message"] and "exit code: 3" in answer["error"]["message"]
        told, answer = editor.prompt(session, "go on")
        assert (texts(told), answer["result"]) == ("alive", {"stopReason": "end_turn"})
    *_, last = agent.received_of("session/prompt")
    transcript, prompt = (block["text"] for block in last["params"]["prompt"])
    assert prompt == "go on"
    assert "User: my name is Ada" in transcript and "You: alive" in transcript and "do not act" in transcript


def test_without_a_store_the_user_is_told_that_a_restarted_agent_has_forgotten(
    script: Script, relay: Serve
) -> None:
    agent = script("""
        for prompt in prompts():
            if text_of(prompt) == "die":
                os._exit(3)
            send(say("alive"), end(prompt))
    """)
    with relay(agent, "--no-store") as editor:
        assert editor.initialize()["result"]["agentCapabilities"]["loadSession"] is False
        session = editor.new_session()
        editor.prompt(session, "die")
        assert "does not remember" in texts(editor.prompt(session, "go on")[0])


def test_a_session_is_loaded_though_the_agent_can_load_none(script: Script, relay: Serve) -> None:
    agent = script(ECHO)
    with relay(agent) as editor:
        editor.initialize()
        session = editor.new_session()
        editor.prompt(session, "my name is Ada")
    with relay(agent) as editor:
        assert editor.initialize()["result"]["agentCapabilities"]["loadSession"] is True
        listed = editor.call("session/list", {})["result"]["sessions"]
        assert [each["sessionId"] for each in listed] == [session]
        request = editor.request("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
        replayed = answering(editor, request, chosen(""))
        assert texts(updates(replayed, "agent_message_chunk")) == "my name is Ada"
        told, _ = editor.prompt(session, "who am I?")
        assert "User: my name is Ada" in texts(told)
        assert texts(editor.prompt(session, "again")[0]) == "again"


RESUMES = """
    CAPABILITIES = {"loadSession": True, "sessionCapabilities": {"resume": {}, "close": {}}}
    opened = 0
    while True:
        frame = read()
        method = frame.get("method")
        if method == "initialize":
            send(result(frame, {"protocolVersion": 1, "agentCapabilities": CAPABILITIES}))
        elif method == "session/new":
            opened += 1
            send(result(frame, {"sessionId": f"{os.getpid()}-{opened}"}))
        elif method == "session/prompt":
            send(say(text_of(frame), frame["params"]["sessionId"]), end(frame))
        elif "id" in frame:
            send(result(frame, {}))
"""


def test_an_agent_that_can_resume_goes_on_with_its_own_session(script: Script, relay: Serve) -> None:
    agent = script(RESUMES)
    with relay(agent) as editor:
        editor.initialize()
        session = editor.new_session()
        editor.prompt(session, "one")
    with relay(agent) as editor:
        editor.initialize()
        editor.call("session/resume", {"sessionId": session, "cwd": "/", "mcpServers": []})
        assert texts(editor.prompt(session, "two")[0]) == "two"
    [resumed] = agent.received_of("session/resume")
    assert resumed["params"]["sessionId"] == agent.received_of("session/prompt")[0]["params"]["sessionId"]
    assert len(agent.received_of("session/new")) == 1


def test_a_fork_is_another_session_behind_us_too(script: Script, relay: Serve) -> None:
    agent = script(RESUMES)
    with relay(agent, "--drafts", "fork") as editor:
        editor.initialize()
        session = editor.new_session()
        editor.prompt(session, "my name is Ada")
        forked = editor.call("session/fork", {"sessionId": session, "cwd": "/", "mcpServers": []})
        told, _ = editor.prompt(forked["result"]["sessionId"], "who am I?")
        assert "User: my name is Ada" in texts(told)
    ids = {frame["params"]["sessionId"] for frame in agent.received_of("session/prompt")}
    assert len(ids) == 2


def test_embedded_files_are_written_out_for_an_agent_without_them_and_images_are_refused(
    script: Script, relay: Serve
) -> None:
    with relay(script(ECHO)) as editor:
        takes = editor.initialize()["result"]["agentCapabilities"]["promptCapabilities"]
        assert takes.get("embeddedContext") is True and not takes.get("image")
        session = editor.new_session()
        resource = {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}}
        request = editor.request("session/prompt", {"sessionId": session, "prompt": [resource]})
        told = answering(editor, request, chosen(""))
        expected = "[Resource: a.txt](file:///a.txt)\n```\ninside\n```"
        assert texts(updates(told, "agent_message_chunk")) == expected
        image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
        refused = editor.call("session/prompt", {"sessionId": session, "prompt": [image]})
        assert "takes no image blocks" in refused["error"]["message"]


def test_logging_in_is_passed_on(script: Script, relay: Serve) -> None:
    agent = script("""
        logged_in = False
        while True:
            frame = read()
            method = frame.get("method")
            if method == "initialize":
                ways = [{"id": "browser", "name": "Browser"},
                        {"type": "terminal", "id": "tty", "name": "Terminal", "args": ["login"]}]
                send(result(frame, {**HELLO, "authMethods": ways}))
            elif method == "authenticate":
                logged_in = frame["params"]["methodId"] == "browser"
                send(result(frame, {}))
            elif not logged_in:
                send(error(frame, -32000, "log in first"))
            else:
                send(result(frame, {"sessionId": "s1"}))
    """)
    with relay(agent) as editor:
        ways = editor.initialize(auth={"terminal": True})["result"]["authMethods"]
        assert [way["id"] for way in ways] == ["browser", "tty"]
        assert ways[1]["args"] == ["login"] and "COUPLER_RELAY_LOGIN" in ways[1]["env"]
        refused = editor.call("session/new", {"cwd": "/", "mcpServers": []})["error"]
        assert refused["code"] == -32000
        assert "log in first" in refused["message"] and "coupler login" in refused["message"]
        editor.call("authenticate", {"methodId": "browser"})
        assert editor.new_session()


def test_a_login_in_a_terminal_runs_the_agents_own_command(tmp_path: Path) -> None:
    command = [*COUPLER, "serve", "--", sys.executable, "-c", "print('logging in')"]
    with RawClient(*command, env={"COUPLER_RELAY_LOGIN": "1"}) as terminal:
        assert terminal.wait() == 0
        assert terminal.lines == [b"logging in\n"]


def test_secrets_in_what_the_agent_says_are_masked(
    script: Script, relay: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXAMPLE_API_KEY", "sk-a1b2c3d4e5f6g7h8")
    agent = script("""
        for prompt in prompts():
            send(say("it is sk-a1b2"), say("c3d4e5f6g7h8"), end(prompt))
    """)
    with relay(agent) as editor:
        editor.initialize()
        told, _ = editor.prompt(editor.new_session(), "go")
        assert "sk-a1b2c3d4e5f6g7h8" not in texts(told)
        assert texts(told).startswith("it is ")


def test_from_the_second_start_on_hello_is_said_before_the_agent_is_there(
    script: Script, relay: Serve
) -> None:
    agent = script("""
        import pathlib, time
        GATE = pathlib.Path(sys.argv[1]).with_suffix(".gate")
        frame = read()
        while not GATE.exists():
            time.sleep(0.01)
        send(result(frame, {**HELLO, "agentInfo": {"name": "slow", "version": "1"}}))
        send(result(read(), {"sessionId": "s1"}))
        read()
    """)
    gate = agent.log.with_suffix(".gate")
    gate.touch()
    with relay(agent) as editor:
        first = editor.initialize()
        editor.new_session()
    gate.unlink()
    with relay(agent) as editor:
        assert editor.initialize()["result"] == first["result"]
        gate.touch()
        assert editor.new_session()


def test_an_agent_that_cannot_be_started_is_told_where_sessions_are_asked_for(relay: Serve) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such model')"]
    with relay(command) as editor:
        info = editor.initialize()["result"]["agentInfo"]
        assert info["name"] == info["title"] == sys.executable
        refused = editor.call("session/new", {"cwd": "/", "mcpServers": []})["error"]
        assert "no such model" in refused["message"]
    assert editor.stderr.count(b"could not start") == 1
    assert b"Traceback" not in editor.stderr


def test_the_agent_behind_ends_with_the_editor(script: Script, relay: Serve) -> None:
    agent = script(ECHO)
    with relay(agent) as editor:
        editor.initialize()
        editor.new_session()
        editor.close_stdin()
        assert editor.wait() == 0
    assert gone_within(2.0, agent.noted("pid")[0])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--"], "say which agent to start"),
        (["app.py", "--", "agent"], "not both"),
    ],
)
def test_wrong_usage_is_a_sentence(arguments: list[str], sentence: str) -> None:
    with RawClient(*COUPLER, "serve", *arguments) as program:
        assert program.wait() == 2
        assert sentence in program.stderr.decode()


def test_a_script_serves_what_it_connects_to(script: Script, tmp_path: Path) -> None:
    agent = script(ECHO)
    program = tmp_path / "served.py"
    program.write_text(f"from coupler import connect, serve\nserve(connect({agent.command!r}))\n")
    for command in ([sys.executable, str(program)], [*COUPLER, "serve", str(program)]):
        with RawClient(*command) as editor:
            editor.initialize()
            assert texts(editor.prompt(editor.new_session(), "hello")[0]) == "hello"
            editor.close_stdin()
            assert editor.wait() == 0


def test_an_agent_that_ignores_a_cancel_does_not_speak_in_the_next_turn(script: Script, relay: Serve) -> None:
    agent = script(
        """
        for prompt in prompts():
            if text_of(prompt) == "deaf":
                send(say("started"))
                read_until(is_cancel)
                time.sleep(6)
                send(say("too late"), end(prompt, "cancelled"))
            else:
                send(say("done"), end(prompt))
    """.replace("        for", "        import time\n        for", 1)
    )
    with relay(agent) as editor:
        editor.initialize()
        session = editor.new_session()
        request = editor.prompt_request(session, "deaf")
        editor.send(request)
        editor.read_until(lambda frame: "started" in str(frame))
        editor.send({"method": "session/cancel", "params": {"sessionId": session}})
        assert editor.answer_to(request)["result"] == {"stopReason": "cancelled"}
        told, answer = editor.prompt(session, "go")
        assert (texts(told), answer["result"]) == ("done", {"stopReason": "end_turn"})


def test_what_is_said_between_turns_is_passed_on_and_kept(script: Script, relay: Serve) -> None:
    agent = script("""
        for prompt in prompts():
            send(say("answer"), end(prompt), say("by the way"))
    """)
    with relay(agent) as editor:
        editor.initialize()
        session = editor.new_session()
        request = editor.prompt_request(session, "go")
        editor.send(request)
        frames = editor.read_until(lambda frame: "by the way" in str(frame))
        if not any(is_answer_to(frame, request["id"]) for frame in frames):
            editor.answer_to(request)
    with relay(agent) as editor:
        editor.initialize()
        request = editor.request("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
        replayed = updates(answering(editor, request, chosen("")), "agent_message_chunk")
        assert [each["content"]["text"] for each in replayed] == ["answer", "by the way"]


def test_the_editors_mcp_servers_reach_the_agent_or_are_bridged(script: Script, relay: Serve) -> None:
    agent = script(ECHO)
    stdio = {"name": "files", "command": "/bin/files", "args": ["-v"], "env": []}
    http = {"type": "http", "name": "web", "url": "http://127.0.0.1:9/mcp", "headers": []}
    with relay(agent) as editor:
        capabilities = editor.initialize()["result"]["agentCapabilities"]
        assert capabilities["mcpCapabilities"]["http"] is True
        answer = editor.call("session/new", {"cwd": "/", "mcpServers": [stdio, http]})
        assert "result" in answer
    [opened] = agent.received_of("session/new")
    passed = {server["name"]: server for server in opened["params"]["mcpServers"]}
    assert passed["files"] == stdio
    assert "type" not in passed["web"] and passed["web"]["command"]


def test_a_session_that_is_opened_again_with_other_servers_is_opened_again_behind_us(
    script: Script, relay: Serve
) -> None:
    agent = script(RESUMES)
    server = {"name": "files", "command": "/bin/files", "args": [], "env": []}
    with relay(agent) as editor:
        editor.initialize()
        session = editor.new_session()
        editor.prompt(session, "one")
        editor.call("session/resume", {"sessionId": session, "cwd": "/", "mcpServers": [server]})
        assert texts(editor.prompt(session, "two")[0]) == "two"
    [resumed] = agent.received_of("session/resume")
    assert resumed["params"]["mcpServers"] == [server]
    assert len(agent.received_of("session/close")) >= 1


def test_requests_right_behind_initialize_wait_for_the_agents_own_answer(
    script: Script, relay: Serve
) -> None:
    with relay(script(ECHO)) as editor:
        hello = editor.request("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        new = editor.request("session/new", {"cwd": "/", "mcpServers": []})
        unknown = editor.request("session/unknown", {})
        editor.send(hello, new, unknown)
        assert editor.answer_to(hello)["result"]["agentCapabilities"]["loadSession"] is True
        assert editor.answer_to(unknown)["error"]["code"] == -32601
        assert editor.answer_to(new)["result"]["sessionId"]


def test_a_stubborn_agent_is_ended_with_the_editor(script: Script, relay: Serve) -> None:
    agent = script("""
        import signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open_sessions()
        while True:
            time.sleep(1)
    """)
    with relay(agent) as editor:
        editor.initialize()
        editor.new_session()
        editor.close_stdin()
        editor.wait(5.0)
    assert gone_within(2.0, agent.noted("pid")[0])


def test_whatever_an_agent_says_the_editor_gets_valid_frames_and_the_turn_ends(
    script: Script, relay: Serve, tmp_path: Path
) -> None:
    agent = script("""
        def ask(method, **params):
            global asked
            asked += 1
            send(request(asked, method, sessionId="s1", **params))
            return answer_to(asked)
        asked = 1000
        read_hello = read()
        send(result(read_hello, HELLO))
        modes = [{"id": "", "name": ""}, {"id": "a", "name": "A"}, {"id": "a", "name": "Again"}]
        select = {"type": "select", "id": "x", "name": "X", "currentValue": "gone", "options": []}
        send(result(read(), {"sessionId": "s1", "configOptions": [select, {"type": "new", "id": "y"}],
                             "modes": {"currentModeId": "gone", "availableModes": modes}}))
        prompt = read()
        text = {"type": "text", "text": "t"}
        send(
            update("available_commands_update", availableCommands=[
                {"name": "two words", "description": "d"}, {"name": "", "description": ""},
                {"name": "fine", "description": "d"}]),
            update("current_mode_update", currentModeId="gone"),
            update("something_new", value=1),
            update("tool_call_update", toolCallId="never announced", status="completed"),
            update("tool_call", toolCallId="", title="", kind="new kind", status="new status"),
            update("tool_call", toolCallId="c1", title="T", content=[{"type": "new"}, {"type": "content",
                   "content": {"type": "new"}}, {"type": "terminal", "terminalId": "nobody's"}]),
            update("tool_call_update", toolCallId="c1", status="failed"),
            update("tool_call_update", toolCallId="c1", status="in_progress"),
            update("tool_call", toolCallId="c1", title="Again"),
            update("agent_message_chunk", content={"type": "new"}),
            update("user_message_chunk", content=text),
            update("session_info_update", title=None),
            update("plan", entries=[{"content": "x", "priority": "new", "status": "new"}]),
            update("notice", severity="info", title="n"),
            update("compaction_update", compactionId="k", status="new"),
            update("agent_message_chunk", content=text, messageId=""),
        )
        assert "error" in ask("fs/read_text_file", path="relative")
        assert "error" in ask("terminal/output", terminalId="nobody's")
        assert "error" in ask("terminal/create", command="echo", cwd="/proc")
        assert "error" in ask("session/new_method")
        answer = ask("session/request_permission", toolCall={"toolCallId": "unknown"}, options=[])
        assert answer["result"]["outcome"]["outcome"] == "cancelled", answer
        send(say("still here"), end(prompt, "new reason"))
        read()
    """)
    with relay(agent) as editor:
        editor.initialize()
        session = editor.new_session(str(tmp_path))
        frames = answering(
            editor, editor.prompt_request(session, "go"), lambda frame: {"result": {"outcome": CANCELLED}}
        )
        assert frames[-1].get("result") == {"stopReason": "end_turn"}, frames[-1]
        assert texts(updates(frames, "agent_message_chunk")) == "ntstill here"


CANCELLED = {"outcome": "cancelled"}


def test_what_the_user_has_set_is_set_again_when_the_session_is_opened_again(
    script: Script, relay: Serve
) -> None:
    agent = script("""
        MODES = {"currentModeId": "ask", "availableModes": [
            {"id": "ask", "name": "Ask"}, {"id": "auto", "name": "Auto"}]}
        while True:
            frame = read()
            method = frame.get("method")
            if method == "initialize":
                send(result(frame, {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}))
            elif method == "session/new":
                send(result(frame, {"sessionId": "s1", "modes": MODES}))
            elif method == "session/load":
                send(say("of before"), result(frame, {"modes": MODES}))
            elif method == "session/prompt":
                send(say("done"), end(frame))
            elif "id" in frame:
                send(result(frame, {}))
    """)
    with relay(agent) as editor:
        editor.initialize()
        session = editor.new_session()
        editor.call("session/set_mode", {"sessionId": session, "modeId": "auto"})
        editor.prompt(session, "go")
    with relay(agent) as editor:
        editor.initialize()
        request = editor.request("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
        frames = answering(editor, request, chosen(""))
        assert frames[-1]["result"]["modes"]["currentModeId"] == "auto"
        # The history is told by us, and not a second time by the agent.
        assert texts(updates(frames, "agent_message_chunk")) == "done"
    assert [frame["params"]["modeId"] for frame in agent.received_of("session/set_mode")] == ["auto", "auto"]


@pytest.mark.parametrize("before", ["", "send(update('tool_call', toolCallId='c1', title='Run'))"])
@pytest.mark.parametrize("after", ["", "send(say('Then I do not.'))"])
def test_a_rejected_call_that_the_agent_says_no_more_of_has_failed(
    script: Script, relay: Serve, tmp_path: Path, before: str, after: str
) -> None:
    agent = script(f"""
        for prompt in prompts():
            {before}
            send(permission(1, kind="execute", title="Run", rawInput={{"command": "ls"}}))
            answer_to(1)
            {after}
            send(end(prompt))
    """)
    with relay(agent) as editor:
        editor.initialize()
        session = editor.new_session(str(tmp_path))
        frames = answering(editor, editor.prompt_request(session, "go"), chosen("no"))
    updates = [frame["params"]["update"] for frame in frames if frame.get("method") == "session/update"]
    statuses = [each["status"] for each in updates if each.get("status")]
    assert statuses == ["pending", "failed"]


def test_a_yes_to_one_thing_does_not_lift_what_a_rule_denies(
    script: Script, relay: Serve, tmp_path: Path, coupler_home: Path
) -> None:
    coupler_home.mkdir()
    (coupler_home / "coupler.toml").write_text('[permissions]\ndeny = ["read(notes.txt)"]\n')
    (tmp_path / "notes.txt").write_text("secret")
    agent = script("""
        for prompt in prompts():
            path = text_of(prompt)
            send(permission(1, kind="edit", title="Edit", locations=[{"path": path}]))
            answer_to(1)
            send(request(2, "fs/read_text_file", sessionId="s1", path=path))
            note("read", "result" in answer_to(2))
            send(end(prompt))
    """)
    with relay(agent) as editor:
        editor.initialize(fs={"readTextFile": True})
        session = editor.new_session(str(tmp_path))
        answering(editor, editor.prompt_request(session, str(tmp_path / "notes.txt")), chosen("yes"))
    assert agent.noted("read") == [False]
