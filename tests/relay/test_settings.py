"""Settings of agents of before, as an editor of today has them."""

from __future__ import annotations

from collections.abc import Callable

from client.stage import Scripted
from raw_client import RawClient
from relay.editing import answering, chosen

Script = Callable[[str], Scripted]
Serve = Callable[..., RawClient]


def test_models_in_the_way_of_before_are_an_option_that_is_set_in_that_way(
    script: Script, relay: Serve
) -> None:
    agent = script("""
        MODELS = {"currentModelId": "small", "availableModels": [
            {"modelId": "small", "name": "Small"}, {"modelId": "large", "name": "Large"}]}
        while True:
            frame = read()
            method = frame.get("method")
            if method == "initialize":
                send(result(frame, {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}))
            elif method == "session/new":
                send(result(frame, {"sessionId": "s1", "models": MODELS}))
            elif method == "session/load":
                send(result(frame, {"models": MODELS}))
            elif method == "session/prompt":
                send(say("done"), end(frame))
            elif "id" in frame:
                send(result(frame, {}))
    """)
    with relay(agent) as editor:
        editor.initialize()
        opened = editor.call("session/new", {"cwd": "/", "mcpServers": []})["result"]
        session = opened["sessionId"]
        [option] = opened["configOptions"]
        assert (option["id"], option["category"], option["currentValue"]) == ("model", "model", "small")
        assert [each["value"] for each in option["options"]] == ["small", "large"]
        wish = {"sessionId": session, "configId": "model", "value": "large"}
        [changed] = editor.call("session/set_config_option", wish)["result"]["configOptions"]
        assert changed["currentValue"] == "large"
        editor.prompt(session, "go")
    with relay(agent) as editor:
        editor.initialize()
        request = editor.request("session/load", {"sessionId": session, "cwd": "/", "mcpServers": []})
        [option] = answering(editor, request, chosen(""))[-1]["result"]["configOptions"]
        assert option["currentValue"] == "large"
    set_models = [frame["params"] for frame in agent.received_of("session/set_model")]
    assert set_models == [{"sessionId": "s1", "modelId": "large"}] * 2
