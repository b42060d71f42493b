"""What agents ask of the client: one method is served, everything else is refused, nothing is left open."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from client.stage import Scripted, run, until
from coupler import AgentError, Policy
from coupler.client.policy import PermissionRequest
from coupler.client.session import RemoteSession

Script = Callable[[str], Scripted]

# Asks what the prompt says, as Python, and repeats the answer.
ASKS = """
    for prompt in prompts():
        send(eval(text_of(prompt)))
        frame = answer_to(1)
        send(say(json.dumps(frame.get("result", frame.get("error")))), end(prompt))
"""


def answer_to(
    script: Script, question: str, permissions: Any = None, before: str = ""
) -> tuple[dict[str, Any], Scripted]:
    """What the client answered to one request."""
    agent = script(ASKS if not before else ASKS.replace("send(eval", f"send({before}, eval"))

    async def story() -> None:
        async with agent.connect(files="none") as remote:
            session = await remote.new(permissions=permissions)
            await session.prompt(question)

    run(story())
    [answer] = agent.answers_to(1)
    return answer, agent


def outcome(script: Script, permissions: Any, question: str = "permission(1, title='Do it')") -> Any:
    """The outcome that a policy gives, as it is on the wire."""
    answer, _ = answer_to(script, question, permissions)
    return answer["result"]["outcome"]


SELECTED_YES = {"outcome": "selected", "optionId": "yes"}
SELECTED_NO = {"outcome": "selected", "optionId": "no"}
CANCELLED = {"outcome": "cancelled"}


@pytest.mark.parametrize(
    "question",
    [
        "request(1, 'fs/read_text_file', sessionId='s1', path='/etc/passwd')",
        "request(1, 'fs/write_text_file', sessionId='s1', path='/tmp/x', content='')",
        "request(1, 'terminal/create', sessionId='s1', command='sh')",
        "request(1, 'terminal/output', sessionId='s1', terminalId='t')",
        "request(1, 'terminal/wait_for_exit', sessionId='s1', terminalId='t')",
        "request(1, 'terminal/kill', sessionId='s1', terminalId='t')",
        "request(1, 'terminal/release', sessionId='s1', terminalId='t')",
        "request(1, 'elicitation/create', sessionId='s1', message='?')",
        "request(1, '_vendor/magic', a=1)",
        "request(1, 'session/update', sessionId='s1')",
        "request(1, 'session/prompt', sessionId='s1', prompt=[])",
        "request(1, 'initialize', protocolVersion=1)",
        "request(1, '')",
        "{'id': 1, 'method': 'nonsense'}",
    ],
)
def test_an_unknown_or_unadvertised_method_is_refused_and_the_turn_goes_on(
    script: Script, question: str
) -> None:
    answer, _ = answer_to(script, question)
    assert answer["error"]["code"] == -32601
    assert answer["error"]["data"]["reason"] == "method_not_found"


def test_what_is_refused_was_not_advertised(script: Script) -> None:
    _, agent = answer_to(script, "request(1, '_x')")
    capabilities = agent.received_of("initialize")[0]["params"].get("clientCapabilities", {})
    assert not capabilities.get("terminal")
    assert not any(capabilities.get("fs", {}).values())


@pytest.mark.parametrize(
    "params",
    [
        "{}",
        "[]",
        "None",
        "{'sessionId': 's1'}",
        "{'sessionId': 's1', 'toolCall': {}, 'options': []}",
        "{'sessionId': 's1', 'toolCall': {'toolCallId': 'c'}, 'options': 'all'}",
        "{'sessionId': 7, 'toolCall': {'toolCallId': 'c'}, 'options': []}",
    ],
)
def test_a_malformed_question_is_refused_with_the_field(script: Script, params: str) -> None:
    question = "{'id': 1, 'method': 'session/request_permission', 'params': %s}" % params  # noqa: UP031
    answer, _ = answer_to(script, question, Policy.allow_all())
    assert answer["error"]["code"] == -32602
    assert answer["error"]["data"]["reason"] == "invalid_params"
    assert "path" in answer["error"]["data"]


def test_a_question_of_an_unknown_session_is_refused(script: Script) -> None:
    answer, _ = answer_to(script, "permission(1, None, 'ghost')", Policy.allow_all())
    assert (answer["error"]["code"], answer["error"]["data"]["path"]) == (-32602, "sessionId")
    assert "'ghost'" in answer["error"]["message"]


def test_allow_all_allows_once(script: Script) -> None:
    assert outcome(script, Policy.allow_all()) == SELECTED_YES


def test_deny_all_rejects_once(script: Script) -> None:
    assert outcome(script, Policy.deny_all()) == SELECTED_NO


@pytest.mark.parametrize("permissions", [None, Policy.allow_reads()])
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("read", SELECTED_YES),
        ("search", SELECTED_YES),
        ("think", SELECTED_YES),
        ("edit", SELECTED_NO),
        ("delete", SELECTED_NO),
        ("move", SELECTED_NO),
        ("execute", SELECTED_NO),
        ("fetch", SELECTED_NO),
        ("switch_mode", SELECTED_NO),
        ("other", SELECTED_NO),
        ("teleport", SELECTED_NO),
        (None, SELECTED_NO),
    ],
)
def test_by_default_an_agent_may_read_and_nothing_else(
    script: Script, permissions: Policy | None, kind: str | None, expected: object
) -> None:
    assert outcome(script, permissions, f"permission(1, kind={kind!r})") == expected


def test_the_question_knows_what_was_reported_of_the_call_before(script: Script) -> None:
    asked: list[PermissionRequest] = []

    def decide(request: PermissionRequest) -> bool:
        asked.append(request)
        return True

    answer_to(
        script,
        "permission(1, title='Read it now', status=None)",
        decide,
        before="update('tool_call', toolCallId='c1', title='Read', kind='read', rawInput={'path': 'a'})",
    )
    [request] = asked
    call = request.tool_call
    assert (call.id, call.title, call.kind, call.status) == ("c1", "Read it now", "read", "pending")
    assert call.raw_input == {"path": "a"}
    assert [(option.option_id, option.kind) for option in request.options] == [
        ("yes", "allow_once"),
        ("no", "reject_once"),
    ]


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [(True, SELECTED_YES), (False, SELECTED_NO), ("no", SELECTED_NO), (None, CANCELLED)],
)
def test_a_function_decides_by_a_boolean_an_option_or_none(
    script: Script, verdict: Any, expected: object
) -> None:
    async def later(request: PermissionRequest) -> Any:
        await asyncio.sleep(0)
        return verdict

    assert outcome(script, lambda request: verdict) == expected
    assert outcome(script, later) == expected


@pytest.mark.parametrize(
    ("options", "verdict", "expected"),
    [
        ([("a", "allow_always"), ("r", "reject_always")], True, CANCELLED),
        ([("a", "allow_always"), ("r", "reject_always")], False, CANCELLED),
        ([("a", "allow_always"), ("o", "allow_once")], "a", {"outcome": "selected", "optionId": "a"}),
        ([("a", "allow_always"), ("o", "allow_once")], True, {"outcome": "selected", "optionId": "o"}),
        ([("1", "allow_once"), ("2", "allow_once")], True, {"outcome": "selected", "optionId": "1"}),
        ([("r", "reject_once")], True, CANCELLED),
        ([("a", "allow_once")], False, CANCELLED),
        ([("m", "maybe")], True, CANCELLED),
        ([("m", "maybe")], "m", {"outcome": "selected", "optionId": "m"}),
    ],
)
def test_options_are_chosen_by_kind_and_always_only_by_its_id(
    script: Script, options: object, verdict: Any, expected: object
) -> None:
    assert outcome(script, lambda request: verdict, f"permission(1, {options!r})") == expected


def test_without_any_option_the_question_is_cancelled(script: Script) -> None:
    question = (
        "request(1, 'session/request_permission', sessionId='s1', toolCall={'toolCallId': 'c'}, options=[])"
    )
    assert outcome(script, Policy.allow_all(), question) == CANCELLED


def raising(error: BaseException) -> Callable[[PermissionRequest], bool]:
    def decide(request: PermissionRequest) -> bool:
        raise error

    return decide


def failure(script: Script, permissions: Any) -> str:
    """The error that the agent gets when the policy fails; whoever wrote it hears of it, too."""
    agent = script(ASKS)
    reported: list[dict[str, Any]] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        async with agent.connect() as remote:
            session = await remote.new(permissions=permissions)
            assert (await session.prompt("permission(1)")).stop_reason == "end_turn"

    run(story())
    assert [context["message"] for context in reported] == ["the permission policy failed"]
    [answer] = agent.answers_to(1)
    assert answer["error"]["code"] == -32603
    return str(answer["error"]["message"])


def test_a_policy_that_fails_allows_nothing_and_is_not_kept_secret(script: Script) -> None:
    message = failure(script, raising(ZeroDivisionError("oops")))
    assert message == "the permission policy failed: ZeroDivisionError: oops"


def test_an_option_that_was_not_offered_is_a_failure_that_names_the_offered(script: Script) -> None:
    assert "no option 'perhaps', only yes, no" in failure(script, lambda request: "perhaps")


@pytest.mark.parametrize("verdict", [1, 0, "", (), Policy.deny_all(), object()])
def test_what_is_no_verdict_allows_nothing(script: Script, verdict: object) -> None:
    assert "the permission policy failed" in failure(script, lambda request: verdict)


def test_a_policy_that_cancels_itself_withdraws_the_question(script: Script) -> None:
    assert outcome(script, raising(asyncio.CancelledError())) == CANCELLED


def test_what_is_no_policy_is_refused_before_the_session_is_opened(script: Script) -> None:
    agent = script(ASKS)

    async def story() -> None:
        async with agent.connect() as remote:
            with pytest.raises(TypeError, match="permissions"):
                await remote.new(permissions=7)  # type: ignore[arg-type]
            with pytest.raises(ValueError, match="no policy 'all': it is one of allow-reads"):
                await remote.new(permissions="all")  # type: ignore[arg-type]

    run(story())
    assert agent.received_of("session/new") == []


def test_a_question_outside_of_a_turn_is_answered(script: Script) -> None:
    agent = script("""
        open_sessions()
        send(permission(1, title="In the background"))
        answer_to(1)
        note("answered", True)
        read()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            await remote.new(permissions=Policy.allow_all())
            await until(lambda: agent.noted("answered"))

    run(story())
    assert agent.answers_to(1)[0]["result"]["outcome"] == SELECTED_YES


