"""Commands that run here, for an editor without terminals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from client.stage import Scripted
from raw_client import RawClient
from relay.editing import updates

Script = Callable[[str], Scripted]
Serve = Callable[..., RawClient]


def test_what_a_command_writes_is_shown_while_it_runs(script: Script, relay: Serve, tmp_path: Path) -> None:
    # given an agent that does not look at the output, but only waits for the end
    agent = script("""
        for prompt in prompts():
            send(request(1, "terminal/create", sessionId="s1", command="sh", args=["-c", text_of(prompt)]))
            terminal = answer_to(1)["result"]["terminalId"]
            send(update("tool_call", toolCallId="c1", title="Work", kind="execute", status="in_progress",
                        content=[{"type": "terminal", "terminalId": terminal}]),
                 request(2, "terminal/wait_for_exit", sessionId="s1", terminalId=terminal))
            answer_to(2)
            send(update("tool_call_update", toolCallId="c1", status="completed"), end(prompt))
    """)
    gate = tmp_path / "gate"
    line = f"echo first; while [ ! -e {gate} ]; do sleep 0.02; done; echo second"
    with relay(agent) as editor:
        editor.initialize()
        request = editor.prompt_request(editor.new_session(str(tmp_path)), line)
        editor.send(request)
        # when the command waits, then its first line is there
        editor.read_until(lambda frame: "first\\n" in str(updates([frame], "tool_call_update")))
        gate.touch()
        frames = [*editor.read_until(lambda frame: frame.get("id") == request["id"])]
        shown = [each["content"] for each in updates(frames, "tool_call_update") if each.get("content")]
        assert shown[-1] == [{"type": "content", "content": {"type": "text", "text": "first\nsecond\n"}}]
