"""Keeps images and files from models that cannot use them: other formats, too large, or none at all.

A model's server answers such an image with an error, and the conversation holds it from then on. So each is
looked at before it is sent, wherever it comes from: a prompt, a tool's result, or `read_file`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage

from coupler.langchain.content import checked_image
from coupler.langchain.messages import PerMessage
from coupler.langchain.middleware import ModelHandler

NO_IMAGES = "this model takes no images"

_DOUBTFUL = {"image": "image_inputs", "pdf": "pdf_inputs"}
"""Inputs that most models take, with LangChain's names: only those that are known not to get none."""

_RARE = {"audio": "audio_inputs", "video": "video_inputs"}
"""Inputs that few models take: only those that are known to get them."""


class CheckedImages(AgentMiddleware[Any, Any, Any]):
    """Puts words in the place of images and files that the model cannot use."""

    def __init__(self) -> None:
        super().__init__()
        self._checked: dict[frozenset[str], PerMessage[AnyMessage]] = {}

    async def awrap_model_call(self, request: ModelRequest[Any], handler: ModelHandler) -> ModelResponse[Any]:
        """Call the model without the images and files that it cannot use."""
        taken = _taken_by(request.model)
        if taken not in self._checked:
            self._checked[taken] = PerMessage(partial(_checked, taken=taken))
        messages = self._checked[taken](request.messages)
        if any(new is not old for new, old in zip(messages, request.messages, strict=True)):
            request = request.override(messages=messages)
        return await handler(request)


def _taken_by(model: BaseChatModel) -> frozenset[str]:
    """Return the kinds of inputs besides text that the model takes, as far as that is known."""
    known: Any = model.profile or {}
    usual = {kind for kind, name in _DOUBTFUL.items() if known.get(name) is not False}
    return frozenset(usual | {kind for kind, name in _RARE.items() if known.get(name) is True})


def _checked(message: AnyMessage, *, taken: frozenset[str]) -> AnyMessage:
    if not isinstance(message.content, list):
        return message
    parts = [_checked_part(part, taken) for part in message.content]
    is_same = all(new is old for new, old in zip(parts, message.content, strict=True))
    return message if is_same else message.model_copy(update={"content": parts})


def _checked_part(part: Any, taken: frozenset[str]) -> Any:
    if not isinstance(part, dict):
        return part
    if part.get("type") == "file" and "base64" in part:
        return _checked_file(part, taken)
    return _checked_image(part, taken) if part.get("type") == "image" else part


def _checked_file(part: dict[str, Any], taken: frozenset[str]) -> Any:
    """Return a file if the model takes its kind: servers refuse one that they do not know by its type."""
    mime_type = str(part.get("mime_type"))
    if mime_type.startswith("image/"):
        return _checked_image({**part, "type": "image"}, taken)
    kind = "pdf" if mime_type == "application/pdf" else mime_type.partition("/")[0]
    if kind in taken:
        return part
    return {"type": "text", "text": f"[A file was left out: this model takes no {mime_type}.]"}


def _checked_image(part: dict[str, Any], taken: frozenset[str]) -> Any:
    problem: str | None = None if "image" in taken else NO_IMAGES
    data = part.get("base64")
    if problem is None and isinstance(data, str):
        kind, problem = checked_image(data)
        if problem is None and kind != part.get("mime_type"):
            return {**part, "mime_type": kind}
    return part if problem is None else {"type": "text", "text": f"[An image was left out: {problem}.]"}
