"""Keeps images from models that cannot use them: no image formats, too large, or no images at all.

A model's server answers such an image with an error, and the conversation holds it from then on. So each is
looked at before it is sent, wherever it comes from: a prompt, a tool's result, or `read_file`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AnyMessage

from coupler.langchain.content import checked_image
from coupler.langchain.messages import PerMessage

NO_IMAGES = "this model takes no images"


class CheckedImages(AgentMiddleware[Any, Any, Any]):
    """Puts words in the place of images that the model cannot use."""

    def __init__(self) -> None:
        super().__init__()
        self._checked = {takes: PerMessage(partial(_checked, takes_images=takes)) for takes in (True, False)}

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Call the model without the images that it cannot use."""
        messages = self._checked[_takes_images(request.model)](request.messages)
        if any(new is not old for new, old in zip(messages, request.messages, strict=True)):
            request = request.override(messages=messages)
        return await handler(request)


def _takes_images(model: BaseChatModel) -> bool:
    """Return False if the model is known to take none; most of what is not known takes them."""
    return (model.profile or {}).get("image_inputs") is not False


def _checked(message: AnyMessage, *, takes_images: bool) -> AnyMessage:
    if not isinstance(message.content, list):
        return message
    parts = [_checked_part(part, takes_images) for part in message.content]
    is_same = all(new is old for new, old in zip(parts, message.content, strict=True))
    return message if is_same else message.model_copy(update={"content": parts})


def _checked_part(part: Any, takes_images: bool) -> Any:
    if not isinstance(part, dict) or part.get("type") != "image":
        return part
    problem: str | None = None if takes_images else NO_IMAGES
    data = part.get("base64")
    if problem is None and isinstance(data, str):
        kind, problem = checked_image(data)
        if problem is None and kind != part.get("mime_type"):
            return {**part, "mime_type": kind}
    return part if problem is None else {"type": "text", "text": f"[An image was left out: {problem}.]"}
