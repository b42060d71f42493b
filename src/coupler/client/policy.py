"""Who answers an agent's permission requests when nobody sits in front: a policy, or a function of yours."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import Struct

from coupler.events import ToolCall
from coupler.schema.v1 import (
    CancelledPermissionOutcome,
    PermissionOption,
    RequestPermissionOutcome,
    SelectedPermissionOutcome,
)

READING_KINDS = frozenset({"read", "search", "think"})


class PermissionRequest(Struct, frozen=True):
    """What an agent wants to do, and the answers it offers."""

    tool_call: ToolCall
    options: tuple[PermissionOption, ...]
    cwd: str = ""


class Decision(Struct, frozen=True):
    """What became of a request: the option that was chosen, None if the question was cancelled."""

    tool_call: ToolCall
    option: PermissionOption | None

    @property
    def is_allowed(self) -> bool:
        """Whether the agent may do it."""
        return self.option is not None and self.option.kind in ("allow_once", "allow_always")

    @classmethod
    def of(cls, request: PermissionRequest, outcome: RequestPermissionOutcome) -> Decision:
        """The decision that an outcome tells."""
        chosen = outcome.option_id if isinstance(outcome, SelectedPermissionOutcome) else None
        option = next((option for option in request.options if option.option_id == chosen), None)
        return cls(request.tool_call, option)


Verdict: TypeAlias = bool | str | None
"""Allow, reject, the id of an option, or None to cancel the question."""

Decide: TypeAlias = Callable[[PermissionRequest], Verdict | Awaitable[Verdict]]


class Policy:
    """Decides by rule. Options are chosen by their kind, once rather than always."""

    def __init__(self, decide: Decide) -> None:
        self._decide = decide

    @classmethod
    def allow_all(cls) -> Policy:
        """Let the agent do whatever it asks for."""
        return cls(lambda request: True)

    @classmethod
    def deny_all(cls) -> Policy:
        """Reject every request."""
        return cls(lambda request: False)

    @classmethod
    def allow_reads(cls) -> Policy:
        """Let the agent look at things; reject the rest."""
        return cls(lambda request: request.tool_call.kind in READING_KINDS)

    @classmethod
    def of(cls, value: Policy | Decide | None) -> Policy:
        """A policy, a function that decides, or the default: reads are allowed."""
        if value is None:
            return cls.allow_reads()
        if isinstance(value, Policy):
            return value
        if not callable(value):
            raise TypeError(f"permissions are a Policy or a function that decides; this is {value!r}")
        return cls(value)

    async def answer(self, request: PermissionRequest) -> RequestPermissionOutcome:
        """The outcome to send."""
        verdict = self._decide(request)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        option = _option(request, verdict)
        return CancelledPermissionOutcome() if option is None else SelectedPermissionOutcome(option)


def _option(request: PermissionRequest, verdict: Verdict) -> str | None:
    if isinstance(verdict, str):
        offered = [option.option_id for option in request.options]
        if verdict not in offered:
            raise ValueError(f"the agent offers no option {verdict!r}, only {', '.join(offered)}")
        return verdict
    if verdict is None:
        return None
    if not isinstance(verdict, bool):
        # Whatever else is true in Python's eyes has not been meant as a yes.
        raise TypeError(f"a verdict is True, False, the id of an option or None; this is {verdict!r}")
    wanted = ("allow_once", "allow_always") if verdict else ("reject_once", "reject_always")
    by_kind = {option.kind: option.option_id for option in reversed(request.options)}
    return next((by_kind[kind] for kind in wanted if kind in by_kind), None)
