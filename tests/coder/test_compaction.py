"""Compaction over the real bridge: when it happens, what stays, and what users and models are told of it."""

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, TodoListMiddleware
from langchain_core.exceptions import ContextOverflowError
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from msgspec import UNSET

from coder.talking import talk
from coupler.client import remote
from coupler.coder.compaction import SUMMARY_PROMPT, CompactionMiddleware
from coupler.events import Compaction
from labs.langchain.scripted_model import ScriptedModel, call, fail, used

NOTES = "Notes on what was."
LONG = "word " * 400
"""About 500 tokens."""


@tool
def read_file(path: str) -> str:
    """Read a file."""
    if path == "missing.py":
        raise ValueError("there is no such file")
    return LONG * 40 if path == "huge.py" else LONG


@tool
def edit_file(path: str) -> str:
    """Edit a file."""
    return "edited"


class Coder:
    """An agent with a small window; what it is asked for beside summaries is in `asked`."""

    def __init__(self, answer, window=2000, notes=(NOTES,), **settings):
        self.asked = []
        self.summarized = []
        self.answer = answer
        self.notes = notes
        self.model = ScriptedModel(script=self.act)
        self.model.profile = {"max_input_tokens": window}
        compaction = CompactionMiddleware(self.model)
        middleware = [TodoListMiddleware(), *settings.pop("middleware", ()), compaction]
        self.graph = create_agent(self.model, [read_file, edit_file], middleware=middleware, **settings)

    def act(self, messages):
        if messages[0].text.startswith(SUMMARY_PROMPT):
            self.summarized.append(messages[0].text)
            return self.notes
        self.asked.append(messages)
        return self.answer(messages)


def chatty(messages):
    return [LONG]


def is_paired(messages):
    """Whether each result has its call before it, and each call its results behind it."""
    open_calls = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in open_calls:
                return False
            open_calls.remove(message.tool_call_id)
        elif open_calls:
            return False
        if isinstance(message, AIMessage):
            open_calls = [each["id"] for each in message.tool_calls]
    return not open_calls


def test_a_conversation_gives_way_to_a_summary_before_the_window_is_full():
    coder = Coder(chatty)

    seen = talk(coder.graph, "one", "two", "three", "four", "five")

    assert [reply.text for reply in seen.replies] == [LONG] * 5
    assert len(coder.summarized) >= 1
    for messages in coder.asked:
        assert sum(len(message.text) for message in messages) / 4 < 2000
    assert NOTES in coder.asked[-1][1].text
    assert coder.asked[-1][-1].text == "five"


def test_it_is_shown_as_a_compaction_to_clients_that_know_it():
    seen = talk(Coder(chatty).graph, "one", "two", "three", "four")

    told = seen.of(Compaction)
    assert [each.status for each in told[:2]] == ["in_progress", "completed"]
    assert NOTES not in "".join(reply.text for reply in seen.replies)


def test_it_is_said_as_a_message_to_all_others(monkeypatch):
    monkeypatch.setattr(remote, "CompactionCapabilities", lambda: UNSET)

    seen = talk(Coder(chatty).graph, "one", "two", "three", "four")

    assert not seen.of(Compaction)
    said = "".join(reply.text for reply in seen.replies)
    assert "Summarizing the earlier conversation…" in said
    assert f"The earlier conversation was summarized:\n\n{NOTES}" in said


def test_the_tokens_that_a_provider_counts_are_believed():
    coder = Coder(lambda messages: [LONG * 4, used(8500, 10)], window=10_000)

    talk(coder.graph, "one", "two")

    assert len(coder.summarized) == 1


def test_what_was_used_before_a_compaction_causes_no_other_one():
    answers = iter([8500, 5000, 6000])
    coder = Coder(lambda messages: [LONG * 4, used(next(answers), 10)], window=10_000)

    talk(coder.graph, "one", "two", "three")

    assert len(coder.summarized) == 1


