"""What providers' servers demand of a conversation, each in its own wire; their refusals in their own words.

`problem_of` judges a request as strictly as the strictest server of its kind: calls and their results in
pairs, one side after the other where that is demanded, nothing empty, images only where they are taken.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from labs.scripted_model import ENCRYPTED, SIGNATURE

Json = dict[str, Any]

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
LONGEST_OPENAI_ID = 40
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
MOST_CACHE_MARKS = 4

UNSIGNED = "skip_thought_signature_validator"
"""What Gemini takes in place of a signature."""


@dataclass
class Strictness:
    """What a server refuses that others of its kind take."""

    takes_images: bool = True
    knows_all_tools: bool = True
    """False: it refuses calls of tools that the request does not offer."""
    refuses_result: str | None = None
    """A text: results of tools that have it are taken for results without a call."""


class _RefusedError(Exception):
    """A request that is refused, with the server's reason."""


def problem_of(wire: str, request: Json, strictness: Strictness) -> str | None:
    """Return why the server refuses the request; None if it takes it."""
    try:
        _JUDGES[wire](request, strictness)
    except _RefusedError as refused:
        return str(refused)
    return None


def _demand(condition: object, reason: str) -> None:
    if not condition:
        raise _RefusedError(reason)


def _short(value: object) -> str:
    return str(value)[:300]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def offered_tools(request: Json) -> list[str]:
    """Return the names of the tools that a request offers."""
    tools = request.get("tools") or []
    return [
        *(tool["function"]["name"] for tool in tools if "function" in tool),
        *(tool.get("name") or tool["type"] for tool in tools if "type" in tool and "function" not in tool),
        *(tool["name"] for tool in tools if "name" in tool and "type" not in tool),
        *(each["name"] for tool in tools for each in tool.get("functionDeclarations") or ()),
    ]


def _offered(request: Json) -> set[str]:
    """Return the tools that a request offers, which have to have names that servers take."""
    names = offered_tools(request)
    _demand(len(set(names)) == len(names), "tools: tool names must be unique")
    for name in names:
        _demand(TOOL_NAME.fullmatch(name), f"tools: invalid tool name {name!r}")
    return set(names)


def _called(name: str, offered: set[str], strictness: Strictness) -> None:
    _demand(strictness.knows_all_tools or name in offered, f"unknown tool name: {name!r}")


# --- OpenAI ---------------------------------------------------------------------------------------------


def _judge_openai(request: Json, strictness: Strictness) -> None:
    offered = _offered(request)
    open_ids: list[str] = []
    seen: set[str] = set()
    messages = request["messages"]
    _demand(messages, "messages: must not be empty")
    for at, message in enumerate(messages):
        where, role = f"messages[{at}]", message.get("role")
        _demand(
            role in {"system", "developer", "user", "assistant", "tool"}, f"{where}: unknown role {role!r}"
        )
        if role == "tool":
            id = message.get("tool_call_id")
            _openai_result(where, message, strictness)
            reason = f"{where}: a tool message must be a response to a preceding message with 'tool_calls'"
            _demand(id in open_ids, reason)
            open_ids.remove(id)
            continue
        reason = f"an assistant message with 'tool_calls' must be followed by tool messages: {open_ids}"
        _demand(not open_ids, f"{where}: {reason}")
        if role == "assistant":
            open_ids = [*_openai_calls(where, message, offered, strictness)]
            _demand(not seen.intersection(open_ids), f"{where}: tool_call ids must be unique")
            seen.update(open_ids)
        else:
            _openai_content(where, message.get("content"), strictness, images=role == "user")
    _demand(not open_ids, f"tool_calls without a tool message: {open_ids}")
    _demand(messages[-1]["role"] != "assistant", "the last message must be of the user or a tool")


