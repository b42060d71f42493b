"""Pages that the agent behind wants to be opened."""

from __future__ import annotations

from collections.abc import Callable

from client.stage import Scripted
from raw_client import RawClient, texts
from relay.editing import answering, updates

Script = Callable[[str], Scripted]
Serve = Callable[..., RawClient]


def test_a_page_reaches_the_editor_and_so_does_that_it_is_done(script: Script, relay: Serve) -> None:
    agent = script("""
        for prompt in prompts():
            send(request(7, "elicitation/create", sessionId="s1", mode="url", elicitationId="e1",
                         url="https://example.com/login", message="Log in"))
            answer = answer_to(7)["result"]
            send({"method": "elicitation/complete", "params": {"elicitationId": "e1"}},
                 {"method": "elicitation/complete", "params": {"elicitationId": "of somebody else"}},
                 say(answer["action"]), end(prompt))
    """)
    with relay(agent) as editor:
        editor.initialize(elicitation={"url": {}})
        session = editor.new_session()
        accepted = {"result": {"action": "accept"}}
        frames = answering(editor, editor.prompt_request(session, "go"), lambda frame: accepted)
        [asked] = [frame["params"] for frame in frames if frame.get("method") == "elicitation/create"]
        assert (asked["sessionId"], asked["mode"], asked["url"], asked["elicitationId"]) == (
            session,
            "url",
            "https://example.com/login",
            "e1",
        )
        completed = [frame["params"] for frame in frames if frame.get("method") == "elicitation/complete"]
        assert completed == [{"elicitationId": "e1"}]
        assert texts(updates(frames, "agent_message_chunk")) == "accept"
    [hello] = agent.received_of("initialize")
    assert hello["params"]["clientCapabilities"]["elicitation"] == {"url": {}}
