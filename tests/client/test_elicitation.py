"""What agents want to know: asked by functions, checked before it is sent, taken back by a cancel."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Any

import pytest

from client.asking import Asked, Script, advertised, ask
from client.stage import run, until
from coupler.client.elicitation import FormRequest, UrlRequest
from coupler.fields.form_fields import ChoiceField, SwitchField, TextField

FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 2},
        "size": {"type": "string", "enum": ["small", "large"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 5},
        "share": {"type": "number"},
        "sure": {"type": "boolean", "default": True},
        "day": {"type": "string", "format": "date"},
        "colours": {"type": "array", "items": {"type": "string", "enum": ["red", "green"]}, "maxItems": 1},
        "plan": {"type": "string", "oneOf": [{"const": "a", "title": "Plan A"}]},
        "code": {"type": "string", "pattern": "^[a-z]+$"},
        "tricky": {"type": "string", "pattern": "(?=x)x"},
    },
    "required": ["name"],
}


async def create(asked: Asked, schema: Any = FORM, **more: Any) -> Any:
    params = {"mode": "form", "message": "Who are you?", "requestedSchema": schema, **more}
    return await asked.request("elicitation/create", **params)


def answer(script: Script, on_form: Any, schema: Any = FORM, **more: Any) -> Any:
    """What the agent gets for a form."""
    found: list[Any] = []

    async def story(asked: Asked) -> None:
        found.append(await create(asked, schema, **more))

    ask(script, story, on_form=on_form)
    return found[0]


def failure(script: Script, on_form: Any) -> str:
    """The error that the agent gets when a function fails; whoever wrote it hears of it, too."""
    told: list[dict[str, Any]] = []
    found: list[Any] = []

    async def story(asked: Asked) -> None:
        found.append(await create(asked))

    ask(script, story, on_form=on_form, complains=told)
    assert [context["message"] for context in told] == ["the function for forms failed"]
    assert found[0]["code"] == -32603
    return str(found[0]["message"])


def test_the_function_gets_the_form_with_its_fields(script: Script) -> None:
    asked: list[FormRequest] = []
    answer(script, asked.append)
    [form] = asked
    assert (form.message, form.session_id, form.tool_call) == ("Who are you?", "s1", None)
    by_name = {field.name: field for field in form.fields}
    assert list(by_name) == list(FORM["properties"])  # type: ignore[call-overload]
    assert isinstance(name := by_name["name"], TextField)
    assert (name.title, name.required, name.shortest) == ("Your name", True, 2)
    assert isinstance(sure := by_name["sure"], SwitchField)
    assert (sure.default, sure.required) == (True, False)
    assert isinstance(plan := by_name["plan"], ChoiceField)
    assert [(option.const, option.title) for option in plan.options] == [("a", "Plan A")]
    assert form.schema.required == ["name"]


def test_the_form_knows_the_tool_call_that_it_belongs_to(script: Script) -> None:
    asked: list[FormRequest] = []

    async def story(agent: Asked) -> None:
        call = "update('tool_call', toolCallId='c1', title='Deploy')"
        form = "request(1, 'elicitation/create', sessionId='s1', toolCallId='c1', mode='form', message='?'"
        await agent.send(f"[{call}, {form}, requestedSchema={{'type': 'object', 'properties': {{}}}})]")

    ask(script, story, on_form=asked.append)
    assert asked[0].tool_call is not None
    assert asked[0].tool_call.title == "Deploy"


def test_values_that_fit_are_sent(script: Script) -> None:
    async def fill_in(form: FormRequest) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {
            "name": "Ada",
            "size": "small",
            "count": 5,
            "share": 1,
            "sure": False,
            "day": date(2030, 12, 31),
            "colours": ["red"],
            "plan": "a",
            "code": "abc",
            "tricky": "anything",
        }

    assert answer(script, fill_in) == {
        "action": "accept",
        "content": {
            "name": "Ada",
            "size": "small",
            "count": 5,
            "share": 1.0,
            "sure": False,
            "day": "2030-12-31",
            "colours": ["red"],
            "plan": "a",
            "code": "abc",
            "tricky": "anything",
        },
    }


def test_what_is_not_required_may_be_left_out(script: Script) -> None:
    assert answer(script, lambda form: {"name": "Ada", "size": None}) == {
        "action": "accept",
        "content": {"name": "Ada"},
    }


@pytest.mark.parametrize(("given", "action"), [(False, "decline"), (None, "cancel")])
def test_a_form_can_be_declined_or_left_unanswered(script: Script, given: Any, action: str) -> None:
    assert answer(script, lambda form: given) == {"action": action}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "name: is missing"),
        ({"name": None}, "name: is missing"),
        ({"name": "A"}, "name: expected at least 2 characters"),
        ({"name": 7}, "name: expected text"),
        ({"name": "Ada", "size": "huge"}, "size: expected one of small, large"),
        ({"name": "Ada", "count": 6}, "count: expected at most 5"),
        ({"name": "Ada", "count": True}, "count: expected a whole number"),
        ({"name": "Ada", "share": float("nan")}, "share: expected a number"),
        ({"name": "Ada", "sure": "yes"}, "sure: expected true or false"),
        ({"name": "Ada", "day": "tomorrow"}, "day: expected a date"),
        ({"name": "Ada", "colours": ["red", "green"]}, "colours: expected at most 1"),
        ({"name": "Ada", "colours": "red"}, "colours: expected a list"),
        ({"name": "Ada", "code": "A1"}, "code: expected text that matches"),
        ({"name": "Ada", "nmae": "x"}, "the form has no field 'nmae'"),
        (True, "a dict, False or None, not bool"),
        ("Ada", "a dict, False or None, not str"),
    ],
)
def test_values_that_do_not_fit_are_not_sent_and_the_developer_is_told(
    script: Script, given: Any, problem: str
) -> None:
    assert problem in failure(script, lambda form: given)


def test_a_wrong_value_is_not_repeated(script: Script) -> None:
    assert "hunter2" not in failure(script, lambda form: {"name": "Ada", "size": "hunter2"})


def test_a_function_that_raises_answers_with_an_error(script: Script) -> None:
    def fail(form: FormRequest) -> None:
        raise ZeroDivisionError("oops")

    assert failure(script, fail) == "the function for forms failed: ZeroDivisionError: oops"


def test_a_field_of_an_unknown_kind_is_left_out_unless_it_is_required(script: Script) -> None:
    asked: list[FormRequest] = []
    schema: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "hologram"}}}
    assert answer(script, asked.append, schema) == {"action": "cancel"}
    assert asked[0].fields == ()
    error = answer(script, asked.append, {**schema, "required": ["x"]})
    assert (error["code"], error["data"]["path"]) == (-32602, "requestedSchema")
    assert len(asked) == 1


def test_a_form_that_is_too_long_is_refused(script: Script) -> None:
    properties = {f"f{number}": {"type": "string", "pattern": "a{900}"} for number in range(101)}
    error = answer(script, print, {"type": "object", "properties": properties})
    assert (error["code"], error["data"]["path"]) == (-32602, "requestedSchema")


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"mode": "form"},
        {"mode": "form", "message": "?"},
        {"mode": "form", "message": 7, "requestedSchema": FORM},
        {"mode": "form", "message": "?", "requestedSchema": []},
        {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "properties": []}},
        {"mode": "form", "message": "?", "requestedSchema": {"type": "object", "required": ["ghost"]}},
        {"mode": "form", "message": "?", "requestedSchema": FORM, "sessionId": "ghost"},
        {"mode": "telepathy", "message": "?"},
        {"mode": 3, "message": "?"},
        {"mode": "url", "message": "?", "elicitationId": "e1", "url": "https://example.com"},
    ],
)
def test_malformed_questions_and_those_in_a_way_that_is_not_offered_are_refused(
    script: Script, params: dict[str, Any]
) -> None:
    asked: list[FormRequest] = []

    async def story(agent: Asked) -> None:
        error = await agent.request("elicitation/create", **params)
        assert error.get("code") == -32602 or error == {"action": "cancel"}, error
        assert (await create(agent)) == {"action": "cancel"}

    ask(script, story, on_form=asked.append)


def test_a_question_that_belongs_to_a_request_needs_no_session(script: Script) -> None:
    agent = script("""
        HELLO["authMethods"] = [{"id": "key", "name": "Key"}]
        hello()
        login = read()
        form = {"type": "object", "properties": {"user": {"type": "string"}}}
        send(request(1, "elicitation/create", requestId=login["id"], mode="form", message="?",
                     requestedSchema=form))
        answer_to(1)
        send(result(login, {}))
        read()
    """)
    asked: list[FormRequest] = []

    def fill_in(form: FormRequest) -> dict[str, str]:
        asked.append(form)
        return {"user": "ada"}

    async def story() -> None:
        async with agent.connect(on_form=fill_in) as remote:
            await remote.authenticate("key")

    run(story())
    assert agent.answers_to(1)[0]["result"] == {"action": "accept", "content": {"user": "ada"}}
    assert asked[0].session_id is None


def test_a_function_that_fails_outside_of_all_sessions_is_told_as_well(script: Script) -> None:
    agent = script("""
        hello()
        send(request(1, "elicitation/create", requestId=1, mode="url", message="?", elicitationId="e",
                     url="https://example.com"))
        answer_to(1)
        note("answered", True)
        read()
    """)
    told: list[dict[str, Any]] = []

    def fail(page: UrlRequest) -> bool:
        raise ZeroDivisionError("oops")

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        async with agent.connect(on_url=fail):
            await until(lambda: agent.noted("answered"))

    run(story())
    assert [context["message"] for context in told] == ["the function for pages failed"]
    assert agent.answers_to(1)[0]["error"]["message"].endswith("ZeroDivisionError: oops")


class Dialog:
    """A user who never answers."""

    def __init__(self) -> None:
        self.opened, self.closed = asyncio.Event(), asyncio.Event()

    async def __call__(self, request: FormRequest) -> dict[str, Any]:
        self.opened.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.closed.set()
        return {}


QUESTION = """
    for prompt in prompts():
        form = {"type": "object", "properties": {}}
        {wait}
        send(request(1, "elicitation/create", sessionId="s1", mode="form", message="?", requestedSchema=form))
        {then}
        answer_to(1)
        send(end(prompt, "cancelled"))
