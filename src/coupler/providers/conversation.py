"""What was said in a session with a model, in the form in which it is sent with every request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coupler.providers.errors import ProviderError
from coupler.providers.loose import Loose
from coupler.providers.openai_stream import Wanted
from coupler.schema.v1 import ImageContent

if TYPE_CHECKING:
    from coupler.agent.turn import Turn

ROLES = frozenset({"user", "assistant", "tool"})
UNUSED = "Error: cancelled before it was used"


class Conversation:
    """Messages, oldest first. `settle` leaves nothing open that a server would refuse."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.cost = 0.0
        """What all turns before this one have cost, in US dollars."""
        self.cost_of_turn = 0.0
        self.open_calls: list[Wanted] = []

    @classmethod
    def of(cls, state: object) -> Conversation:
        """The conversation that was kept; what cannot be read is forgotten."""
        kept, conversation = Loose(state), cls()
        messages = [message.members for message in kept.objects("messages") if message.text("role") in ROLES]
        conversation.messages = messages
        conversation.cost = kept.amount("cost") or 0.0
        return conversation

    def as_state(self) -> dict[str, Any]:
        """The conversation as a session's state."""
        return {"messages": self.messages, "cost": self.cost + self.cost_of_turn}

    def ask(self, turn: Turn) -> None:
        """Add the user's prompt, with its images."""
        images = [
            {"type": "image_url", "image_url": {"url": f"data:{block.mime_type};base64,{block.data}"}}
            for block in turn.blocks
            if isinstance(block, ImageContent)
        ]
        if not turn.text.strip() and not images:
            raise ProviderError("The prompt is empty: a model needs a text or an image.")
        text = [{"type": "text", "text": turn.text}] if turn.text.strip() else []
        self.messages.append({"role": "user", "content": [*text, *images] if images else turn.text})

    def answer(self, text: str, wanted: list[Wanted]) -> None:
        """Add what the model has said, and what it wants to be called."""
        self.open_calls = list(wanted)
        if not text and not wanted:
            return
        message: dict[str, Any] = {"role": "assistant", "content": text or None}
        if wanted:
            message["tool_calls"] = [call.as_message() for call in wanted]
        self.messages.append(message)

    def return_result(self, id: str, text: str) -> None:
        """Add what a tool has returned."""
        self.open_calls = [call for call in self.open_calls if call.id != id]
        self.messages.append({"role": "tool", "tool_call_id": id, "content": text})

    def settle(self) -> None:
        """Answer the calls that nobody made, and forget a prompt that nobody answered."""
        for call in [*self.open_calls]:
            self.return_result(call.id, UNUSED)
        if self.messages and self.messages[-1]["role"] == "user":
            self.messages.pop()