def _openai_calls(where: str, message: Json, offered: set[str], strictness: Strictness) -> Iterator[str]:
    calls = message.get("tool_calls") or []
    content = message.get("content")
    if not calls or content:
        _openai_content(where, content, strictness, images=False)
    for call in calls:
        function, id = call["function"], call.get("id") or ""
        _demand(
            CALL_ID.fullmatch(id) and len(id) <= LONGEST_OPENAI_ID, f"{where}: invalid tool_call id {id!r}"
        )
        _demand(TOOL_NAME.fullmatch(function["name"]), f"{where}: invalid tool name {function['name']!r}")
        try:
            is_object = isinstance(json.loads(function["arguments"]), dict)
        except ValueError:
            is_object = False
        _demand(is_object, f"{where}: tool call arguments must be a JSON object")
        _called(function["name"], offered, strictness)
        yield id


def _openai_result(where: str, message: Json, strictness: Strictness) -> None:
    content = message.get("content")
    _demand(isinstance(content, str), f"{where}: tool message content must be a string")
    _demand(_is_text(content), f"{where}: tool message must not be empty")
    doubted = strictness.refuses_result
    _demand(
        doubted is None or doubted not in str(content), f"{where}: tool_call_id of the tool message not found"
    )


def _openai_content(where: str, content: Any, strictness: Strictness, *, images: bool) -> None:
    if isinstance(content, str):
        _demand(_is_text(content), f"{where}: the message must not be empty")
        return
    _demand(isinstance(content, list) and content, f"{where}: the message must not be empty")
    for part in content:
        match part:
            case {"type": "text", "text": text}:
                _demand(_is_text(text), f"{where}: a text content block must not be empty")
            case {"type": "image_url", "image_url": {"url": url}} if images:
                _demand(strictness.takes_images, "image input is not supported by this model")
                found = re.fullmatch(r"data:([\w/+-]+);base64,(.+)", url)
                _demand(found is not None, f"{where}: invalid image_url")
                _image(where, *(found.groups() if found else ()))
            case {"type": "file", "file": {"filename": str(), "file_data": str(data)}} if images:
                _demand(strictness.takes_images, "file input is not supported by this model")
                _demand(
                    data.startswith("data:application/pdf;base64,"),
                    f"{where}: invalid file_data: {_short(part)}",
                )
            case {"type": "input_audio", "input_audio": {"data": str(), "format": "wav" | "mp3"}} if images:
                _demand(strictness.takes_images, "audio input is not supported by this model")
            case _:
                _demand(
                    False,
                    f"{where}: content of type {part.get('type')!r} is not supported here: {_short(part)}",
                )


def _image(where: str, kind: str, data: str) -> None:
    _demand(kind in IMAGE_TYPES, f"{where}: image media type {kind!r} is not supported")
    try:
        base64.b64decode(data, validate=True)
    except ValueError:
        _demand(False, f"{where}: the image is no valid base64")


def _judge_responses(request: Json, strictness: Strictness) -> None:
    offered = _offered(request)
    open_ids: list[str] = []
    for at, item in enumerate(request["input"]):
        where = f"input[{at}]"
        match item:
            case {"role": "user" | "system" | "developer" | "assistant", "content": content}:
                texts = [{"text": content}] if isinstance(content, str) else content
                _demand(all(_is_text(part.get("text", "an image")) for part in texts), f"{where}: empty text")
            case {"type": "function_call", "call_id": id, "name": name, "arguments": str()}:
                _called(name, offered, strictness)
                open_ids.append(id)
            case {"type": "function_call_output", "call_id": id}:
                _demand(id in open_ids, f"{where}: No tool call found for function call output with {id}")
                open_ids.remove(id)
            case {"type": "web_search_call", "id": str(), "status": "completed", "action": {"query": str()}}:
                pass
            case _:
                _demand(False, f"{where}: Invalid value: {_short(item)}")
    _demand(not open_ids, f"No tool output found for function calls {open_ids}")


# --- Anthropic ------------------------------------------------------------------------------------------


