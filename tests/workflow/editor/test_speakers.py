"""Agents that speak at the same time: who has the word, and when it passes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from coupler.events import Text, Thought
from coupler.workflow.editor import projection as module
from coupler.workflow.editor.projection import AgentMessages
from coupler.workflow.journal.run_events import Place, StepStarted

A, B, TOP = Place("both.a"), Place("both.b"), Place("top")


class Chat:
    """A session's way out that keeps what was said, message by message."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.texts: dict[str, str] = {}
        self.has_spoken = asyncio.Event()
        self.outlet = self
        self.turn = SimpleNamespace(session=self, is_alive=True, begin_new_message=lambda: None)

    def new_message_id(self) -> str:
        return f"m{len(self.texts)}"

    def send(self, event: Text | Thought) -> None:
        id = event.message_id or ""
        if id not in self.order:
            self.order.append(id)
        assert self.order[-1] == id, "a message went on after another one"
        mark = "~" if isinstance(event, Thought) else ""
        self.texts[id] = self.texts.get(id, mark) + event.text
        self.has_spoken.set()

    @property
    def messages(self) -> list[str]:
        return [self.texts[id] for id in self.order]


def played(play: Callable[[AgentMessages], None]) -> list[str]:
    """The messages that come of it, with the steps `both.a` and `both.b` inside of another one."""

    async def main() -> list[str]:
        chat = Chat()
        voices = AgentMessages(chat.turn)  # type: ignore[arg-type]
        for place in (A, B, TOP):
            parent = None if place is TOP else Place("both")
            voices.notice(StepStarted(place=place, id="x", kind="agent", title="x", parent=parent))
        play(voices)
        voices.end()
        return chat.messages

    return asyncio.run(main())


def test_the_first_has_the_word_until_its_message_is_over() -> None:
    def play(voices: AgentMessages) -> None:
        for word in ("one ", "two "):
            voices.say(Text, A, word)
            voices.say(Text, B, word)
        voices.interrupt(A)
        voices.say(Text, B, "three")

    assert played(play) == ["**both.a**\n\none two ", "**both.b**\n\none two three"]


def test_the_end_of_a_step_cuts_nobody_elses_message() -> None:
    def play(voices: AgentMessages) -> None:
        voices.say(Text, A, "one ")
        voices.say(Text, B, "of b")
        voices.say(Text, TOP, "of another")
        voices.finish(B)
        voices.say(Text, A, "two")
        voices.finish(A)
        voices.say(Text, TOP, ", which goes on")

    assert played(play) == ["**both.a**\n\none two", "**both.b**\n\nof b", "of another, which goes on"]


def test_what_was_said_stands_before_the_tool_call_that_follows_it() -> None:
    def play(voices: AgentMessages) -> None:
        voices.say(Text, A, "one ")
        voices.say(Text, B, "before the call")
        voices.interrupt(B)
        voices.say(Text, A, "two")

    assert played(play) == ["**both.a**\n\none ", "**both.b**\n\nbefore the call", "**both.a**\n\ntwo"]


def test_a_name_is_told_once_and_not_at_the_top() -> None:
    def play(voices: AgentMessages) -> None:
        voices.say(Text, TOP, "top")
        voices.interrupt(TOP)
        voices.say(Text, A, "one")
        voices.interrupt(A)
        voices.say(Text, A, "two")

    assert played(play) == ["top", "**both.a**\n\none", "two"]


def test_a_message_does_not_begin_with_blank_lines() -> None:
    def play(voices: AgentMessages) -> None:
        voices.say(Text, TOP, "one")
        voices.interrupt(TOP)
        voices.say(Text, TOP, "\n\n")
        voices.say(Text, TOP, "\n\ntwo\n\n")
        voices.say(Text, TOP, "three")

    assert played(play) == ["one", "two\n\nthree"]


def test_a_thought_is_a_message_of_its_own() -> None:
    def play(voices: AgentMessages) -> None:
        voices.say(Text, TOP, "one")
        voices.say(Thought, TOP, "hm")
        voices.say(Text, TOP, "two")

    assert played(play) == ["one", "~hm", "two"]


def test_what_is_held_back_is_said_in_the_end() -> None:
    def play(voices: AgentMessages) -> None:
        voices.say(Text, A, "one")
        voices.say(Thought, B, "hm")
        voices.say(Text, B, "two")

    assert played(play) == ["**both.a**\n\none", "~hm", "**both.b**\n\ntwo"]


def test_who_pauses_loses_the_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SPEAKER_PAUSE", 0.001)

    async def main() -> list[str]:
        chat = Chat()
        voices = AgentMessages(chat.turn)  # type: ignore[arg-type]
        voices.say(Text, A, "one")
        chat.has_spoken.clear()
        voices.say(Text, B, "two")
        await asyncio.wait_for(chat.has_spoken.wait(), 10)
        return chat.messages

    assert asyncio.run(main()) == ["one", "two"]