def test_the_tokens_of_a_summary_are_counted():
    coder = Coder(lambda messages: ["Fine.", used(100, 10)], notes=[NOTES, used(1000, 500)])

    seen = talk(coder.graph, "one", "/compact")

    assert (seen.last.usage.input, seen.last.usage.output) == (1000, 500)


def test_what_an_agent_in_a_tool_call_does_with_its_conversation_is_no_news():
    inner = Coder(reading("a.py", "b.py", "c.py", "d.py", "e.py"))

    @tool
    async def delegate(task: str) -> str:
        """Have another agent do it."""
        answer = await inner.graph.ainvoke({"messages": [HumanMessage(task)]})
        return answer["messages"][-1].text

    answers = iter([[call("delegate", "d", task="Read it all.")], ["Done."]])
    model = ScriptedModel(script=lambda messages: next(answers))

    seen = talk(create_agent(model, [delegate]), "Have it read.")

    assert inner.summarized
    assert not seen.of(Compaction)
    assert seen.last.text == "Done."
    assert NOTES not in str(seen.last.tool_calls)


def reading(*paths):
    """Reads these files one after the other, then is done; a summary does not make it begin again."""
    left = [*paths]
    number = 0

    def act(messages):
        nonlocal number
        number += 1
        return [call("read_file", f"call_{number}", path=left.pop(0))] if left else ["Done."]

    return act


def test_a_long_turn_is_shortened_in_its_middle_and_keeps_calls_and_results_together():
    coder = Coder(reading("a.py", "b.py", "c.py", "d.py", "e.py"))

    seen = talk(coder.graph, "Read it all, please.")

    assert seen.last.text == "Done."
    assert coder.summarized
    assert all(is_paired(messages) for messages in coder.asked)
    assert "Read it all, please." in coder.asked[-1][1].text


class Joined(AgentMiddleware):
    """Sends calls and their results in words, as after a server's refusal; from the first summary on."""

    def __init__(self):
        super().__init__()
        self.is_needed = lambda: False

    async def awrap_model_call(self, request, handler):
        messages = []
        for message in request.messages:
            if isinstance(message, ToolMessage) and self.is_needed():
                message = messages.pop().model_copy(update={"content": message.text})
            elif isinstance(message, AIMessage) and self.is_needed():
                message = AIMessage("I read.", id=message.id)
            messages.append(message)
        return await handler(request.override(messages=messages))


def test_what_a_summary_stands_for_is_not_sent_again_if_its_last_message_was_joined_with_another():
    joined = Joined()
    coder = Coder(reading(*(f"{number}.py" for number in range(8))), window=5000, middleware=[joined])
    joined.is_needed = lambda: bool(coder.summarized)

    seen = talk(coder.graph, "Read it all, please.")

    assert seen.last.text == "Done."
    assert len(coder.summarized) == 1
    first = next(at for at, messages in enumerate(coder.asked) if NOTES in messages[1].text)
    assert all(NOTES in messages[1].text for messages in coder.asked[first:])
    assert len(coder.asked) > first + 2, "it went on behind the summary"


def test_files_todos_and_the_request_outlive_a_model_that_forgets_them():
    todos = [{"content": "change b.py", "status": "in_progress"}]
    steps = iter(
        [
            [call("write_todos", "t", todos=todos)],
            [call("edit_file", "w", path="b.py"), call("read_file", "m", index=1, path="missing.py")],
            *([call("read_file", f"r{n}", path=f"a{n}.py")] for n in range(6)),
            ["Done."],
        ]
    )
    coder = Coder(lambda messages: next(steps))

    seen = talk(coder.graph, "Rename it.")

    assert seen.last.text == "Done."
    assert len(coder.summarized) > 1
    notes = coder.asked[-1][1].text
    assert "Files that you changed: b.py" in notes
    assert "a0.py" in notes
    assert "missing.py" not in notes
    assert "[in_progress] change b.py" in notes
    assert "Rename it." in notes