def _judge_anthropic(request: Json, strictness: Strictness) -> None:
    offered = _offered(request)
    _demand(isinstance(request.get("max_tokens"), int), "max_tokens: Field required")
    messages = request["messages"]
    _demand(messages and messages[0]["role"] == "user", 'messages: first message must use the "user" role')
    _demand(
        str(request).count("'cache_control'") <= MOST_CACHE_MARKS, "A maximum of 4 blocks with cache_control"
    )
    for part in request.get("system") or [] if not isinstance(request.get("system"), str) else []:
        _demand(_is_text(part.get("text")), "system: text content blocks must be non-empty")
    waiting: list[str] = []
    seen: set[str] = set()
    before = None
    for at, message in enumerate(messages):
        where, role = f"messages.{at}", message["role"]
        _demand(role in {"user", "assistant"}, f"{where}: unexpected role {role!r}")
        _demand(role != before, f'{where}: roles must alternate between "user" and "assistant"')
        before, content = role, message["content"]
        if isinstance(content, str):
            content = [{"type": "text", "text": content}]
        _demand(content, f"{where}: all messages must have non-empty content")
        if role == "user":
            _anthropic_prompt(where, content, waiting, strictness)
            waiting = []
        else:
            _demand(not waiting, f"{where}: tool_use ids were found without tool_result blocks: {waiting}")
            waiting = [*_anthropic_answer(where, content, offered, strictness)]
            _demand(
                len(set(waiting)) == len(waiting) and not seen.intersection(waiting),
                "tool_use ids must be unique",
            )
            seen.update(waiting)
    last = messages[-1]["content"]
    is_paused = isinstance(last, list) and last[-1].get("type") == "web_search_tool_result"
    reason = "This model does not support assistant message prefill"
    _demand(messages[-1]["role"] == "user" or is_paused, reason)
    _demand(not waiting, f"tool_use ids were found without tool_result blocks: {waiting}")


def _anthropic_answer(
    where: str, content: Sequence[Json], offered: set[str], strictness: Strictness
) -> Iterator[str]:
    searched: list[str] = []
    for part in content:
        match part:
            case {"type": "text", "text": text}:
                _demand(_is_text(text), f"{where}: text content blocks must contain non-whitespace text")
                is_whole = all(cited["encrypted_index"] == ENCRYPTED for cited in part.get("citations") or ())
                _demand(is_whole, f"{where}: citations: Invalid encrypted index")
            case {"type": "tool_use", "id": id, "name": name, "input": dict()}:
                _demand(CALL_ID.fullmatch(id), f"{where}: tool_use.id should match pattern")
                _called(name, offered, strictness)
                yield id
            case {"type": "thinking" | "redacted_thinking"}:
                pass
            case {"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": str()}}:
                searched.append(id)
            case {"type": "web_search_tool_result", "tool_use_id": id, "content": list() | dict() as found}:
                reason = f"{where}: web_search_tool_result without its server_tool_use"
                _demand(id in searched, reason)
                searched.remove(id)
                pages = found if isinstance(found, list) else []
                is_whole = all(page.get("encrypted_content") == ENCRYPTED for page in pages)
                _demand(is_whole, f"{where}: web_search_result.encrypted_content: Invalid encrypted content")
            case _:
                _demand(False, f"{where}: unexpected content block {part.get('type')!r}: {_short(part)}")
        extra = part.keys() - {
            "type",
            "text",
            "id",
            "name",
            "input",
            "cache_control",
            "citations",
            "thinking",
            *(("tool_use_id", "content") if part["type"] == "web_search_tool_result" else ()),
        }
        _demand(
            not extra - {"signature", "data", "caller"}, f"{where}: Extra inputs are not permitted: {extra}"
        )