def test_an_open_dialog_stops_neither_events_nor_other_sessions(script: Script) -> None:
    agent = script("""
        open_sessions(2)
        prompt = read()
        send(permission(1), say("still talking"))
        other = read_until(lambda frame: frame.get("method") == "session/prompt")
        send(say("other", "s2"), end(other))
        answer_to(1)
        send(end(prompt))
        read()
    """)

    async def story() -> None:
        decided = asyncio.Event()

        async def decide(request: PermissionRequest) -> bool:
            await decided.wait()
            return True

        async with agent.connect() as remote:
            asked = await remote.new(permissions=decide)
            other = await remote.new()
            async for event in asked.prompt("go"):
                if getattr(event, "text", "") == "still talking":
                    assert (await other.prompt("go")).text == "other"
                    decided.set()

    run(story())
    assert agent.answers_to(1)[0]["result"]["outcome"] == SELECTED_YES


class Dialog:
    """A policy that waits for a user who never answers."""

    def __init__(self, swallow: bool = False) -> None:
        self.opened = asyncio.Event()
        self.closed = asyncio.Event()
        self._swallow = swallow

    async def __call__(self, request: PermissionRequest) -> bool:
        self.opened.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not self._swallow:
                raise
        finally:
            self.closed.set()
        return True


DIALOG = """
    for prompt in prompts():
        send(permission(1))
        read_until(is_cancel)
        answer_to(1)
        send(end(prompt, "cancelled"))
"""


