"""What an author takes out of the stream: it reaches no client, in no form."""

import json

from agent.steps import end_of
from raw_client import texts

SECRETIVE = """
from langchain.agents.middleware import PIIMiddleware
from langchain.tools import ToolRuntime

@tool
async def look_up(who: str, runtime: ToolRuntime) -> str:
    "Look somebody up."
    runtime.emit_output_delta("found joe@exa")
    runtime.emit_output_delta("mple.com, and so on")
    return f"{who} is joe@example.com"

calling = [think("It is joe@example.com."), call("look_up", "c", who="joe@example.com")]
model = ScriptedModel(script=[calling, ["Write to joe@ex", "ample.com", "."]])
"""


def test_personal_data_is_taken_out_of_all_that_is_shown(order):
    at = order(
        SECRETIVE
        + 'redacting = PIIMiddleware("email", apply_to_output=True, apply_to_tool_results=True)\n'
        + "agent = agent_with(redacting, tools=[look_up], model=model)"
    )

    assert at.says("who?") == "Write to [REDACTED_EMAIL]."

    assert "example.com" not in json.dumps(at.updates)
    [call] = at.calls.values()
    assert call["title"] == "Look up: [REDACTED_EMAIL]"
    assert call["content"][-1]["content"]["text"] == "[REDACTED_EMAIL] is [REDACTED_EMAIL]"


def test_who_is_asked_about_a_call_sees_what_it_is_made_with(order):
    at = order(
        SECRETIVE
        + 'redacting = PIIMiddleware("email", apply_to_output=True)\n'
        + 'agent = agent_with(redacting, acp.permissions({"look_up": "ask"}), tools=[look_up], model=model)'
    )

    at.says("who?")

    assert at.asked[0]["params"]["toolCall"]["rawInput"] == {"who": "joe@example.com"}
    assert "example.com" not in json.dumps(at.updates)


def test_an_answer_that_is_blocked_is_not_shown_and_the_session_goes_on(order):
    at = order(
        SECRETIVE
        + 'blocking = PIIMiddleware("email", strategy="block", apply_to_output=True)\n'
        + 'model = ScriptedModel(script=[["Write to joe@example.com."], ["No."]])\n'
        + "agent = agent_with(blocking, tools=[], model=model)"
    )
    request = at.client.prompt_request(at.id, "who?")
    at.client.send(request)

    updates, answer = end_of(at.client, request)

    assert texts(updates) == ""
    assert "Detected 1 instance(s) of email" in answer["error"]["message"]
    assert at.says("really?") == "No."


def test_a_transformer_of_the_author_s_own_is_obeyed(order):
    at = order("""
from langgraph.stream import StreamTransformer

class Polite(StreamTransformer):
    before_builtins = True
    required_stream_modes = ("messages",)

    def init(self):
        return {}

    def process(self, event):
        if event["method"] == "messages":
            message, about = event["params"]["data"]
            polite = message.model_copy(update={"content": message.content.replace("Darn", "Oh")})
            event["params"]["data"] = polite, about
        return True

agent = agent_with(model=ScriptedModel(script=[["Da", "rn it."]]), transformers=[Polite])
""")

    assert at.says("well?") == "Oh it."


def test_middleware_that_only_asks_models_of_its_own_holds_nothing_back(order):
    at = order("""
from langchain.agents.middleware import SummarizationMiddleware

summing_up = SummarizationMiddleware(ScriptedModel(script=[["never"]]), trigger=("messages", 100))
agent = agent_with(summing_up, model=ScriptedModel(script=[["piece ", "by piece"]]))
""")

    assert at.says("hello") == "piece by piece"
    assert sum(update["sessionUpdate"] == "agent_message_chunk" for update in at.updates) == 2
