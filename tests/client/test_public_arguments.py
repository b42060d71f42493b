"""Every public function refuses a keyword argument that it does not know."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from client.stage import Scripted
from coupler import Budget, Pool, RpcError, Turn, ask, connect
from coupler.client.prompt import Prompt
from coupler.client.remote import RemoteAgent
from coupler.client.session import RemoteSession

Script = Callable[[str], Scripted]

ANSWERS = "for prompt in prompts():\n    send(say('yes'), end(prompt))"

PUBLIC = ("coupler", "coupler.acp", "coupler.events", "coupler.providers")
"""Modules whose `__all__` is public."""

RETURNED = (RemoteAgent, RemoteSession, Prompt)
"""Types of what public functions return."""

ARBITRARY = {RpcError.because}
"""Functions that take any keyword, because it becomes a member of the error's data."""

CHECKED = {RemoteAgent.new, RemoteAgent.load, RemoteAgent.resume, RemoteAgent.fork, Pool.session, ask}
"""Functions with `**options` that refuse unknown ones by themselves; each is called below."""


async def echoes(turn: Turn) -> None:
    await turn.say(turn.text)


def public_functions() -> Iterator[Any]:
    public: list[Any] = [*RETURNED]
    for name in PUBLIC:
        module = importlib.import_module(name)
        public += [getattr(module, each) for each in module.__all__]
    for thing in public:
        if not inspect.isclass(thing):
            yield thing
            continue
        members = inspect.getmembers(thing, inspect.isroutine)
        yield from (member for name, member in members if not name.startswith("_"))
        if "__init__" in vars(thing):
            yield vars(thing)["__init__"]


def takes_any_keyword(function: Any) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False  # no function, or one of C that takes no keywords
    return any(each.kind is each.VAR_KEYWORD for each in parameters)


def test_no_public_function_takes_any_keyword_but_those_that_check_it() -> None:
    found = {getattr(each, "__func__", each) for each in public_functions() if takes_any_keyword(each)}
    assert found == CHECKED | {each.__func__ for each in ARBITRARY}


def test_options_that_nobody_knows_are_refused_before_anything_is_started(script: Script) -> None:
    agent = script(ANSWERS)
    wrong: dict[str, Any] = {"anything": 1}

    async def story() -> None:
        async with connect(agent.command) as remote:
            for name in ("new", "load", "resume", "fork"):
                given = () if name == "new" else ("an-id",)
                with pytest.raises(TypeError, match=rf"{name}\(\) takes no anything; .*budget"):
                    await getattr(remote, name)(*given, budget=Budget(turns=1), **wrong)
            assert (await (await remote.new()).prompt("go")).text == "yes"
        async with Pool() as pool:
            with pytest.raises(TypeError, match=r"session\(\) takes no anything"):
                async with pool.session("/nowhere/agent", **wrong):
                    pass

    asyncio.run(story())
    with pytest.raises(TypeError, match=r"ask\(\) takes no anything"):
        ask("/nowhere/agent", "hello", **wrong)


def test_a_lease_of_a_pool_has_its_own_budget() -> None:
    async def story() -> None:
        async with Pool() as pool:
            budget = Budget(turns=1)
            async with pool.session(echoes, budget=budget) as session:
                await session.prompt("one")
                first = session
            async with pool.session(echoes) as session:
                assert session is first
                await session.prompt("two")
            assert budget.spent_turns == 1

    asyncio.run(story())