@pytest.mark.parametrize("swallow", [False, True])
def test_a_cancel_while_a_dialog_is_open_withdraws_it_exactly_once(script: Script, swallow: bool) -> None:
    agent = script(DIALOG)

    async def story() -> None:
        dialog = Dialog(swallow)
        async with agent.connect() as remote:
            session = await remote.new(permissions=dialog)
            async with session.prompt("go") as turn:
                await dialog.opened.wait()
            assert (await turn).stop_reason == "cancelled"
            assert dialog.closed.is_set()
            assert not session.questions

    run(story())
    [answer] = agent.answers_to(1)
    assert answer["result"]["outcome"] == CANCELLED


def test_a_cancel_before_the_policy_was_even_called_withdraws_the_question(script: Script) -> None:
    agent = script(DIALOG)

    async def story() -> None:
        called: list[PermissionRequest] = []
        async with agent.connect() as remote:
            session = await remote.new(permissions=lambda request: bool(called.append(request)))
            turn = session.prompt("go")
            async with turn:
                await until(lambda: session.questions)
                turn._begin_cancel()
                assert not session.questions
            assert (await turn).stop_reason == "cancelled"
        assert called == []

    run(story())
    assert [answer["result"]["outcome"] for answer in agent.answers_to(1)] == [CANCELLED]


