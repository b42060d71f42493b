"""`kill -9` again and again: what was answered is there, whole, once, in order; the rest as far as it got."""

import contextlib
import random
import threading

import pytest

from agent.sessions.steps import setup
from raw_client import PATIENCE, is_answer_to, serve

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("unmeasured")]

WITNESS = """
import asyncio
from coupler import Agent

class Witness(Agent):
    async def prompt(self, turn):
        number, pause, pieces = turn.text.split()
        turn.session.state = [*(turn.session.state or ()), int(number)]
        await turn.say(f"begin {number};")
        async with turn.tool(f"work {number}") as call:
            for piece in range(int(pieces)):
                await call.output(f" {number}.{piece}")
                await asyncio.sleep(float(pause))
        for piece in range(int(pieces)):
            await turn.say(f" {number}:{piece}")
            await asyncio.sleep(float(pause))
        await turn.say(f" end {number}")

    async def opened(self, session):
        session.set_title(f"state {session.state or []}")
"""

KILLS = 25
MOMENTS = [
    "at any moment",
    "while text streams",
    "during a tool call",
    "right after an answer",
    "among quick turns",
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_nothing_answered_is_lost_doubled_or_moved_by_a_kill(app, tmp_path, moment):
    target = app(WITNESS)
    with serve(target) as client:
        client.initialize()
        stories = [Story(client.new_session(str(tmp_path))) for _ in range(2)]
        kill_in_the_middle(client, stories, moment)
    for _ in range(KILLS - 1):
        with serve(target) as client:
            client.initialize()
            for story in stories:
                story.check(*load(client, story.session, tmp_path))
            kill_in_the_middle(client, stories, moment)
            assert b"Traceback" not in client.stderr
    with serve(target) as client:
        client.initialize()
        for story in stories:
            story.check(*load(client, story.session, tmp_path))
            _, answer = client.prompt(story.session, "999 0 1")
            assert answer["result"] == {"stopReason": "end_turn"}
    assert sum(len(story.numbers) for story in stories) > KILLS


class Story:
    """What is known of a session: what was seen of it at the last load, and what was asked since."""

    def __init__(self, session):
        self.session = session
        self.numbers = []
        self._past = []
        self._state = []
        self._since = []

    def ask(self, pause, pieces):
        """The text of the next prompt."""
        self.numbers.append(len(self.numbers) + 1)
        self._since.append((f"{self.numbers[-1]} {pause} {pieces}", False))
        return self._since[-1][0]

    def was_answered(self):
        text, _ = self._since.pop()
        self._since.append((text, True))

    def check(self, updates, answer):
        """What is loaded now is the past as it was, what was answered since, and perhaps a beginning."""
        assert "result" in answer, answer
        seen = told(updates)
        assert seen[: len(self._past)] == self._past, "what was loaded before is another thing now"
        rest = seen[len(self._past) :]
        committed = [*self._state]
        for text, is_answered in self._since:
            if is_answered:
                assert rest[:4] == whole(text)
                rest = rest[4:]
                committed.append(number_of(text))
        unanswered = [text for text, is_answered in self._since if not is_answered]
        assert len(unanswered) <= 1
        state = state_in(updates)
        if rest:
            assert is_beginning(rest, whole(unanswered[0])), (rest, unanswered)
        if state != committed:
            # Its end was stored, its answer was not read yet.
            assert state == [*committed, number_of(unanswered[0])]
            assert rest == whole(unanswered[0])
        self._past, self._state, self._since = seen, state, []


def load(client, session, cwd):
    """What is replayed, and the answer; read as it is, because checking it against the schema takes long."""
    request = client.request("session/load", setup(session, cwd))
    client.send(request)
    updates = []
    while not is_answer_to(frame := client._frames.get(timeout=PATIENCE), request["id"]):
        if frame["params"]["sessionId"] == session:
            updates.append(frame["params"]["update"])
    return updates, frame


def kill_in_the_middle(client, stories, moment):
    """Prompt both sessions again and again, and kill the process."""
    quick = random.random() < 0.7
    pause, pieces = (0.003, 3) if quick else (0.01, 20)
    countdown = random.randint(1, 4 if moment == MOMENTS[3] else 8)
    if moment == MOMENTS[4]:
        pause, pieces = 0, 0
    timer = threading.Timer(random.uniform(0, 0.1 if moment == MOMENTS[4] else 0.25), client.process.kill)
    if moment in (MOMENTS[0], MOMENTS[4]):
        timer.start()
    asked = {}

    def ask(story):
        request = client.prompt_request(story.session, story.ask(pause, pieces))
        asked[request["id"]] = story
        with contextlib.suppress(BrokenPipeError):
            client.send(request)

    client._held.clear()
    for story in stories:
        ask(story)
    while (frame := client._frames.get(timeout=PATIENCE)) is not None:
        story = next((story for id, story in asked.items() if is_answer_to(frame, id)), None)
        if story is not None:
            assert frame["result"] == {"stopReason": "end_turn"}
            story.was_answered()
        if is_it(frame, moment):
            countdown -= 1
            if countdown <= 0:
                client.process.kill()
        if story is not None and client.process.returncode is None and countdown > 0:
            ask(story)
    timer.cancel()
    client.process.wait()


def is_it(frame, moment):
    kind = frame.get("params", {}).get("update", {}).get("sessionUpdate", "")
    match moment:
        case "while text streams":
            return kind == "agent_message_chunk"
        case "during a tool call":
            return kind.startswith("tool_call")
        case "right after an answer":
            return "result" in frame
    return False


def told(updates):
    """Who said what and which calls were made, in order; a call with its status and what it shows."""
    seen = []
    for update in updates:
        match update["sessionUpdate"]:
            case "user_message_chunk":
                seen.append(("user", update["messageId"], update["content"]["text"]))
            case "agent_message_chunk":
                message, text = update["messageId"], update["content"]["text"]
                if seen and seen[-1][:2] == ("agent", message):
                    text = seen.pop()[2] + text
                seen.append(("agent", message, text))
            case "tool_call":
                shown = "".join(part["content"]["text"] for part in update.get("content", ()))
                seen.append((update["status"], update["title"], shown))
            case "tool_call_update":
                raise AssertionError(f"a call is told in one piece: {update}")
    ids = [(kind, id) for kind, id, _ in seen]
    assert len(ids) == len({*ids}), "something is there twice"
    return [(kind, text) if kind in ("user", "agent") else (kind, id, text) for kind, id, text in seen]


def state_in(updates):
    """The agent's state, which it put into the title when the session was opened."""
    titles = [update["title"] for update in updates if update["sessionUpdate"] == "session_info_update"]
    return eval(titles[-1].removeprefix("state "))


def whole(text):
    """All that is told of a turn that has ended."""
    number, _, pieces = text.split()
    return [
        ("user", text),
        ("agent", f"begin {number};"),
        ("completed", f"work {number}", "".join(f" {number}.{piece}" for piece in range(int(pieces)))),
        ("agent", "".join(f" {number}:{piece}" for piece in range(int(pieces))) + f" end {number}"),
    ]


def number_of(text):
    return int(text.split()[0])


def is_beginning(told, whole):
    """Whether this is the turn as far as it went; a call that was open is told as interrupted."""
    *before, last = told
    if before != whole[: len(before)] or len(told) > len(whole):
        return False
    expected = whole[len(before)]
    if last[0] == "failed":
        shown = last[2].removesuffix("interrupted")
        return shown != last[2] and expected[1] == last[1] and expected[2].startswith(shown)
    if last[0] == "agent":
        return expected[0] == "agent" and expected[1].startswith(last[1])
    return last == expected
