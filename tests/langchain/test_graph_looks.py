"""What of a graph's answers is shown: `serve(graph, text=…, thoughts=…, blocks=…)`, and what is no answer."""

import pytest
from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware, TodoListMiddleware
from langchain_core.messages import AIMessageChunk
from langchain_core.tools import tool

from client.stage import run
from coupler import acp, connect
from coupler.agent.factory import adapt
from coupler.agent.startup.serve_options import ServeOptions
from coupler.events import Compaction
from coupler.schema.v1 import ImageContent
from labs.langchain.scripted_model import ScriptedModel, call, think, used

PICTURE = AIMessageChunk(content=[{"type": "image", "base64": "aa", "mime_type": "image/gif"}])


def reply_of(graph, *prompts, on_event=None, **options):
    """The reply to the last prompt of one session."""

    async def talk():
        async with connect(adapt(graph, ServeOptions(**options)), on_event=on_event) as agent:
            session = await agent.new()
            return [await session.prompt(prompt) for prompt in prompts or ("hello",)][-1]

    return run(talk())


def answering(*steps):
    return create_agent(ScriptedModel(script=[steps]), [])


def test_everything_is_shown_unless_something_else_is_said():
    reply = reply_of(answering(think("Hm."), "Yes.", PICTURE))

    assert (reply.text, reply.thoughts) == ("Yes.", "Hm.")
    assert [each.block for each in reply.content] == [ImageContent("aa", "image/gif")]


def test_text_can_be_left_out():
    reply = reply_of(answering(think("Hm."), "Yes.", PICTURE), text=False)

    assert (reply.text, reply.thoughts, reply.content) == ("", "Hm.", ())


def test_thoughts_can_be_left_out():
    reply = reply_of(answering(think("Hm."), "Yes."), thoughts=False)

    assert (reply.text, reply.thoughts) == ("Yes.", "")


@pytest.mark.parametrize(
    "mapper, shown",
    [
        (lambda block: ImageContent("bb", "image/png"), [ImageContent("bb", "image/png")]),
        (lambda block: None, []),
        (lambda block: {**block, "mime_type": "image/webp"}, [ImageContent("aa", "image/webp")]),
    ],
    ids=["a block of ACP", "nothing", "a block of LangChain"],
)
def test_other_blocks_are_shown_as_the_author_wants(mapper, shown):
    reply = reply_of(answering("See: ", PICTURE), blocks=mapper)

    assert [each.block for each in reply.content] == shown


def test_a_block_can_become_text():
    reply = reply_of(answering("See: ", PICTURE), blocks=lambda block: f"[{block['type']}]")

    assert reply.text == "See: [image]"


def test_a_mapper_that_gives_nonsense_breaks_no_turn(caplog):
    reply = reply_of(answering("See: ", PICTURE, "there."), blocks=lambda block: 7)

    assert reply.text == "See: there."
    assert "blocks=" in caplog.text


def test_a_message_may_be_called_anything_by_its_provider():
    strange = AIMessageChunk(content="Fine.", id="half \ud800")

    assert reply_of(answering(strange)).text == "Fine."


def test_a_summary_that_middleware_asks_for_is_no_part_of_the_answer():
    prompts = ("one", "two", "three")
    model = ScriptedModel(script=lambda asked: ["Fine." if asked[-1].text in prompts else "A summary."])
    middleware = SummarizationMiddleware(model, trigger=("messages", 3), keep=("messages", 1))

    events = []
    reply = reply_of(create_agent(model, [], middleware=[middleware]), *prompts, on_event=events.append)

    assert reply.text == "Fine."
    received = [getattr(event, "event", None) for event in events]
    shown = [event for event in received if isinstance(event, Compaction)]
    assert {each.status for each in shown} == {"in_progress", "completed"}
    assert shown[-1].summary[0].text == "A summary."
    assert len(model.asked[-1]) <= 3


def test_a_deep_agent_shows_its_todos_its_files_and_its_sub_agents():
    todos = [{"content": "look", "status": "completed"}, {"content": "tell", "status": "in_progress"}]
    task = {"description": "look into it", "subagent_type": "general-purpose"}

    def act(messages):
        if messages[-1].text == "look into it":
            return ["Inside: ", call("write_file", "inner", file_path="/a.txt", content="x")]
        if any(message.text == "look into it" for message in messages):
            return ["Nothing there."]
        done = sum(message.type == "tool" for message in messages)
        return [[call("write_todos", "plan", todos=todos)], [call("task", "sub", **task)], ["All told."]][
            done
        ]

    reply = reply_of(create_deep_agent(ScriptedModel(script=act), middleware=[TodoListMiddleware()]))

    calls = {each.id: each for each in reply.tool_calls}
    assert reply.text == "All told."
    assert [(entry.content, entry.status) for entry in reply.plan][:1] == [("look", "completed")]
    assert calls["inner"].meta == {"coupler": {"parent": "sub"}}
    assert {each.status for each in calls.values()} == {"completed"}
    assert "Nothing there." in calls["sub"].content[0].content.text


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_how_full_the_context_is_is_told_if_the_model_knows_its_size():
    model = ScriptedModel(script=[["Fine.", used(90, 10)]], profile={"max_input_tokens": 1000})

    reply = reply_of(create_agent(model, [add]))

    assert (reply.usage.context_used, reply.usage.context_size) == (100, 1000)


@pytest.mark.parametrize(
    "choosing",
    [lambda model: acp.models({"small": model}), lambda model: acp.modes(acp.Mode("small", model=model))],
    ids=["by the user", "by the mode"],
)
def test_how_full_the_context_is_is_told_of_a_model_that_was_chosen(choosing):
    script = [["Fine.", used(90, 10)]]
    large = ScriptedModel(script=script, profile={"max_input_tokens": 1000})
    small = ScriptedModel(script=script, profile={"max_input_tokens": 500})

    reply = reply_of(create_agent(large, [add], middleware=[choosing(small)]))

    assert (reply.usage.context_used, reply.usage.context_size) == (100, 500)
