"""What an agent has said in a turn: messages come in more than one way, and are to be read once.

A model's answer is streamed, and then written into the state: as the message that it is, or by a node that
makes another one of its text. What a node says by itself is written once by it, and once more by each graph
around that node's own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

Place: TypeAlias = tuple[str, ...]
"""The namespace of the graph that something is written in: that of the graph around it, and one name more."""


class Sayings:
    """Tells what is new from what is repeated."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._written: dict[int, BaseMessage] = {}
        self._without_id: list[BaseMessage] = []
        self._answers: set[str] = set()
        self._places: dict[str, list[Place]] = {}

    def know(self, messages: Iterable[BaseMessage]) -> None:
        """These messages are nothing new."""
        self._ids.update(message.id for message in messages if message.id is not None)

    def answer(self, text: str) -> None:
        """A model has said this."""
        self._answers.add(text)

    def has(self, message: BaseMessage, place: Place) -> bool:
        """Whether this very message was written before; from now on it was."""
        # The state gives ids to messages that have none, but only after they were written.
        self.know(self._without_id)
        self._without_id = [each for each in self._without_id if each.id is None]
        if id(message) in self._written or message.id in self._ids:
            self._hand_up(message.text, place)
            return True
        self._written[id(message)] = message
        self._without_id.append(message)
        return False

    def repeats(self, message: BaseMessage, shown: str, place: Place) -> bool:
        """Whether another message, of which this text is shown, only repeats what was said.

        Two nodes of one graph may well say the same. If it is no repetition, it is said now.
        """
        if shown in self._answers:
            return True
        if self._hand_up(message.text, place):
            return True
        self._places.setdefault(message.text, []).append(place)
        return False

    def _hand_up(self, text: str, place: Place) -> bool:
        """Whether this was said inside of a graph in this place, which now says it of itself."""
        places = self._places.get(text, [])
        for at, each in enumerate(places):
            if len(each) > len(place) and each[: len(place)] == place:
                places[at] = place
                return True
        return False