def _anthropic_prompt(
    where: str, content: Sequence[Json], waiting: Sequence[str], strictness: Strictness
) -> None:
    results = [part["tool_use_id"] for part in content if part.get("type") == "tool_result"]
    _demand(
        all(part.get("type") == "tool_result" for part in content[: len(results)]),
        f"{where}: tool_result blocks must come first in the content",
    )
    unknown = [id for id in results if id not in waiting]
    _demand(not unknown, f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {unknown}")
    missing = [id for id in waiting if id not in results]
    _demand(not missing, f"{where}: `tool_use` ids were found without `tool_result` blocks: {missing}")
    _demand(len(set(results)) == len(results), f"{where}: each tool_use must have a single result")
    for part in content:
        if part.get("type") != "tool_result":
            _anthropic_part(where, part, strictness)
            continue
        inner = part.get("content")
        doubted = strictness.refuses_result
        reason = f"{where}: unexpected `tool_use_id` found in `tool_result` blocks"
        _demand(doubted is None or doubted not in str(inner), reason)
        for each in inner if isinstance(inner, list) else [{"type": "text", "text": inner}]:
            _anthropic_part(where, each, strictness)


def _anthropic_part(where: str, part: Json, strictness: Strictness) -> None:
    match part:
        case {"type": "text", "text": text}:
            _demand(_is_text(text), f"{where}: text content blocks must contain non-whitespace text")
        case {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}:
            _demand(strictness.takes_images, "image input is not supported by this model")
            _image(where, kind, data)
        case {"type": "document", "source": {"type": "base64", "media_type": "application/pdf"}}:
            _demand(strictness.takes_images, "document input is not supported by this model")
        case _:
            _demand(False, f"{where}: unexpected content block {part.get('type')!r}: {_short(part)}")


# --- Gemini ---------------------------------------------------------------------------------------------


def _judge_gemini(request: Json, strictness: Strictness) -> None:
    offered = _offered(request)
    contents = request["contents"]
    _demand(contents and contents[0].get("role", "user") == "user", "contents: the first must be of the user")
    begins = max(at for at, content in enumerate(contents) if _is_prompt(content))
    called: list[str] = []
    before = None
    for at, content in enumerate(contents):
        where, role, parts = f"contents[{at}]", content.get("role"), content.get("parts")
        _demand(role in {"user", "model", "function"}, f"{where}: Please use a valid role: user, model.")
        _demand(parts, f"{where}: contents.parts must not be empty.")
        for part in parts:
            _gemini_part(where, part, strictness)
        answered = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
        if answered or called:
            reason = "the number of function response parts is equal to the number of function call parts"
            _demand(answered == called, f"{where}: Please ensure that {reason} of the function call turn.")
        called = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
        if called:
            reason = (
                "function call turn comes immediately after a user turn or after a function response turn"
            )
            _demand(before in {"user", "function"}, f"{where}: Please ensure that {reason}.")
            for name in called:
                _called(name, offered, strictness)
            if at > begins:
                first = next(part for part in parts if "functionCall" in part)
                is_signed = first.get("thoughtSignature") in {SIGNATURE, UNSIGNED}
                _demand(is_signed, f"{where}: Function call is missing a thought_signature: {_short(first)}")
        before = role
    _demand(not called, "Please ensure that function call turns are followed by function response turns.")
    _demand(before != "model", "contents: the last must be of the user")


def _is_prompt(content: Json) -> bool:
    parts = content.get("parts") or []
    return content.get("role") == "user" and not any("functionResponse" in part for part in parts)


def _gemini_part(where: str, part: Json, strictness: Strictness) -> None:
    match part:
        case {"text": text}:
            _demand(_is_text(text), f"{where}: contents.parts must not be empty.")
        # The server's parser takes both spellings.
        case {"inlineData": {"mimeType": kind, "data": data} | {"mime_type": kind, "data": data}}:
            _demand(strictness.takes_images, "Image input modality is not enabled for this model")
            _demand(not kind.startswith("image/") or kind in IMAGE_TYPES, f"Unsupported MIME type: {kind}")
            _gemini_data(where, data)
        case {"functionCall": {"name": str()}}:
            pass
        case {"functionResponse": {"name": str(), "response": dict() as response}}:
            doubted = strictness.refuses_result
            reason = f"{where}: function response without a function call: tool call not found"
            _demand(doubted is None or doubted not in str(response), reason)
        case _:
            _demand(
                False, f"{where}: required oneof field 'data' must have one initialized field: {_short(part)}"
            )


def _gemini_data(where: str, data: str) -> None:
    try:
        base64.b64decode(data.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        _demand(False, f"{where}: inlineData is no valid base64")


_JUDGES = {
    "openai": _judge_openai,
    "responses": _judge_responses,
    "anthropic": _judge_anthropic,
    "gemini": _judge_gemini,
}
