"""Agents that are right in an unusual way: `python unusual.py NAME` serves one, without NAME lists them."""

from __future__ import annotations

import sys
import threading
import time
from typing import ClassVar

from fault import Variant
from model import run
from model_sessions import Session
from model_turn import Turn, chunk, text
from model_wire import INVALID_REQUEST, Object, Refusal, Request


class Unusual(Variant):
    """The model agent with a way of its own that the protocol allows."""

    assertions: ClassVar[tuple[str, ...]]
    """The assertions that might take it for a fault."""


class OpensSessionsSlowly(Unusual):
    """A session takes longer to open than a slow turn takes, whether there is one or not."""

    assertions = ("A14",)

    def new_session(self, request: Request) -> None:
        def open_in_the_end() -> None:
            time.sleep(1.5)
            try:
                super(OpensSessionsSlowly, self).new_session(request)
            except Refusal as refusal:
                self.answer_error(request, refusal)

        threading.Thread(target=open_in_the_end, daemon=True).start()

    def stream_slowly(self, turn: Turn) -> None:
        self.say(turn, "Well.")
        with self.changed:
            self.changed.wait_for(lambda: turn.cancelled, 1.2)


class WritesOnlyWhereItReads(Unusual):
    """The client's files are used only if it both reads and writes them."""

    assertions = ("A05", "A56")

    def offered_in(self, params: Object) -> set[str]:
        offered = super().offered_in(params)
        return offered if {"read", "write"} <= offered else offered - {"read", "write"}


class Greets(Unusual):
    """The agent speaks first, in a new session and in one that is opened again."""

    assertions = ("A27", "A28", "A30", "A42", "A43", "A45", "A51")

    def answer_opened(self, request: Request, session: Session, **more: str) -> None:
        super().answer_opened(request, session, **more)
        words = text("Welcome." if more else "Welcome back.")
        greeting = chunk("agent_message_chunk", words, session.next_message())
        session.history.append(greeting)
        self.save(session)
        self.update(session, greeting)


class ReleasesTerminalsLate(Unusual):
    """A terminal is released a moment after its turn."""

    assertions = ("A23", "A34", "A53", "A57")

    def release(self, turn: Turn, terminal: Object) -> None:
        threading.Timer(0.1, super().release, (turn, terminal)).start()


class SaysTwoMessagesInARow(Unusual):
    """Two messages follow each other and read like one."""

    assertions = ("A51",)

    def take_turn(self, turn: Turn) -> None:
        super().take_turn(turn)
        self.say(turn, "One more ")
        self.say(turn, "thing.")


class ClosesBeforeItsPromptEnds(Unusual):
    """A close is answered before the prompt that it cancels."""

    assertions = ("A34",)

    def close_session(self, request: Request) -> None:
        session = self.session_of(request)
        self.answer(request, {})
        self.leave(session, lambda: None)


class SpeaksVersionTwoAsWell(Unusual):
    """A client that asks for more than version 1 is answered in version 2, which has other keys."""

    assertions = ("A01", "A02", "A06", "A60", "S01")

    def initialize(self, request: Request) -> None:
        if request.params.get("protocolVersion") == 65_535:
            info = {"name": "model-agent", "title": "Model agent", "version": "1.0"}
            two = {"protocolVersion": 2, "info": info, "capabilities": {"session": {"prompt": {}}}}
            self.answer(request, two)
            return
        super().initialize(request)


class TellsItsStateLate(Unusual):
    """Title, commands and usage are told after the answer to a prompt, as they may be at any time."""

    assertions = ("A45", "A52")

    def answer_prompt(self, turn: Turn, failure: Refusal | None) -> None:
        super().answer_prompt(turn, failure)
        self.update(turn.session, {"sessionUpdate": "session_info_update", "title": "A title"})
        self.update(turn.session, {"sessionUpdate": "available_commands_update", "availableCommands": []})
        self.update(turn.session, {"sessionUpdate": "usage_update", "used": 1, "size": 2})


class RefusesMalformedBlocksInItsOwnWay(Unusual):
    """What is malformed is refused as a request that is invalid, not as params that are."""

    assertions = ("A03", "A43")

    def answer_error(self, request: Request, refusal: Refusal) -> None:
        super().answer_error(request, Refusal(INVALID_REQUEST, str(refusal)))


UNUSUAL: dict[str, type[Unusual]] = {each.name(): each for each in Unusual.__subclasses__()}

if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(UNUSUAL[sys.argv[1]]())
    else:
        for name, agent in UNUSUAL.items():
            print(name, ",".join(agent.assertions), agent.__doc__, sep="\t")
