"""What the tests of lasting sessions do and look for again and again."""

from collections.abc import Callable
from typing import Any

from agent.steps import leave, update_of
from raw_client import Frame, RawClient, is_answer_to

REMEMBERS = """
from coupler import Agent

class Counter(Agent):
    async def prompt(self, turn):
        state = turn.session.state or {"prompts": []}
        state["prompts"].append(turn.text)
        turn.session.state = state
        await turn.say(f"{len(state['prompts'])}: ")
        await turn.say(turn.text)
"""


def setup(session: str | None, cwd: object, **more: Any) -> dict[str, Any]:
    """The params that open a session."""
    params = {"cwd": str(cwd), "mcpServers": [], **more}
    return params if session is None else {"sessionId": session, **params}


def restarted(
    start: Callable[[str], RawClient], source: str, cwd: object, *prompts: str
) -> tuple[RawClient, str]:
    """A process that was started after another has had a session with these prompts; and that session."""
    first = start(source)
    first.initialize()
    session = first.new_session(str(cwd))
    for text in prompts:
        first.prompt(session, text)
    leave(first)
    second = start(source)
    second.initialize()
    return second, session


def reopen(
    client: RawClient, method: str, session: str, cwd: object, **more: Any
) -> tuple[list[Frame], Frame]:
    """Load or resume a session: the updates before the answer, and the answer."""
    request = client.request(method, setup(session, cwd, **more))
    client.send(request)
    *before, answer = client.read_until(lambda frame: is_answer_to(frame, request["id"]))
    return [update_of(frame) for frame in before], answer


def conversation(updates: list[Frame]) -> list[tuple[str, str]]:
    """Who said what; chunks of one message are joined."""
    said: list[tuple[str, str, str]] = []
    roles = {"user_message_chunk": "user", "agent_message_chunk": "agent", "agent_thought_chunk": "thought"}
    for update in updates:
        role = roles.get(update["sessionUpdate"])
        if role is None:
            continue
        text, message = update["content"].get("text", ""), update["messageId"]
        if said and said[-1][:2] == (role, message):
            said[-1] = (role, message, said[-1][2] + text)
        else:
            said.append((role, message, text))
    return [(role, text) for role, _, text in said]


def kinds(updates: list[Frame]) -> list[str]:
    """The kinds of the updates, in order."""
    return [update["sessionUpdate"] for update in updates]


def listed(client: RawClient, **params: Any) -> list[Frame]:
    """All sessions that the agent lists, over all pages."""
    sessions: list[Frame] = []
    while True:
        result = client.call("session/list", params)["result"]
        sessions += result["sessions"]
        if "nextCursor" not in result:
            return sessions
        params["cursor"] = result["nextCursor"]
