"""Settings of a model: how much it thinks, its temperature, and how long its answers may be.

Effort is one setting for all providers: `off` and `on` for models that think or do not, levels for those that
have them. `request_arguments` says it in each provider's words. What is known of models is here and not taken
from LangChain, because a session tells its options before LangChain is loaded. A model that is not known has
no option, unless somebody has set its effort.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct

from coupler.coder.model.credentials import LOCAL, OLLAMA, client_package

if TYPE_CHECKING:
    from coupler.coder.model.choice import ModelChoice

EFFORT_OPTION = "effort"
"""The id of the session's option."""

MODELS_OWN = "default"
"""The value of the option by which nothing is said to the model."""

OFF, ON = "off", "on"
_LEVELS = ("low", "medium", "high")

EXTRA = "extra_body"
"""The argument for what OpenAI's own servers do not know."""

LEAST_BUDGET = 1024
"""Tokens for thinking that Anthropic's older models take at least."""

_BUDGETS: Mapping[str, int] = {
    "minimal": LEAST_BUDGET,
    "low": 4_000,
    ON: 10_000,
    "medium": 10_000,
    "high": 24_000,
    "xhigh": 32_000,
    "max": 48_000,
}
"""Tokens for thinking of Anthropic's models up to 4.5, which have no levels."""

_OLDER_CLAUDE = re.compile(r"claude-(3|(opus|sonnet|haiku)-4(-[0-5])?(-\d{8})?$)")
_THINKING_TEMPLATE = re.compile(r"qwen-?3(?!.*(coder|instruct))|glm-?[4-9]|smollm3", re.IGNORECASE)
"""Models whose chat templates have `enable_thinking`."""

_KNOWN: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("openai", r"o\d", _LEVELS),
    ("openai", r"gpt-5(-mini|-nano)?$", ("minimal", *_LEVELS)),
    ("openai", r"gpt-5\.1$", (OFF, *_LEVELS)),
    ("openai", r"gpt-5\.[1-5](?!.*chat)", (OFF, *_LEVELS, "xhigh")),
    ("openai", r"gpt-6-astra", (*_LEVELS, "xhigh", "max")),
    ("openai", r"gpt-(5\.[6-9]|[6-9])", (OFF, *_LEVELS, "xhigh", "max")),
    ("anthropic", _OLDER_CLAUDE.pattern, (OFF, *_LEVELS)),
    ("anthropic", r"claude-(opus|sonnet)-4-6", (OFF, *_LEVELS, "max")),
    ("anthropic", r"claude-(opus-5|sonnet-5)(-\d{8})?$", (OFF, *_LEVELS, "xhigh", "max")),
    ("anthropic", r"claude-", (*_LEVELS, "xhigh", "max")),
    ("google", r"gemini-([3-9])(?!.*(image|live|tts))", _LEVELS),
    ("deepseek", r"", (OFF, "low", "high", "max")),
    ("moonshot", r"kimi-k2\.[5-9]|kimi-(for-coding|k[3-9])", (OFF, ON)),
    (
        "openrouter",
        r".*/(gpt-[5-9]|gpt-oss|o\d|claude-|gemini-|grok-|deepseek-|qwen3|kimi-|glm-|minimax-)",
        (OFF, *_LEVELS),
    ),
    (OLLAMA, r"gpt-oss", _LEVELS),
    (OLLAMA, r"qwen3(?!-coder)|deepseek-(r1|v3)|magistral|glm-|gemma4|nemotron", (OFF, ON)),
    ("template", r".*gpt-oss", _LEVELS),
    ("template", r"", (OFF, ON)),
    ("compatible", r"(.*/)?(gpt-oss|gpt-[5-9])", _LEVELS),
)
"""Efforts that models take, by dialect and the beginning of the name; the first that fits counts."""

_THINKING = r"reason|effort|think"
_LENGTH = r"max_?(completion_|output_)?tokens|output tokens"
REFUSALS: Mapping[str, re.Pattern[str]] = {
    name: re.compile(words, re.IGNORECASE)
    for name, words in {
        "reasoning_effort": _THINKING,
        "thinking": _THINKING,
        "reasoning": _THINKING,
        "chat_template_kwargs": rf"template|{_THINKING}",
        "temperature": r"temperature",
        "max_tokens": _LENGTH,
        "max_output_tokens": _LENGTH,
    }.items()
}
"""Arguments that servers may refuse, and what is found in their reasons then."""

_ABOUT_MESSAGES = re.compile(r"reasoning_(content|details)|messages[.\[]", re.IGNORECASE)
"""Found in reasons that are about the conversation and not about the settings."""


class ModelSettings(Struct, frozen=True, kw_only=True):
    """Settings of a model; what is None is left to its server."""

    effort: str | None = None
    temperature: float | None = None
    max_output_tokens: int | None = None

    def or_else(self, others: ModelSettings) -> ModelSettings:
        """Return these settings, and others where these say nothing."""
        return ModelSettings(
            effort=others.effort if self.effort is None else self.effort,
            temperature=others.temperature if self.temperature is None else self.temperature,
            max_output_tokens=(
                others.max_output_tokens if self.max_output_tokens is None else self.max_output_tokens
            ),
        )


