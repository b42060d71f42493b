"""Which tool calls have ended: each is told once, whoever reports it first and however often.

A call of a Python function is known twice: to us, who ran it, and to the agent, who reports it by its own
id. Some agents tell us that id; for the others the two are paired within a turn, by name, input and order.
"""

from __future__ import annotations

import re

from coupler.client.equipment import NAME
from coupler.events import ToolCall


class FinishedCalls:
    """The calls that have ended, as the agent reports them and as our own tools know them."""

    def __init__(self) -> None:
        self._reported: set[str] = set()
        self._ours: dict[str, str] = {}
        """Our own calls, by each id that the agent may know them by."""
        self._unpaired: list[ToolCall] = []
        """Our own calls of this turn that the agent has not reported yet, oldest first."""
        self._unpaired_reports: list[ToolCall] = []

    def turn_began(self) -> None:
        """What was not paired by now never will be."""
        self._unpaired.clear()
        self._unpaired_reports.clear()

    def is_news(self, call: ToolCall) -> bool:
        """Whether what the agent reports of a call is that it has ended, and nobody knows yet."""
        if call.is_open:
            self._reported.discard(call.id)
            return False
        if call.id in self._reported:
            return False
        self._reported.add(call.id)
        if call.id in self._ours:
            self._unpaired = [each for each in self._unpaired if each.id != self._ours[call.id]]
            return False
        for own in self._unpaired:
            if _is_report_of(call, own):
                self._unpaired.remove(own)
                self._ours[call.id] = own.id
                return False
        self._unpaired_reports.append(call)
        return True

    def is_news_of_ours(self, call: ToolCall, ids: frozenset[str]) -> bool:
        """Whether nobody knows yet that a call of our own has ended; the agent may know it by `ids`."""
        self._ours.update(dict.fromkeys(ids, call.id))
        if not self._reported.isdisjoint(ids):
            return False
        for report in self._unpaired_reports:
            if _is_report_of(report, call):
                self._unpaired_reports.remove(report)
                self._ours[report.id] = call.id
                return False
        self._unpaired.append(call)
        return True

    def ours(self, call: ToolCall) -> str | None:
        """The id of the call of our own that the agent reports as this one; None if it is none of ours."""
        return self._ours.get(call.id)


def _is_report_of(report: ToolCall, own: ToolCall) -> bool:
    return _is_named(report, own.title) and _has_input(report.raw_input, own.raw_input)


def _is_named(report: ToolCall, name: str) -> bool:
    """Whether a call is one of this tool, as agents write it.

    `coupler_price`, `mcp__coupler__price`, `price (coupler MCP Server)`, and as an id with a number behind.
    """
    prefixed = rf"(.*(?<![^\W_]))?{NAME}([-_]\d+)?[\W_]+{re.escape(name)}"
    for words in filter(None, (report.name, report.title)):
        if words == name or re.fullmatch(rf"{prefixed}|{re.escape(name)}\W.*{NAME}.*", words, re.DOTALL):
            return True
    is_nameless = not report.name and not report.title
    return is_nameless and re.match(rf"{prefixed}(?![^\W_])", report.id, re.DOTALL) is not None


def _has_input(reported: object, given: object) -> bool:
    """Whether the inputs are one; agents exist that tell none, or wrap it."""
    if reported is None or reported == given:
        return True
    return isinstance(reported, dict) and (not reported or given in reported.values())