"""


def test_a_cancel_takes_an_open_question_back(script: Script) -> None:
    agent = script(QUESTION.replace("{wait}", "").replace("{then}", "read_until(is_cancel)"))

    async def story() -> None:
        dialog = Dialog()
        async with agent.connect(on_form=dialog) as remote:
            session = await remote.new()
            async with session.prompt("go"):
                await dialog.opened.wait()
            assert dialog.closed.is_set()

    run(story())
    assert [frame["result"] for frame in agent.answers_to(1)] == [{"action": "cancel"}]


def test_a_question_that_crosses_the_cancel_is_not_asked(script: Script) -> None:
    agent = script(QUESTION.replace("{wait}", "read_until(is_cancel)").replace("{then}", ""))

    async def story() -> None:
        dialog = Dialog()
        async with agent.connect(on_form=dialog) as remote:
            session = await remote.new()
            async with session.prompt("go"):
                pass
            assert not dialog.opened.is_set()

    run(story())
    assert [frame["result"] for frame in agent.answers_to(1)] == [{"action": "cancel"}]


def test_a_question_that_the_agent_takes_back_is_closed(script: Script) -> None:
    cancel = 'send({"method": "$/cancel_request", "params": {"requestId": 1}})'
    agent = script(QUESTION.replace("{wait}", "").replace("{then}", cancel))

    async def story() -> None:
        dialog = Dialog()
        async with agent.connect(on_form=dialog) as remote:
            await (await remote.new()).prompt("go")
            assert not dialog.opened.is_set() or dialog.closed.is_set()

    run(story())
    assert [frame["error"]["code"] for frame in agent.answers_to(1)] == [-32800]


def test_an_open_question_ends_with_the_connection(script: Script) -> None:
    agent = script(QUESTION.replace("{wait}", "").replace("{then}", ""))

    async def story() -> None:
        dialog = Dialog()
        async with agent.connect(on_form=dialog) as remote:
            prompt = (await remote.new()).prompt("go")
            await prompt.listen()
            await dialog.opened.wait()
        assert dialog.closed.is_set()

    run(story())


async def open_page(asked: Asked, url: str = "https://Example.com:8443/login?x=1", **more: Any) -> Any:
    params = {"mode": "url", "message": "Log in", "elicitationId": "e1", "url": url, **more}
    return await asked.request("elicitation/create", **params)


@pytest.mark.parametrize(("given", "action"), [(True, "accept"), (False, "decline"), (None, "cancel")])
def test_a_page_is_opened_declined_or_left(script: Script, given: Any, action: str) -> None:
    asked: list[UrlRequest] = []

    def decide(page: UrlRequest) -> Any:
        asked.append(page)
        return given

    async def story(agent: Asked) -> None:
        assert await open_page(agent) == {"action": action}

    ask(script, story, on_url=decide)
    [page] = asked
    assert (page.message, page.host, page.id, page.session_id) == ("Log in", "example.com:8443", "e1", "s1")
    assert page.url == "https://Example.com:8443/login?x=1"


def test_whatever_else_is_true_in_pythons_eyes_opens_no_page(script: Script) -> None:
    told: list[dict[str, Any]] = []

    async def story(agent: Asked) -> None:
        assert "True, False or None" in (await open_page(agent))["message"]

    ask(script, story, on_url=lambda page: "yes", complains=told)
    assert len(told) == 1


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "http://example.com",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "https://",
        "https://user:pass@example.com",
        "https://example.com@evil.example",
        "https://\u0435xample.com",
        "https://example.com/\x1b[2J",
        "https://example.com/ x",
        "https://exa%6dple.com",
        "https://example.com:port",
        "https://example.com/" + "x" * 3000,
    ],
)
def test_an_address_that_deceives_or_is_not_safe_is_refused_before_anybody_sees_it(
    script: Script, url: str
) -> None:
    asked: list[UrlRequest] = []

    async def story(agent: Asked) -> None:
        error = await open_page(agent, url)
        assert (error["code"], error["data"]["path"]) == (-32602, "url")

    ask(script, story, on_url=asked.append)
    assert asked == []


def test_the_completion_of_a_page_is_passed_on_and_of_no_other(script: Script) -> None:
    pages: list[UrlRequest] = []

    def accept(page: UrlRequest) -> bool:
        pages.append(page)
        return True

    async def story(agent: Asked) -> None:
        def complete(id: Any) -> str:
            return f"{{'method': 'elicitation/complete', 'params': {{'elicitationId': {id!r}}}}}"

        await open_page(agent)
        assert not pages[0].completed.is_set()
        await agent.send(f"[{complete('other')}, {complete(7)}, {{'method': 'elicitation/complete'}}]")
        assert not pages[0].completed.is_set()
        await agent.send(f"[{complete('e1')}, {complete('e1')}]")
        assert pages[0].completed.is_set()

    ask(script, story, on_url=accept)


def test_complete_is_no_request(script: Script) -> None:
    async def story(agent: Asked) -> None:
        assert (await agent.request("elicitation/complete", elicitationId="e1"))["code"] == -32601

    ask(script, story, on_url=lambda page: True)


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        ({}, None),
        ({"on_form": print}, {"form": {}}),
        ({"on_url": print}, {"url": {}}),
        ({"on_form": print, "on_url": print}, {"form": {}, "url": {}}),
    ],
)
def test_each_way_is_advertised_exactly_when_its_function_is_there(
    script: Script, offered: dict[str, Any], expected: Any
) -> None:
    async def story(agent: Asked) -> None:
        pass

    assert advertised(ask(script, story, **offered)).get("elicitation") == expected
