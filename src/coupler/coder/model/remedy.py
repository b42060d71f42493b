"""What the user of the coder can do when its model has failed: which model, where, and with whose key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coupler.agent.errors import TurnFailedError
from coupler.coder.model.keyring import Keyring
from coupler.coder.model.provider import LOCAL, OLLAMA

if TYPE_CHECKING:
    from coupler.coder.model.choice import ModelChoice


def with_remedy(error: TurnFailedError, choice: ModelChoice) -> TurnFailedError:
    """The same error, and behind it what can be done about it in the coder."""
    data: dict[str, Any] = {**error.data}
    remedy = _remedy(data.get("kind"), choice)
    if remedy is None:
        return error
    del data["reason"]
    return TurnFailedError(f"{error.message} {remedy}", **data)


def _remedy(kind: object, choice: ModelChoice) -> str | None:
    place = choice.name if choice.base_url is None else f"{choice.name} at {choice.base_url}"
    match kind:
        case "auth":
            key = Keyring().key_for(choice)
            used = "without a key" if key is None else f"with the key of {key.source}"
            return f"{place} was asked {used}: correct it, or run `coupler login coder` in a terminal."
        case "network" if choice.provider == OLLAMA:
            return f"{place} was asked: start Ollama, with `ollama serve` if not otherwise."
        case "refused":
            return f"{place} was asked. It has to be a model that can use tools."
        case "network" | "garbled" if choice.provider != LOCAL:
            return f"{place} was asked."
        case "no_model" if choice.provider == OLLAMA:
            return f"{place} was asked: `ollama pull {choice.model}` gets it."
        case "no_model":
            return f"{place} was asked: choose another one, or run `coupler login coder` in a terminal."
    return None
