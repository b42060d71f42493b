"""Typed answers: by the tool, or as JSON in the text, with what happens when they do not fit."""

import asyncio
import json
from dataclasses import dataclass
from typing import TypedDict

import msgspec
import pydantic
import pytest

from client.stage import run
from coupler import AgentError, Reply, Turn, connect
from coupler.client.output import MOST_REPAIRS, MOST_VIOLATIONS, json_values
from tables import table

BY_TOOL = "Finish by calling the tool `structured_output` with your answer."

TOOL = """
from mcp_client import opened, turns
for prompt, entries in turns(http=True):
    server = opened(entries[0])
    note("tools", {tool["name"]: tool["inputSchema"] for tool in server.tools()})
    for arguments in json.loads(prompt["params"]["prompt"][0]["text"]):
        note("result", server.call("structured_output", arguments))
    send(say("That is it."), end(prompt))
"""

LISTS_FIRST = """
from mcp_client import opened, turns
from bare import *
server = None
while True:
    frame = read()
    if frame["method"] == "initialize":
        send(result(frame, {**HELLO, "agentCapabilities": {"mcpCapabilities": {"http": True}}}))
    elif frame["method"] == "session/new":
        server = opened(frame["params"]["mcpServers"][0])
        note("tools", {tool["name"]: tool["inputSchema"] for tool in server.tools()})
        send(result(frame, {"sessionId": "s1"}))
    else:
        note("result", server.call("structured_output", {"x": 1, "y": 2}))
        send(end(frame))
"""


@dataclass
class Point:
    x: int
    y: int = 0


class PointStruct(msgspec.Struct):
    x: int
    y: int = 0


class PointModel(pydantic.BaseModel):
    x: int
    y: int = 0


class PointDict(TypedDict):
    x: int


SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


def told(result):
    return result["content"][0]["text"]


async def prompted(agent, text, *, new=None, **options):
    async with agent.connect() as remote:
        session = await remote.new(**(new or {}))
        return await session.prompt(text, **options)


def sentence(agent):
    """What was added to the prompt."""
    (prompt,) = agent.received_of("session/prompt")
    return prompt["params"]["prompt"][-1]["text"]


class TestByTool:
    @pytest.mark.parametrize(
        ("wanted", "expected"),
        [
            (Point, Point(1)),
            (PointStruct, PointStruct(1)),
            (PointModel, PointModel(x=1)),
            (PointDict, {"x": 1}),
            (SCHEMA, {"x": 1}),
        ],
        ids=["dataclass", "struct", "pydantic", "typed-dict", "json-schema"],
    )
    def test_the_answer_is_a_value_of_the_type(self, script, wanted, expected):
        agent = script(TOOL)

        reply = run(prompted(agent, '[{"x": 1}]', new={"output": wanted}, output=wanted))

        assert (reply.output, reply.output_way) == (expected, "tool")
        assert type(reply.output) is type(expected)
        assert reply.text == "That is it."
        assert agent.noted("tools")[0]["structured_output"]["properties"]["x"]["type"] == "integer"

    @pytest.mark.parametrize("element", [Point, PointModel])
    def test_a_list_is_given_as_one_argument(self, script, element):
        agent = script(TOOL)

        reply = run(prompted(agent, '[{"output": [{"x": 1}]}]', new={"output": True}, output=list[element]))

        assert reply.output == [element(x=1)]
        assert "as its argument `output`" in sentence(agent)

    def test_the_last_call_that_fits_wins_and_those_that_do_not_are_told_why(self, script):
        agent = script(TOOL)
        calls = [{"x": 1}, {"x": 2}, {"x": "3"}]

        reply = run(prompted(agent, json.dumps(calls), new={"output": Point}, output=Point))

        assert reply.output == Point(2)
        first, second, third = agent.noted("result")
        assert not first["isError"]
        assert not second["isError"]
        assert third["isError"]
        assert told(third) == (
            "the answer does not fit, at `$.x`: Expected `int`, got `str`; call it again with one that does"
        )

    def test_an_agent_that_has_seen_the_tool_is_told_one_sentence(self, script):
        agent = script(LISTS_FIRST)

        reply = run(prompted(agent, "go", new={"output": Point}, output=Point))

        assert reply.output == Point(1, 2)
        assert sentence(agent) == BY_TOOL

    def test_an_agent_that_has_seen_another_form_is_told_the_schema(self, script):
        agent = script(LISTS_FIRST)

        reply = run(prompted(agent, "go", new={"output": True}, output=Point))

        assert reply.output == Point(1, 2)
        assert agent.noted("tools") == [
            {"structured_output": {"type": "object", "additionalProperties": True}}
        ]
        assert "if you have the tool `structured_output`" in sentence(agent)
        assert '"x":{"type":"integer"}' in sentence(agent)

    def test_too_many_answers_that_do_not_fit_end_the_turn(self, script):
        agent = script(
            """
            from mcp_client import opened, turns
            for prompt, entries in turns(http=True):
                server = opened(entries[0])
                send(say("I try"))
                for _ in range(VIOLATIONS):
                    note("result", server.call("structured_output", {}))
                read_until(is_cancel)
                send(end(prompt, "cancelled"))
            """.replace("VIOLATIONS", str(MOST_VIOLATIONS + 1))
        )

        with pytest.raises(AgentError) as caught:
            run(prompted(agent, "go", new={"output": Point}, output=Point))

        assert caught.value.kind == "output"
        assert caught.value.reply.text == "I try"

    def test_sessions_with_functions_have_the_tool_only_while_it_is_asked_for(self, script):
        def add() -> None: ...

        agent = script(TOOL)

        async def story():
            async with agent.connect() as remote:
                session = await remote.new(tools=[add])
                await session.prompt("[]")
                reply = await session.prompt('[{"x": 1}]', output=Point)
                await session.prompt("[]")
                return reply

        assert run(story()).output_way == "tool"
        assert [[*tools] for tools in agent.noted("tools")] == [
            ["add"],
            ["add", "structured_output"],
            ["add"],
        ]

    def test_a_check_sees_the_typed_answer(self, script):
        seen = []

        def check(reply: Reply) -> bool:
            seen.append(reply.output)
            return True

        run(prompted(script(TOOL), '[{"x": 1}]', new={"output": Point}, output=Point, until=check))
        assert seen == [Point(1)]