def test_a_result_that_is_larger_than_the_window_is_seen_in_part():
    coder = Coder(reading("huge.py"), window=4000)

    seen = talk(coder.graph, "Read it.")

    assert seen.last.text == "Done."
    result = coder.asked[-1][-1]
    assert isinstance(result, ToolMessage)
    assert "characters left out here" in result.text
    assert len(result.text) < 4000 * 3


def test_results_that_came_together_share_the_room():
    both = [call("read_file", f"c{n}", index=n, path="huge.py") for n in range(8)]
    answers = iter([both, ["Done."]])
    coder = Coder(lambda messages: next(answers), window=8000)

    seen = talk(coder.graph, "Read it.")

    assert seen.last.text == "Done."
    results = [each for each in coder.asked[-1] if isinstance(each, ToolMessage)]
    assert len(results) == 8
    assert sum(len(each.text) for each in results) < 8000 * 3


def refusing_above(limit):
    def act(messages):
        if sum(len(message.text) for message in messages) > limit:
            return [fail(ContextOverflowError("maximum context length exceeded"))]
        return [LONG]

    return act


def test_when_the_provider_says_that_it_is_too_long_it_is_shortened_and_asked_again():
    coder = Coder(refusing_above(6000), window=100_000)

    seen = talk(coder.graph, "one", "two", "three", "four", "five", "six")

    assert seen.last.stop_reason == "end_turn"
    assert coder.summarized
    refused = [messages for messages in coder.asked if sum(len(each.text) for each in messages) > 6000]
    assert len(refused) == 1, "what was too long once is known to be"


def test_a_provider_that_always_says_so_is_asked_twice_and_no_more():
    coder = Coder(lambda messages: [fail(ContextOverflowError("prompt is too long"))], window=100_000)

    with pytest.raises(Exception, match="longer than the model can read"):
        talk(coder.graph, "one")

    assert len(coder.asked) <= 2


def test_a_summary_that_fails_is_told_and_does_not_end_the_turn():
    coder = Coder(chatty, notes=[fail(RuntimeError("no luck"))])

    seen = talk(coder.graph, "one", "two", "three", "four")

    assert "failed" in {each.status for each in seen.of(Compaction)}
    assert seen.last.text == LONG


def test_an_empty_summary_takes_nothing_away():
    coder = Coder(chatty, notes=[" "])

    talk(coder.graph, "one", "two", "three", "four")

    assert next(each.text for each in coder.asked[-1] if isinstance(each, HumanMessage)) == "one"


def test_the_user_can_have_it_done_with_a_remark():
    coder = Coder(lambda messages: ["Fine."])

    seen = talk(coder.graph, "one", "/compact the tests matter most", "two")

    assert "the tests matter most" in coder.summarized[0]
    assert [each.status for each in seen.of(Compaction)] == ["in_progress", "completed"]
    assert [each.type for each in coder.asked[-1]] == ["system", "human", "human"]
    assert NOTES in coder.asked[-1][1].text
    assert not any("/compact" in each.text for each in coder.asked[-1])


def test_there_is_nothing_to_be_done_by_hand_in_a_new_session():
    coder = Coder(lambda messages: ["Fine."])

    seen = talk(coder.graph, "/compact", "one")

    assert "nothing to summarize" in seen.replies[0].text
    assert seen.last.text == "Fine."
    assert not coder.summarized


def test_the_state_keeps_what_the_model_no_longer_sees():
    kept = []

    class Watch(AgentMiddleware):
        async def aafter_agent(self, state, runtime):
            kept.append([message.text for message in state["messages"]])

    watched = Coder(lambda messages: ["Fine."], middleware=[Watch()])
    talk(watched.graph, "one", "/compact", "two")

    assert kept[-1] == ["one", "Fine.", "two", "Fine."]
