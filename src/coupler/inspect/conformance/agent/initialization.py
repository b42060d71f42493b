"""The first exchange: versions, capabilities, and who is there."""

from __future__ import annotations

from collections.abc import Iterator

from coupler.inspect.conformance.assertion import (
    MUST,
    ROBUST,
    SHOULD,
    Case,
    fault_unless,
    probe,
    require,
    rule,
)
from coupler.inspect.conformance.candidate import Candidate, describe
from coupler.inspect.trace import Trace
from coupler.inspect.validity import problems

INVALID_PARAMS = -32602


@rule(
    "A01",
    MUST,
    "initialize with version 1 is answered with version 1 and a valid result",
    "initialization",
    absent="no answer to initialize was seen",
)
def version_one(trace: Trace) -> Iterator[Case]:
    for exchange in trace.exchanges("initialize"):
        if exchange.params.get("protocolVersion") != 1 or exchange.answer is None:
            continue
        answered = exchange.result.get("protocolVersion") if isinstance(exchange.result, dict) else None
        yield fault_unless(
            type(answered) is int and answered == 1,
            f"version 1 was asked for and {answered!r} answered",
            exchange.answer,
        )
        wrong = [problem for problem in problems(exchange.answer, trace) if not problem.is_stray_key]
        yield fault_unless(not wrong, "; ".join(map(str, wrong)), exchange.answer)


@probe(
    "A02",
    MUST,
    "a version that is too new is answered with the agent's newest, not with an error",
    "initialization#version-negotiation",
)
async def newest_version(agent: Candidate) -> None:
    async with agent.start() as client:
        answer = await client.initialize(version=65535, within=agent.startup_timeout)
        require(answer.result is not None, f"the answer is {describe(answer)}", answer.entry)
        version = answer.result.get("protocolVersion")
        require(type(version) is int, f"the version answered is {version!r}", answer.entry)
        require(version != 65535, "the agent claims to speak version 65535", answer.entry)


@probe(
    "A03",
    MUST,
    "a version that is no integer from 0 to 65535 is refused as bad params (-32602)",
    "schema: ProtocolVersion",
)
async def bad_version(agent: Candidate) -> None:
    for version in ("1", 70_000):
        async with agent.start() as client:
            answer = await client.call(
                "initialize", {"protocolVersion": version}, within=agent.startup_timeout
            )
            message = f"{version!r} was answered with {describe(answer)}"
            require(answer.code == INVALID_PARAMS, message, answer.entry)


@rule("A06", SHOULD, "agentInfo has a name and a version", "initialization", absent="no initialize was seen")
def introduces_itself(trace: Trace) -> Iterator[Case]:
    for exchange in trace.exchanges("initialize"):
        if isinstance(exchange.result, dict) and exchange.answer is not None:
            info = exchange.result.get("agentInfo")
            named = isinstance(info, dict) and bool(info.get("name")) and bool(info.get("version"))
            yield fault_unless(named, f"agentInfo is {info!r}", exchange.answer)


@probe("A07", ROBUST, "session/new before initialize is refused, and the agent lives on", "session-setup")
async def session_before_hello(agent: Candidate) -> None:
    async with agent.start() as client:
        answer = await client.new_session(within=agent.startup_timeout)
        require(answer.error is not None, f"the answer is {describe(answer)}", answer.entry)
        hello = await client.initialize()
        require(hello.result is not None, f"initialize then failed: {describe(hello)}", hello.entry)
