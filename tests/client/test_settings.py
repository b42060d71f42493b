"""Modes, models and options: checked against what is offered, and set before the first prompt."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from client.stage import Scripted, run
from coupler import AgentError
from coupler.client.quirks import Usual

Script = Callable[[str], Scripted]

OFFERS = """
    def option(id, value, category=None, values=("small", "large")):
        return {"id": id, "name": id, "type": "select", "currentValue": value, "category": category,
                "options": [{"value": value, "name": value} for value in values]}
    options = {
        "llm": option("llm", "small", "model"),
        "depth": {"id": "depth", "name": "Depth", "type": "select", "currentValue": "a", "options": [
            {"group": "g", "name": "G", "options": [{"value": value, "name": value} for value in "ab"]}]},
        "web": {"id": "web", "name": "Web", "type": "boolean", "currentValue": False},
    }
    modes = {"currentModeId": "ask", "availableModes": [{"id": id, "name": id} for id in ("ask", "code")]}
    REFUSED = None
    while True:
        frame = read()
        method, params = frame.get("method"), frame.get("params")
        if method == "initialize":
            send(result(frame, HELLO))
        elif method == "session/new":
            send(result(frame, {"sessionId": "s1", "modes": modes, "configOptions": [*options.values()]}))
        elif method == "session/set_config_option":
            options[params["configId"]]["currentValue"] = params["value"]
            send(result(frame, {"configOptions": [*options.values()]}))
        elif method == "session/set_mode" and REFUSED == params["modeId"]:
            send(error(frame, -32602, "not now"))
        elif "id" in frame:
            send(result(frame, {}))
"""

REFUSES = OFFERS.replace("REFUSED = None", "REFUSED = 'code'")


def test_a_session_is_set_to_model_mode_and_options_before_the_first_prompt(script: Script) -> None:
    agent = script(OFFERS)

    async def story() -> None:
        async with agent.connect() as remote:
            wanted = {"depth": "b", "web": True}
            session = await remote.new(model="large", mode="code", options=wanted)
            assert (session.model, session.mode) == ("large", "code")
            assert {option.id: option.current_value for option in session.settings.options} == {  # type: ignore[union-attr]
                "llm": "large",
                "depth": "b",
                "web": True,
            }

    run(story())
    assert [frame["method"] for frame in agent.received[2:]] == [
        "session/set_config_option",
        "session/set_mode",
        "session/set_config_option",
        "session/set_config_option",
    ]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"model": "huge"}, "the agent does not offer the model 'huge': it offers small, large"),
        ({"mode": "yolo"}, "the agent does not offer the mode 'yolo': it offers ask, code"),
        ({"options": {"depth": "z"}}, "the agent does not offer the value for 'depth' 'z': it offers a, b"),
        ({"options": {"web": "perhaps"}}, "it offers true, false"),
        ({"options": {"x": "y"}}, "the agent does not offer the option 'x': it offers llm, depth, web"),
    ],
)
def test_what_is_not_offered_fails_with_the_list_or_warns(
    script: Script, caplog: pytest.LogCaptureFixture, options: dict[str, object], complaint: str
) -> None:
    agent = script(OFFERS)

    async def story() -> None:
        async with agent.connect() as remote:
            with pytest.raises(AgentError, match=complaint) as caught:
                await remote.new(**options)  # type: ignore[arg-type]
            assert caught.value.kind == "session"

    async def lenient() -> None:
        async with script(OFFERS).connect() as remote:
            session = await remote.new(**options, strict=False)  # type: ignore[arg-type]
            assert (session.model, session.mode) == ("small", "ask")

    run(story())
    with caplog.at_level(logging.WARNING, "coupler.client"):
        run(lenient())
    assert complaint in caplog.text


def test_a_refused_mode_is_a_warning_for_agents_that_do_that(script: Script) -> None:
    class Moody(Usual):
        def may_refuse_mode(self, mode: str) -> bool:
            return True

    async def story() -> None:
        async with script(REFUSES).connect() as remote:
            with pytest.raises(AgentError, match="not now"):
                await remote.new(mode="code")
        async with script(REFUSES).connect(quirks=Moody()) as remote:
            assert (await remote.new(mode="code")).mode == "ask"

    run(story())


def test_quirks_know_what_a_model_is_called(script: Script) -> None:
    class Prefixed(Usual):
        def model_for(self, wanted: str, offered: object) -> str | None:
            return wanted.removeprefix("vendor/")

    async def story() -> None:
        async with script(OFFERS).connect(quirks=Prefixed()) as remote:
            assert (await remote.new(model="vendor/large")).model == "large"

    run(story())


def test_agents_of_before_models_were_options_are_served_too(script: Script) -> None:
    agent = script("""
        hello()
        models = {"currentModelId": "a", "availableModels": [{"modelId": "a", "name": "A"}, {"modelId": "b"}]}
        send(result(read(), {"sessionId": "s1", "models": models}))
        while True:
            send(result(read(), {}))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            assert session.model == "a"
            await session.set_model("b")
            assert session.model == "b"
            with pytest.raises(AgentError, match="it offers a, b"):
                await session.set_model("c")

    run(story())
    [frame] = [one for one in agent.received if one.get("method") == "session/set_model"]
    assert frame["params"] == {"sessionId": "s1", "modelId": "b"}


def test_a_mode_that_is_an_option_is_set_as_one(script: Script) -> None:
    agent = script("""
        option = {"id": "m", "name": "Mode", "type": "select", "category": "mode", "currentValue": "x",
                  "options": [{"value": "x", "name": "X"}, {"value": "y", "name": "Y"}]}
        hello()
        send(result(read(), {"sessionId": "s1", "configOptions": [option]}))
        send(result(read(), {"configOptions": [{**option, "currentValue": "y"}]}))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new(mode="y")
            assert session.settings.mode_option is not None
            assert session.settings.mode_option.current_value == "y"

    run(story())
