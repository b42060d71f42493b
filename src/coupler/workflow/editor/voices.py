"""What the agents of a run say and think, as messages of the chat: one speaks at a time.

Clients begin a new message when another one goes on. So of agents that work beside each other the first has
the word until its message is over, or until it pauses; what the others say is held back, and then follows.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from coupler.agent.content import pieces, whole_text
from coupler.events import Text, Thought

if TYPE_CHECKING:
    from coupler.agent.turn import Turn
    from coupler.workflow.journal.happenings import Place, StepStarted

PAUSE = 1.0
"""Seconds without a word after which somebody else may speak."""

Kind = type[Text | Thought]


class Voices:
    """Of one run, in one turn."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._outlet = turn.session.outlet
        self._inside: set[Place] = set()
        """The steps that are inside of others."""
        self._speaker: Place | None = None
        self._message: tuple[Kind, str] | None = None
        self._named: Place | None = None
        """Who spoke last, and needs no name again."""
        self._last_word = 0.0
        self._held: dict[Place, list[tuple[Kind, list[str]]]] = {}
        """What others have said meanwhile; pieces of one text are sent as one."""
        self._timer: asyncio.TimerHandle | None = None

    def notice(self, started: StepStarted) -> None:
        """A step begins; what is said in one that is inside of another needs a name."""
        if started.place is not None and started.parent is not None:
            self._inside.add(started.place)

    def say(self, kind: Kind, place: Place, text: str) -> None:
        """A piece of what the agent of a step says or thinks."""
        if self._speaker in (None, place):
            self._speak(kind, place, text)
            return
        held = self._held.setdefault(place, [])
        if not held or held[-1][0] is not kind:
            held.append((kind, []))
        held[-1][1].append(text)
        self._wait(PAUSE)

    def say_apart(self, text: str) -> None:
        """Something that no agent says, as a message of its own."""
        self._end_message()
        self._named = None
        self._send(Text, text, self._outlet.new_message_id())
        self._turn.begin_new_message()

    def interrupt(self, place: Place) -> None:
        """Something else of a step is shown now: what was said in it stands before that."""
        if place in self._held:
            self._end_message()
            self._release(place)
        if self._speaker == place:
            self._hand_over()

    def end(self) -> None:
        """Nothing more comes: what was held back is said."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._held:
            self._hand_over()

    def _hand_over(self) -> None:
        """The message is over, and whoever waits longest has the word."""
        self._end_message()
        waiting = next(iter(self._held), None)
        if waiting is not None:
            self._release(waiting)

    def _release(self, place: Place) -> None:
        for kind, texts in self._held.pop(place):
            self._speak(kind, place, "".join(texts))

    def _speak(self, kind: Kind, place: Place, text: str) -> None:
        if self._message is None or self._message[0] is not kind:
            # Blank lines part what an agent says before and after a tool call; here that does.
            text = text.lstrip("\n")
            if not text:
                return
            # A thought between two texts parts them.
            self._end_message()
            self._message = kind, self._outlet.new_message_id()
            self._speaker = place
            if kind is Text and place in self._inside and self._named != place:
                text = f"**{place}**\n\n{text}"
                self._named = place
        self._last_word = asyncio.get_running_loop().time()
        self._send(kind, text, self._message[1])

    def _send(self, kind: Kind, text: str, message_id: str) -> None:
        for piece in pieces(whole_text(text, "a text")):
            self._outlet.send(kind(piece, message_id))

    def _end_message(self) -> None:
        if self._message is not None:
            self._turn.begin_new_message()
        self._speaker = self._message = None

    def _wait(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """Whether the one who has the word still speaks while others wait."""
        self._timer = None
        if not self._held or not self._turn.is_alive:
            return
        silent = asyncio.get_running_loop().time() - self._last_word
        if silent < PAUSE:
            self._wait(PAUSE - silent)
            return
        self._hand_over()
        if self._held:
            self._wait(PAUSE)