def test_a_question_that_crosses_the_cancel_is_not_asked(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            read_until(is_cancel)
            send(permission(1))
            answer_to(1)
            send(end(prompt, "cancelled"))
    """)

    async def story() -> None:
        dialog = Dialog()
        async with agent.connect() as remote:
            session = await remote.new(permissions=dialog)
            async with session.prompt("go") as turn:
                pass
            assert (await turn).stop_reason == "cancelled"
            assert not dialog.opened.is_set()

    run(story())
    assert [answer["result"]["outcome"] for answer in agent.answers_to(1)] == [CANCELLED]


@pytest.mark.parametrize("swallow", [False, True])
def test_a_question_that_the_agent_takes_back_is_withdrawn(script: Script, swallow: bool) -> None:
    agent = script("""
        for prompt in prompts():
            send(permission(1))
            send({"method": "$/cancel_request", "params": {"requestId": 1}})
            send({"method": "$/cancel_request", "params": {"requestId": 1}})
            answer_to(1)
            send(say("never mind"), end(prompt))
    """)

    async def story() -> None:
        dialog = Dialog(swallow)
        async with agent.connect() as remote:
            session = await remote.new(permissions=dialog)
            reply = await session.prompt("go")
            assert (reply.text, reply.stop_reason) == ("never mind", "end_turn")
            assert dialog.closed.is_set() or not dialog.opened.is_set()
            assert not session.questions

    run(story())
    [answer] = agent.answers_to(1)
    assert (answer["error"]["code"], answer["error"]["data"]["reason"]) == (-32800, "cancelled")


def test_an_answered_question_cannot_be_taken_back(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            send(permission(1))
            answer_to(1)
            send({"method": "$/cancel_request", "params": {"requestId": 1}}, end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            await (await remote.new()).prompt("go")

    run(story())
    assert len(agent.answers_to(1)) == 1


def test_several_questions_at_once_are_decided_each_on_its_own(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            send(*[permission(number, title=str(number)) for number in range(1, 6)])
            for _ in range(5):
                read_until(lambda frame: "method" not in frame)
            send(end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            decide = lambda request: int(request.tool_call.title) % 2 == 0  # noqa: E731
            await (await remote.new(permissions=decide)).prompt("go")

    run(story())
    outcomes = [agent.answers_to(number)[0]["result"]["outcome"]["optionId"] for number in range(1, 6)]
    assert outcomes == ["no", "yes", "no", "yes", "no"]


@pytest.mark.parametrize("id", ["'a\"b'", "None", "-5", "2**40"])
def test_any_id_is_echoed_exactly(script: Script, id: str) -> None:
    agent = script(f"""
        for prompt in prompts():
            send(permission({id}))
            answer_to({id})
            send(end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            await (await remote.new()).prompt("go")

    run(story())


@pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks came with Python 3.12")
def test_a_policy_that_is_called_at_once_answers_all_the_same(script: Script) -> None:
    agent = script(ASKS)

    async def story() -> None:
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
        async with agent.connect() as remote:
            session = await remote.new(permissions=Policy.allow_all())
            await session.prompt("permission(1)")
            assert not session.questions

    run(story())
    assert agent.answers_to(1)[0]["result"]["outcome"] == SELECTED_YES


def test_a_dialog_ends_when_the_agent_dies(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            send(permission(1))
            os._exit(1)
    """)

    async def story() -> None:
        dialog = Dialog()
        async with agent.connect() as remote:
            session = await remote.new(permissions=dialog)
            with pytest.raises(AgentError, match="ended before"):
                await session.prompt("go")
            await until(lambda: not session.questions)
            assert dialog.closed.is_set() or not dialog.opened.is_set()

    run(story())


def test_a_dialog_ends_when_the_client_closes(script: Script) -> None:
    agent = script(DIALOG)

    async def story() -> RemoteSession:
        dialog = Dialog()
        async with agent.connect() as remote:
            session = await remote.new(permissions=dialog)
            turn = session.prompt("go")
            await turn.__aenter__()
            await dialog.opened.wait()
        assert dialog.closed.is_set()
        return session

    assert not run(story()).questions


def test_a_policy_may_close_the_agent(script: Script) -> None:
    agent = script(DIALOG)

    async def story() -> None:
        async with agent.connect() as remote:

            async def leave(request: PermissionRequest) -> bool:
                await remote.close()
                return True

            session = await remote.new(permissions=leave)
            with pytest.raises(AgentError) as caught:
                await session.prompt("go")
            assert caught.value.kind == "closed"

    run(story())


def test_nobody_is_asked_while_the_session_closes(script: Script) -> None:
    agent = script("""
        HELLO["agentCapabilities"] = {"sessionCapabilities": {"close": {}}}
        open_sessions()
        closing = read()
        send(permission(1))
        answer_to(1)
        send(result(closing, {}))
        read()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            await (await remote.new(permissions=raising(AssertionError("asked")))).close()

    run(story())
    assert [answer["result"]["outcome"] for answer in agent.answers_to(1)] == [CANCELLED]


def test_a_call_that_is_only_asked_about_is_one_of_the_reply(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            send(permission(1, toolCallId="c1", title="Remove it", kind="delete"))
            answer_to(1)
            send(permission(2, toolCallId="c2", title="Read it", kind="read"))
            answer_to(2)
            send(update("tool_call_update", toolCallId="c2", status="completed"))
            send(permission(3, toolCallId="interrupt of c2", title="Read it again", kind="read"))
            answer_to(3)
            send(end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new(permissions=lambda request: request.tool_call.kind == "read")
            reply = await session.prompt("go")
            assert [(call.id, call.title, call.status) for call in reply.tool_calls] == [
                ("c1", "Remove it", "failed"),
                ("c2", "Read it", "completed"),
            ]
            assert [decision.tool_call.id for decision in reply.denied] == ["c1"]
            assert not reply.files

    run(story())