class TestByText:
    def answers(self, *texts):
        """An agent of this process that says one after the other."""

        async def turn(turn: Turn) -> None:
            number = turn.session.state or 0
            turn.session.state = number + 1
            self.prompts.append(turn.text)
            await turn.say(texts[min(number, len(texts) - 1)])

        self.prompts: list[str] = []
        return turn

    def reply(self, *texts, new=None, **options):
        async def story():
            async with connect(self.answers(*texts)) as agent:
                return await (await agent.new(**(new or {}))).prompt("go", **options)

        return run(story())

    @table(
        "text",
        [
            '{"x": 1}',
            'Here:\n```json\n{"x": 1}\n```\nThat is all.',
            'First ```\n{"x": 9}\n``` no:\n```json\n{"x": 1}\n```',
            'I think {this} is it: {"x": 1}. Right?',
            '{"x": "no"} or rather {"x": 1}',
        ],
        ids=["whole", "fenced", "last-fence", "bare", "last-that-fits"],
    )
    def test_json_in_the_text_is_read(self, text):
        reply = self.reply(text, output=Point)

        assert (reply.output, reply.output_way, reply.text) == (Point(1), "text", text)
        assert '"x":{"type":"integer"}' in self.prompts[0]
        assert "structured_output" not in self.prompts[0]

    def test_an_agent_that_never_looks_at_the_server_has_the_schema_in_its_prompt(self):
        reply = self.reply('{"x": 1}', new={"output": Point}, output=Point)

        assert (reply.output, reply.output_way) == (Point(1), "text")
        assert '"x":{"type":"integer"}' in self.prompts[0]

    def test_what_does_not_fit_is_sent_back_with_the_reason(self):
        reply = self.reply("Sure!", '{"x": "one"}', '{"x": 1}', output=Point)

        assert (reply.output, reply.rounds) == (Point(1), 3)
        assert "there is no JSON in it" in self.prompts[1]
        assert "at `$.x`: Expected `int`, got `str`" in self.prompts[2]

    @pytest.mark.parametrize(("rounds", "taken"), [(5, MOST_REPAIRS + 1), (1, 1)])
    def test_an_agent_that_never_gets_it_right_is_an_error_with_its_words(self, rounds, taken):
        with pytest.raises(AgentError) as caught:
            self.reply("Sure!", output=Point, rounds=rounds)

        assert caught.value.kind == "output"
        assert (caught.value.reply.text, caught.value.reply.rounds) == ("Sure!", taken)

    def test_what_cannot_be_asked_for_is_said_at_once(self):
        class Opaque:
            pass

        for wanted in (Opaque, {"type": "nonsense"}):
            with pytest.raises(TypeError, match="output= is a type or a JSON Schema"):
                self.reply("x", output=wanted)
        assert self.prompts == []

    def test_a_cancelled_prompt_is_not_judged(self):
        async def turn(turn: Turn) -> None:
            await asyncio.sleep(60)

        async def story():
            async with connect(turn) as agent:
                prompt = (await agent.new()).prompt("go", output=Point)
                async with prompt:
                    await prompt.cancel()
                    return await prompt

        reply = run(story())
        assert (reply.stop_reason, reply.output) == ("cancelled", None)


class TestJsonInText:
    @table(
        ("text", "values"),
        [
            ("", []),
            ("words", []),
            ("null", [None]),
            ('"text"', ["text"]),
            ("[1] and [2]", [[2], [1]]),
            ('a [x] b {"a": [1, {}]}', [{"a": [1, {}]}]),
            ("{" * 1000, []),
            ("[" * 100_000, []),
            ('{"a": NaN}', []),
        ],
    )
    def test_values_are_found_the_last_first(self, text, values):
        assert [*json_values(text)] == values

    def test_a_block_is_found_before_what_is_bare(self):
        assert [*json_values('```json\n{"a": 1}\n```\nas in [2]')] == [{"a": 1}, [2], {"a": 1}]
