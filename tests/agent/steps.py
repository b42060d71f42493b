"""What the tests of the agent layer do and look for again and again."""

from collections.abc import Callable
from typing import Any

from raw_client import Frame, RawClient, is_answer_to

# An agent that does what the prompt says, which is Python: many cases, one process.
OBEDIENT = """
import textwrap

async def agent(turn):
    scope = {}
    exec("async def perform(turn):\\n" + textwrap.indent(turn.text, "    "), scope)
    return await scope["perform"](turn)
"""


def update_of(frame: Frame) -> Frame:
    """The update in a notification."""
    assert frame.get("method") == "session/update", frame
    update: Frame = frame["params"]["update"]
    return update


def begin(client: RawClient, session: str, text: str = "", *, until: str = "started") -> Frame:
    """Send a prompt and wait until the agent has said this; returns the prompt's request."""
    request = client.prompt_request(session, text)
    client.send(request)
    client.read_until(says(until))
    return request


def says(text: str) -> Callable[[Frame], bool]:
    """Matches the update in which the agent says this."""
    return lambda frame: (
        frame.get("method") == "session/update"
        and frame["params"]["update"].get("content", {}) == {"type": "text", "text": text}
    )


def asks(method: str) -> Callable[[Frame], bool]:
    """Matches the agent's request of this method."""
    return lambda frame: frame.get("method") == method and "id" in frame


def cancel(session: str) -> Frame:
    """The notification that cancels a session's turn."""
    return {"method": "session/cancel", "params": {"sessionId": session}}


def end_of(client: RawClient, request: Frame) -> tuple[list[Frame], Frame]:
    """The updates up to the answer of a prompt, and the answer."""
    *before, answer = client.read_until(lambda frame: is_answer_to(frame, request["id"]))
    return [update_of(frame) for frame in before if frame.get("method") == "session/update"], answer


def tool_updates(updates: list[Frame]) -> list[Frame]:
    """The updates that are about tool calls."""
    return [update for update in updates if update["sessionUpdate"].startswith("tool_call")]


def final_call(updates: list[Frame]) -> Frame:
    """The only tool call in these updates, as a client shows it in the end."""
    calls = tool_updates(updates)
    assert len({update["toolCallId"] for update in calls}) == 1, calls
    return {key: value for update in calls for key, value in update.items()}


def text_of(call: Frame) -> str:
    """The text that a tool call shows."""
    return "\n".join(part["content"]["text"] for part in call.get("content", ()) if part["type"] == "content")


def error_of(answer: Frame) -> tuple[int, Any]:
    """Code and reason of an error answer."""
    return answer["error"]["code"], answer["error"].get("data", {}).get("reason")


def still_serves(client: RawClient) -> None:
    """The connection answers, and has handled everything that was sent before."""
    answer = client.call("_ping", {})
    assert answer["error"]["code"] == -32601


def leave(client: RawClient) -> None:
    """Close the agent's input and see it end in good order."""
    client.close_stdin()
    assert client.wait() == 0, client.stderr.decode()