def efforts_of(choice: ModelChoice) -> tuple[str, ...]:
    """Return the efforts that a model takes; empty if it takes none, or nothing is known of it."""
    dialect = _dialect(choice)
    name = choice.model.rpartition("/")[2] if dialect == "template" else choice.model
    return next(
        (
            efforts
            for each, beginning, efforts in _KNOWN
            if each == dialect and re.match(beginning, name, re.IGNORECASE)
        ),
        (),
    )


def _dialect(choice: ModelChoice) -> str:
    """Return whose words a model's server understands."""
    host = (urlsplit(choice.base_url).hostname or "") if choice.base_url is not None else ""
    for name, part in (("deepseek", "deepseek."), ("openrouter", "openrouter."), ("moonshot", "moonshot.")):
        if choice.provider == name or part in host or (name == "moonshot" and "kimi." in host):
            return name
    match choice.provider:
        case "anthropic":
            return "anthropic"
        case "google_genai" | "google_vertexai":
            return "google"
        case provider if provider == OLLAMA:
            return OLLAMA
        case "openai" if choice.base_url is None or host.endswith("openai.com"):
            return "openai"
        case provider if provider == LOCAL or client_package(provider) == "langchain_openai":
            is_template = _THINKING_TEMPLATE.search(choice.model) or provider == LOCAL
            return "template" if is_template else "compatible"
    return "other"


def request_arguments(choice: ModelChoice, settings: ModelSettings) -> dict[str, Any]:
    """Return the arguments of LangChain's client by which a request has these settings."""
    dialect = _dialect(choice)
    arguments = _effort_arguments(dialect, choice, settings)
    if settings.temperature is not None:
        arguments["temperature"] = settings.temperature
    if settings.max_output_tokens is not None:
        if dialect in ("openai", "anthropic", "other"):
            arguments["max_tokens"] = settings.max_output_tokens
        elif dialect == "google":
            arguments["max_output_tokens"] = settings.max_output_tokens
        else:
            # LangChain would call it `max_completion_tokens`, which not all servers know.
            extra = arguments.get(EXTRA) or {}
            arguments[EXTRA] = {**extra, "max_tokens": settings.max_output_tokens}
    return arguments


def _effort_arguments(dialect: str, choice: ModelChoice, settings: ModelSettings) -> dict[str, Any]:
    effort = settings.effort
    if effort in (None, MODELS_OWN):
        return {}
    is_level = effort not in (OFF, ON)
    level = {"reasoning_effort": effort} if is_level else {}
    match dialect:
        case "anthropic":
            return _anthropic_arguments(choice, str(effort), settings.max_output_tokens)
        case "deepseek" | "moonshot":
            kind = "disabled" if effort == OFF else "enabled"
            return {**level, EXTRA: {"thinking": {"type": kind}}}
        case "openrouter":
            reasoning = {"effort": effort} if is_level else {"enabled": effort == ON}
            return {EXTRA: {"reasoning": reasoning}}
        case "template":
            return {EXTRA: {"chat_template_kwargs": {"enable_thinking": effort != OFF, **level}}}
        case "google":
            return level
        case "other":
            return {}
    if effort == ON:
        # Models that can only be switched on take any level for that.
        return {"reasoning_effort": "medium"}
    return level or {"reasoning_effort": "none"}


def _anthropic_arguments(choice: ModelChoice, effort: str, longest: int | None) -> dict[str, Any]:
    if effort == OFF:
        return {"thinking": {"type": "disabled"}}
    if _OLDER_CLAUDE.match(choice.model):
        # An answer has to be longer than what is thought before it.
        budget = _BUDGETS[effort] if longest is None else min(_BUDGETS[effort], longest // 2)
        return {"thinking": {"type": "enabled", "budget_tokens": max(budget, LEAST_BUDGET)}}
    if effort == ON:
        return {"thinking": {"type": "adaptive"}}
    return {"reasoning_effort": effort}


def refused_arguments(arguments: Mapping[str, Any], reason: str) -> set[str]:
    """Return the settings among a request's arguments that a server's reason names."""
    if _ABOUT_MESSAGES.search(reason):
        return set()
    return {name for name in settings_in(arguments) if REFUSALS[name].search(reason)}


def settings_in(arguments: Mapping[str, Any]) -> set[str]:
    """Return the names of settings among a request's arguments."""
    extra = arguments.get(EXTRA)
    return {name for name in (*arguments, *(extra if isinstance(extra, dict) else ())) if name in REFUSALS}


def without_arguments(arguments: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return a request's arguments without those of these names."""
    names = {*names}
    left = {name: value for name, value in arguments.items() if name not in names}
    if isinstance(extra := left.get(EXTRA), dict):
        left[EXTRA] = {name: value for name, value in extra.items() if name not in names}
        if not left[EXTRA]:
            del left[EXTRA]
    return left
