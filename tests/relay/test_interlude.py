"""What is said between two turns: bounded, in order, and without secrets."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from client.stage import Scripted, run, until
from coupler.events import Text, Thought
from coupler.relay.mirror import BetweenTurns
from raw_client import Frame, RawClient, texts
from relay.editing import updates

Script = Callable[[str], Scripted]
Serve = Callable[..., RawClient]


class Slow:
    """A session, and its way out, which has room when the test says so."""

    is_busy = False

    def __init__(self) -> None:
        self.outlet = self
        self.room = asyncio.Event()
        self.sent: list[Text | Thought] = []
        self.ends = 0
        self.new_message_id = map("m{}".format, itertools.count(1)).__next__

    def has_room(self) -> bool:
        return self.room.is_set()

    async def wait_for_room(self) -> None:
        await self.room.wait()

    async def until_idle(self) -> None:
        pass

    def show(self, event: Text | Thought) -> None:
        self.sent.append(event)

    send = show

    def end_message(self) -> None:
        self.ends += 1


def test_what_an_editor_has_no_room_for_waits_and_comes_in_order() -> None:
    async def story() -> None:
        outlet: Any = Slow()
        interlude = BetweenTurns(outlet, asyncio.get_running_loop().create_task)
        for number in range(600):
            interlude.say(Text(f"{number} "))
        assert not outlet.sent
        outlet.room.set()
        await until(lambda: "599" in "".join(each.text for each in outlet.sent))
        assert "".join(each.text for each in outlet.sent) == "".join(f"{number} " for number in range(600))
        assert {each.message_id for each in outlet.sent} == {"m1"}
        interlude.end()

    run(story())


def test_what_still_waits_when_a_turn_begins_is_shown_before_it() -> None:
    async def story() -> None:
        outlet: Any = Slow()
        interlude = BetweenTurns(outlet, asyncio.get_running_loop().create_task)
        interlude.say(Thought("hm"))
        interlude.say(Text("by the way"))
        interlude.end()
        assert [each.text for each in outlet.sent] == ["hm", "by the way"]
        assert outlet.ends == 1
        outlet.room.set()
        await until(lambda: len(asyncio.all_tasks()) == 1)

    run(story())


def test_answers_are_told_in_their_turns_though_a_message_id_comes_again(
    script: Script, relay: Serve
) -> None:
    agent = script("""
        for prompt in prompts():
            send(say(text_of(prompt) + "!", messageId="msg_0"), end(prompt))
    """)
    with relay(agent) as editor:
        editor.initialize()
        session = editor.new_session()
        told = [editor.prompt(session, text)[0] for text in ("one", "two", "three")]
    assert [texts(each) for each in told] == ["one!", "two!", "three!"]
    # An editor that puts pieces of one id together must not put these together.
    ids = [update["messageId"] for each in told for update in each if "messageId" in update]
    assert ids[0] == "msg_0" and len({*ids}) == 3


def test_an_agent_that_never_stops_is_left_out_at_a_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("coupler.client.prompt.MOST_UNREAD_BYTES", 10_000)

    async def story() -> None:
        outlet: Any = Slow()
        interlude = BetweenTurns(outlet, asyncio.get_running_loop().create_task)
        # Pieces without text count, too.
        for number in range(1_000):
            interlude.say(Text("", f"m{number}"))
        outlet.room.set()
        await until(lambda: len(asyncio.all_tasks()) == 1)
        assert 50 < len(outlet.sent) <= 100
        interlude.say(Text("after that it is heard again"))
        assert outlet.sent[-1].text == "after that it is heard again"
        interlude.end()

    run(story())
    assert [record.message for record in caplog.records].count(LEFT_OUT) == 1


LEFT_OUT = "the editor does not read what the agent says between turns: it is left out"


@pytest.mark.parametrize(("quiet", "ends"), [(60.0, 0), (0.0, 1)])
def test_a_message_goes_on_until_the_agent_is_quiet(
    monkeypatch: pytest.MonkeyPatch, quiet: float, ends: int
) -> None:
    monkeypatch.setattr("coupler.relay.mirror.QUIET", quiet)

    async def story() -> None:
        outlet: Any = Slow()
        outlet.room.set()
        interlude = BetweenTurns(outlet, asyncio.get_running_loop().create_task)
        interlude.say(Text("by the"))
        # when the loop has come round
        for _ in range(10):
            await asyncio.sleep(0)
        assert outlet.ends == ends
        interlude.say(Text(" way"))
        interlude.end()
        assert (len({each.message_id for each in outlet.sent}), outlet.ends) == (1 + ends, 1 + ends)

    run(story())


def test_a_secret_in_two_pieces_between_turns_is_masked(
    script: Script, relay: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXAMPLE_API_KEY", "sk-a1b2c3d4e5f6g7h8")
    agent = script("""
        for prompt in prompts():
            send(end(prompt), say("it is sk-a1b2"))
            send(say("c3d4e5f6g7h8, keep it"))
    """)
    with relay(agent) as editor:
        editor.initialize()
        editor.send(editor.prompt_request(editor.new_session(), "go"))
        frames: list[Frame] = []
        while "keep it" not in texts(updates(frames, "agent_message_chunk")):
            frames.append(editor.read())
        said = texts(updates(frames, "agent_message_chunk"))
        assert said.startswith("it is ") and "c3d4" not in said and "sk-a1b2" not in said
