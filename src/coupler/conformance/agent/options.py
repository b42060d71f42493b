"""Asserts how agents offer and change config options, and modes, which these have replaced."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from coupler.conformance.agent.lifecycle import hold_bare_conversation
from coupler.conformance.agent.prompting import begin_slow_turn, cancel_turn, is_over, too_short
from coupler.conformance.assertion import (
    MUST,
    SHOULD,
    TASTE,
    Case,
    Fault,
    Skip,
    fault_unless,
    probe,
    require,
    rule,
)
from coupler.conformance.candidate import Candidate, expect_error, expect_result
from coupler.conformance.peers import ScriptError
from coupler.conformance.reading import items, objects, shown, value_at
from coupler.conformance.scripted_client import RequestAnswer, ScriptedClient
from coupler.recording.traces import INVALID_PARAMS, Trace, TraceEntry

NEWS = 2.0
"""Seconds in which a change of the mode must be reported."""

TRIED_OPTIONS = 5
"""Most options of an agent that are changed for a test."""


class OfferedSettings(NamedTuple):
    """A session, and the settings in the answer to `session/new`."""

    session: str
    modes: list[str]
    mode: Any
    options: list[dict[str, Any]]


@probe(
    "A35",
    MUST,
    "a changed option is answered with all options and the new value; values in groups count too",
    "session-config-options",
    "The Agent MUST respond with the complete list of all configuration options and their current values.",
)
async def change_is_answered_in_full(agent: Candidate) -> None:
    async with agent.ready() as client:
        settings = await _open_with_options(agent, client)
        expected = [option["id"] for option in settings.options]
        for option in settings.options[:TRIED_OPTIONS]:
            # The value that it has cannot make other options come or go, as another one may.
            answer = await _set(client, settings.session, option, option["currentValue"])
            missing = [name for name in expected if name not in _values_in(answer)]
            require(not missing, f"the answer lacks {', '.join(map(str, missing))}", answer.entry)
            # A change may take values away, the first one included.
            for value in [*_alternatives(option), option["currentValue"]]:
                if value not in _offered(answer, option):
                    continue
                answer = await _set(client, settings.session, option, value)
                now = _values_in(answer).get(option["id"])
                changed = f"{option['id']} was set to {shown(value)} and is {shown(now, 100)}"
                require(now == value, changed, answer.entry)


@probe(
    "A36",
    TASTE,
    "an unknown option, a value that is not offered and a boolean without its type are refused (-32602)",
    "session-config-options",
)
async def bad_changes_are_refused(agent: Candidate) -> None:
    async with agent.ready() as client:
        settings = await _open_with_options(agent, client)
        select = _first(settings, "select") or settings.options[0]
        boolean = _first(settings, "boolean") or select
        for change, what in (
            ({"configId": "no-such-option", "value": "x"}, "an unknown option"),
            ({"configId": select["id"], "value": "no-such-value"}, "a value that is not offered"),
            (
                {"configId": boolean["id"], "value": not boolean["currentValue"]},
                "a boolean without its type",
            ),
        ):
            answer = await client.call("session/set_config_option", {"sessionId": settings.session, **change})
            expect_error(answer, f"{what} got", INVALID_PARAMS)
        await _require_unchanged(client, settings)


A37 = (
    "A37",
    MUST,
    "boolean options are shown only to a client that can show them",
    "session-config-options",
    'Agents MUST NOT include `type: "boolean"` options in `configOptions` payloads '
    "unless the Client advertised support.",
)


probe(*A37)(hold_bare_conversation)


@rule(*A37, absent="no options were shown to a client without session.configOptions.boolean")
def shows_no_booleans_unasked(trace: Trace) -> Iterator[Case]:
    if isinstance(value_at(trace.client_capabilities, "session.configOptions.boolean"), dict):
        return
    for entry, options in _lists_of_options(trace):
        booleans = [option.get("id") for option in options if option.get("type") == "boolean"]
        yield fault_unless(not booleans, f"there are boolean options: {shown(booleans)}", entry)


@rule(
    "A38",
    MUST,
    "the current value of every option is one of its values",
    "session-config-options",
    "Agents MUST always provide a default value for every configuration option.",
    absent="no options were seen",
)
def current_values_are_offered(trace: Trace) -> Iterator[Case]:
    for entry, options in _lists_of_options(trace):
        for option in options:
            value, values = option.get("currentValue"), _values_of(option)
            offered = value in values and type(value) in map(type, values)
            message = f"{shown(option.get('id'))} is {shown(value, 100)}, but can be {shown(values)}"
            yield fault_unless(offered or not _is_known(option), message, entry)


@probe(
    "A39",
    SHOULD,
    "the mode and the option for it are one: a change of either is told of the other",
    "session-modes",
    "Agents SHOULD keep both in sync to ensure consistent behavior regardless of which "
    "field the Client uses.",
)
async def mode_and_option_agree(agent: Candidate) -> None:
    async with agent.ready() as client:
        settings = await _open_with_options(agent, client)
        option = next((each for each in settings.options if each.get("category") == "mode"), None)
        if option is None or not settings.modes:
            raise Skip("session/new does not give both modes and an option of the category `mode`")
        others = [value for value in _values_of(option) if value in settings.modes and value != settings.mode]
        if not others:
            raise Skip("the modes and the values of their option have no other value in common")
        begin = len(client.trace.entries)
        answer = await client.call("session/set_mode", {"sessionId": settings.session, "modeId": others[0]})
        expect_result(answer, "set_mode got")
        await _require_news(client, settings.session, begin, "config_option_update", option, others[0])
        begin = len(client.trace.entries)
        await _set(client, settings.session, option, settings.mode)
        await _require_news(client, settings.session, begin, "current_mode_update", option, settings.mode)


@probe(
    "A40",
    SHOULD,
    "an option that is changed during a turn is answered before the turn ends",
    "session-config-options",
    "The current value of a config option can be changed at any point during a session, "
    "whether the Agent is idle or generating a response.",
)
async def changes_during_a_turn(agent: Candidate) -> None:
    async with agent.ready() as client:
        settings = await _open_with_options(agent, client)
        option = settings.options[0]
        prompt = await begin_slow_turn(agent, client, settings.session, "an option could be changed")
        change = client.ask("session/set_config_option", _change(settings.session, option, _other(option)))
        try:
            answer = await client.answer(change)
        except ScriptError as error:
            raise Fault(f"{error}, while a turn was running") from None
        if is_over(client, prompt):
            end = (await client.answer(prompt)).entry
            if not agent.has_slow_prompt:
                raise Skip(too_short("an option was changed"))
            require(answer.entry.number < end.number, "the change was answered after the turn", answer.entry)
        else:
            await cancel_turn(client, settings.session, prompt)
        expect_result(answer, "the change got")


async def _open_with_options(agent: Candidate, client: ScriptedClient) -> OfferedSettings:
    """Open a session of an agent that has options; skips if it has none."""
    session = await agent.open_session(client)
    result = client.trace.exchanges("session/new")[-1].result
    options = [option for option in objects(value_at(result, "configOptions")) if _is_known(option)]
    if not options:
        raise Skip("session/new gives no configOptions")
    modes = [mode["id"] for mode in objects(value_at(result, "modes.availableModes")) if "id" in mode]
    return OfferedSettings(session, modes, value_at(result, "modes.currentModeId"), options)


async def _set(client: ScriptedClient, session: str, option: dict[str, Any], value: Any) -> RequestAnswer:
    answer = await client.call("session/set_config_option", _change(session, option, value))
    expect_result(answer, f"setting {shown(option['id'])} to {shown(value, 100)} got")
    return answer


def _change(session: str, option: dict[str, Any], value: Any) -> dict[str, Any]:
    kind = {"type": "boolean"} if option["type"] == "boolean" else {}
    return {"sessionId": session, "configId": option["id"], **kind, "value": value}


async def _require_unchanged(client: ScriptedClient, settings: OfferedSettings) -> None:
    """Require the earlier values; as only a change shows them, one option is set to its own value."""
    last = settings.options[-1]
    answer = await _set(client, settings.session, last, last["currentValue"])
    values = _values_in(answer)
    for option in settings.options:
        now = values.get(option["id"], option["currentValue"])
        same = now == option["currentValue"]
        require(same, f"{option['id']} is now {shown(now, 100)}, although that was refused", answer.entry)


async def _require_news(
    client: ScriptedClient, session: str, begin: int, kind: str, option: dict[str, Any], mode: str
) -> None:
    """Wait for an update since `begin` that reports the mode; those before may still report the old one."""
    deadline = time.monotonic() + NEWS
    try:
        while True:
            within = max(deadline - time.monotonic(), 0.0)
            update = await client.update(session, kind, since=begin, within=within)
            told = _values(update.body.get("configOptions")).get(option["id"])
            if mode in (told, update.body.get("currentModeId")):
                return
            begin = update.entry.number + 1
    except ScriptError as error:
        raise Fault(f"the mode was changed to {shown(mode)}, but no {kind} tells it: {error}") from None


def _lists_of_options(trace: Trace) -> Iterator[tuple[TraceEntry, list[dict[str, Any]]]]:
    """Yield every list of options that the agent sent, in an answer or in an update."""
    for exchange in trace.exchanges():
        options = value_at(exchange.result, "configOptions")
        if exchange.answer is not None and isinstance(options, list):
            yield exchange.answer, objects(options)
    for update in trace.updates(None, "config_option_update"):
        yield update.entry, objects(update.body.get("configOptions"))


def _is_known(option: dict[str, Any]) -> bool:
    """True if the option is of a type whose values the kit knows; other types may come."""
    return (
        isinstance(option.get("id"), str)
        and option.get("type") in ("select", "boolean")
        and "currentValue" in option
    )


def _values_of(option: dict[str, Any]) -> list[Any]:
    """Return the values of an option; those of a select may be in groups."""
    if option.get("type") == "boolean":
        return [True, False]
    entries = objects(option.get("options"))
    grouped = [choice for entry in entries for choice in items(entry.get("options"))]
    return [choice["value"] for choice in [*entries, *objects(grouped)] if "value" in choice]


def _alternatives(option: dict[str, Any]) -> list[Any]:
    """Return the first and the last of the values besides the current one."""
    others = [value for value in _values_of(option) if value != option["currentValue"]]
    return others[:1] + others[1:][-1:]


def _other(option: dict[str, Any]) -> Any:
    """Return a value other than the current one if there is one, else the current one."""
    return next(iter(_alternatives(option)), option["currentValue"])


def _first(settings: OfferedSettings, kind: str) -> dict[str, Any] | None:
    return next((option for option in settings.options if option["type"] == kind), None)


def _offered(answer: RequestAnswer, option: dict[str, Any]) -> list[Any]:
    """Return the values that an option has according to an answer."""
    options = [each for each in objects(value_at(answer.result, "configOptions")) if _is_known(each)]
    return [value for each in options if each["id"] == option["id"] for value in _values_of(each)]


def _values_in(answer: RequestAnswer) -> dict[Any, Any]:
    return _values(value_at(answer.result, "configOptions"))


def _values(options: Any) -> dict[Any, Any]:
    """Return the current values, by the ids of their options."""
    return {
        option["id"]: option.get("currentValue")
        for option in objects(options)
        if isinstance(option.get("id"), str)
    }
