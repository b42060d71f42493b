"""What the tests of permissions do again and again: one call a prompt, asked about or not."""

import json
import os
import subprocess
from typing import Any, NamedTuple

import forked
from agent.sessions.steps import setup
from agent.steps import asks, end_of, final_call, text_of, update_of
from raw_client import COUPLER, PATIENCE, Frame, RawClient, is_answer_to, texts

# Makes the tool call that the prompt describes, and tells whether it was permitted.
ACTOR = """
import json

async def agent(turn):
    wish = {"title": "Do it", **json.loads(turn.text)}
    deadline, diff = wish.pop("deadline", None), wish.pop("diff", None)
    async with turn.tool(**wish) as call:
        if diff is not None:
            await call.diff(**diff)
        is_permitted = await call.permitted(deadline=deadline)
        await turn.say("yes" if is_permitted else "no")
"""
ALLOW_ALWAYS, REJECT_ALWAYS = "allow_always", "reject_always"
ALLOW_ONCE, REJECT_ONCE = "allow_once", "reject_once"


class Outcome(NamedTuple):
    """What came of a call."""

    is_permitted: bool
    call: Frame
    """As a client shows it in the end."""
    statuses: list[str]
    question: Frame | None
    """The params of the question that was asked, if one was."""

    @property
    def reason(self) -> str:
        return text_of(self.call)

    @property
    def names(self) -> dict[str, str]:
        """What the answers were called."""
        assert self.question is not None
        return names_in(self.question)


class Question(NamedTuple):
    """A question that stands, and the prompt that waits for it."""

    prompt: Frame
    updates: list[Frame]
    id: Any
    params: Frame


class Worker:
    """A session of the agent, in one directory."""

    def __init__(self, client: RawClient, cwd: object, id: str | None = None) -> None:
        self.client, self.cwd = client, cwd
        self.id = id or client.new_session(str(cwd))

    def resume(self) -> None:
        answer = self.client.call("session/resume", setup(self.id, self.cwd))
        assert "result" in answer, answer

    def close(self) -> None:
        assert self.client.call("session/close", {"sessionId": self.id})["result"] == {}

    def does(self, *, answer: str | None = None, reply: Frame | None = None, **wish: Any) -> Outcome:
        """One call to its end. Without an answer there must be no question, with one there must be."""
        if answer is not None:
            reply = selected(answer)
        if reply is None:
            prompt = self.begin(**wish)
            frames = self.client.read_until(lambda frame: is_answer_to(frame, prompt["id"]) or _asks(frame))
            assert not _asks(frames[-1]), f"it was asked: {frames[-1]}"
            return _outcome([update_of(frame) for frame in frames[:-1]], frames[-1], None)
        question = self.is_asked(**wish)
        self.client.send({"id": question.id, **reply})
        updates, end = end_of(self.client, question.prompt)
        return _outcome([*question.updates, *updates], end, question.params)

    def is_asked(self, **wish: Any) -> Question:
        """Begin a call, up to the question."""
        prompt = self.begin(**wish)
        *updates, frame = self.client.read_until(
            lambda frame: _asks(frame) or is_answer_to(frame, prompt["id"])
        )
        assert _asks(frame), f"it was not asked: {updates}"
        return Question(prompt, [update_of(each) for each in updates], frame["id"], frame["params"])

    def begin(self, **wish: Any) -> Frame:
        """Send the prompt."""
        prompt = self.client.prompt_request(self.id, json.dumps(wish))
        self.client.send(prompt)
        return prompt


def selected(option: str) -> Frame:
    """The answer that chooses an option."""
    return {"result": {"outcome": {"outcome": "selected", "optionId": option}}}


def names_in(question: Frame) -> dict[str, str]:
    """The options of a question, by their ids."""
    return {option["optionId"]: option["name"] for option in question["options"]}


def permissions(*arguments: object, home: object, **environment: str) -> Any:
    """Run `coupler permissions` as a user of this home does."""
    return forked.run(
        [*COUPLER, "permissions", *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        env={**os.environ, "COUPLER_HOME": str(home), **environment},
        timeout=PATIENCE,
    )


def remembered(home: object, project: object) -> list[tuple[str, str]]:
    """What is kept for a project, as the command line lists it."""
    ended = permissions("list", "--json", "--project", project, home=home)
    assert ended.returncode == 0, ended.stderr
    return [(each["answer"], each["rule"]) for each in json.loads(ended.stdout)]


_asks = asks("session/request_permission")


def _outcome(updates: list[Frame], answer: Frame, question: Frame | None) -> Outcome:
    assert answer.get("result") == {"stopReason": "end_turn"}, answer
    said = texts(updates)
    assert said in {"yes", "no"}, said
    statuses = [update["status"] for update in updates if "status" in update]
    return Outcome(said == "yes", final_call(updates), statuses, question)
