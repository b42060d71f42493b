"""Questions to the user: in the way the client offers, and with an answer whatever the client does."""

import asyncio
import enum
import re
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import UNSET, Meta

from agent.steps import asks, cancel, end_of, final_call, text_of
from coupler.agent.editor import Editor
from coupler.agent.elicitation import ASKED_IN_CHAT, LINK_IN_CHAT, Answer, ask, ask_url, notify_complete
from coupler.agent.errors import EditorError
from coupler.schema.decoding import DecodingError, decode
from coupler.schema.methods import method_for
from coupler.schema.v1 import ClientCapabilities
from coupler.wire.messages import INVALID_PARAMS
from raw_client import texts
from tables import table

FORM = {"elicitation": {"form": {}}}
URL = {"elicitation": {"url": {}}}
BOTH = {"elicitation": {"form": {}, "url": {}}}
NEITHER = [{}, {"elicitation": {}}, {"elicitation": None}, {"elicitation": {"form": None, "url": None}}]


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass
class Release:
    version: Annotated[str, Meta(pattern="^v")]
    size: Size = Size.SMALL


class Shown:
    """What a tool call needs of its surroundings."""

    def __init__(self, turn, title, kind="other", **_):
        self.turn, self.title, self.kind, self.id, self.shown = turn, title, kind, "call_1", []

    async def __aenter__(self):
        self.turn.calls.append(self)
        return self

    async def __aexit__(self, *_):
        pass

    async def output(self, text):
        self.shown.append(text)


class FakePeer:
    def __init__(self):
        self.told = []

    def notify(self, method, params, lane):
        self.told.append((method, msgspec.to_builtins(params), lane))


class FakeTurn:
    """A turn whose client gives these answers, one after the other."""

    def __init__(self, capabilities, *answers):
        known = decode(ClientCapabilities, msgspec.json.encode(capabilities), "agent")
        self.peer = FakePeer()
        self.editor = Editor(self.peer, known, None)
        self.session = type("Session", (), {"id": "session-1"})()
        self.answers = list(answers)
        self.asked, self.said, self.calls = [], [], []

    def tool(self, title, *, kind):
        assert kind == "other"
        return Shown(self, title)

    async def say_apart(self, text):
        self.said.append(text)

    async def call_editor(self, request, *, deadline=UNSET):
        method = method_for(type(request))
        assert self.editor.offers(method.gate), f"{method.name} was not offered"
        self.asked.append({"method": method.name, **msgspec.json.decode(msgspec.json.encode(request))})
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        try:
            return decode(method.result, msgspec.json.encode(answer), "agent")
        except DecodingError as error:
            raise EditorError(INVALID_PARAMS.code, f"does not fit: {error}") from error


def run(question):
    return asyncio.run(question)


def accept(**content):
    return {"action": "accept", "content": content}


class TestByForm:
    def test_the_form_goes_to_the_session_and_its_answer_becomes_the_value(self):
        turn = FakeTurn(FORM, accept(version="v1", size="l"))

        answer = run(ask(turn, "Which release?", Release))

        assert answer == Answer("accept", Release("v1", Size.LARGE))
        assert answer.accepted
        (asked,) = turn.asked
        schema = asked.pop("requestedSchema")
        assert asked == {
            "method": "elicitation/create",
            "mode": "form",
            "message": "Which release?",
            "sessionId": "session-1",
        }
        assert list(schema["properties"]) == ["version", "size"]
        assert not turn.said
        assert not turn.calls

    @pytest.mark.parametrize(
        ("response", "expected"),
        [
            ({"action": "decline"}, Answer("decline")),
            ({"action": "cancel"}, Answer("cancel")),
            ({"action": "decline", "content": {"version": "v1"}}, Answer("decline")),
        ],
    )
    def test_to_decline_and_to_cancel_are_answers(self, response, expected):
        answer = run(ask(FakeTurn(FORM, response), "Which?", Release))

        assert answer == expected
        assert not answer.accepted

    @pytest.mark.parametrize(
        "response", [{"action": "_later"}, {"action": "accepted", "content": {"value": True}}]
    )
    def test_an_unknown_action_is_not_obeyed(self, response):
        answer = run(ask(FakeTurn(FORM, response), "Delete it?", bool))

        assert answer == Answer("decline", reason="the client answered in a way that is not known here")

    @table(
        "wrong",
        [
            accept(),
            {"action": "accept"},
            {"action": "accept", "content": None},
            accept(version="1"),
            accept(version=5),
            accept(version=["v1"]),
            accept(version=True),
            accept(version="v1", size="Small"),
            accept(version="v1", size=["s"]),
            accept(version="v" * 5_000),
            accept(VERSION="v1"),
            accept(version=None),
            accept(version={"a": "v1"}),
            accept(version=[["v1"]]),
            accept(version=10**30),
            {"action": "accept", "content": ["v1"]},
            {"action": "accept", "content": "v1"},
            {"action": 5},
            {"action": None},
            {},
            [],
            "accept",
        ],
    )
    def test_what_does_not_fit_is_asked_again(self, wrong):
        turn = FakeTurn(FORM, wrong, accept(version="v1"))

        answer = run(ask(turn, "Which release?", Release))

        assert answer == Answer("accept", Release("v1"))
        first, second = turn.asked
        assert first["message"] == "Which release?"
        assert second["message"].startswith("Which release?\n\nThat did not fit. ")
        assert second["requestedSchema"] == first["requestedSchema"]

    def test_it_says_what_was_wrong_the_last_time(self):
        turn = FakeTurn(FORM, accept(version="1"), accept(version="v1", size="x"), accept(version="v1"))

        run(ask(turn, "Which?", Release))

        assert [asked["message"] for asked in turn.asked] == [
            "Which?",
            "Which?\n\nThat did not fit. version: expected text that matches the pattern ^v",
            "Which?\n\nThat did not fit. size: expected one of Small, Large",
        ]

    def test_after_the_third_time_it_is_declined(self):
        turn = FakeTurn(FORM, *[accept(value="yes")] * 4)

        answer = run(ask(turn, "Delete it?", bool))

        assert answer.action == "decline"
        assert answer.reason == "the client's answers did not fit the form: value: expected true or false"
        assert len(turn.asked) == 3

    @table(
        ("code", "action"),
        [(-32601, "decline"), (-32602, "decline"), (-32603, "decline"), (-32800, "cancel")],
    )
    def test_a_clients_error_is_an_answer_and_not_asked_again(self, code, action):
        turn = FakeTurn(FORM, EditorError(code, "no " * 10_000))

        answer = run(ask(turn, "Which?", Release))

        assert answer.action == action
        assert answer.reason.startswith("the client could not ask: no no")
        assert len(answer.reason) <= 500
        assert len(turn.asked) == 1

    def test_a_cancel_of_the_turn_goes_through(self):
        with pytest.raises(asyncio.CancelledError):
            run(ask(FakeTurn(FORM, asyncio.CancelledError()), "Which?", Release))

    @pytest.mark.parametrize(
        "spec", [dict[str, str], {"type": "object", "properties": {"password": {"type": "string"}}}]
    )
    def test_what_cannot_be_a_form_is_the_agents_mistake(self, spec):
        turn = FakeTurn(FORM)

        with pytest.raises(ValueError, match="the field"):
            run(ask(turn, "Which?", spec))
        assert not turn.asked

    @table("message", ["Enter your password", "Your API key, please"])
    @table("capabilities", [FORM, {}])
    def test_a_question_for_a_secret_is_refused(self, capabilities, message):
        turn = FakeTurn(capabilities)

        with pytest.raises(ValueError, match=r"turn\.ask_url"):
            run(ask(turn, message, str))
        assert not turn.asked
        assert not turn.said

    @pytest.mark.parametrize(("message", "error"), [("", ValueError), (" \n", ValueError), (5, TypeError)])
    def test_a_question_needs_a_text(self, message, error):
        with pytest.raises(error):
            run(ask(FakeTurn(FORM), message, bool))


def selected(option):
    return {"outcome": {"outcome": "selected", "optionId": option}}


@pytest.mark.parametrize("capabilities", [*NEITHER, URL])
class TestByChoice:
    def test_a_choice_is_a_permission_dialog_of_a_call_of_its_own(self, capabilities):
        turn = FakeTurn(capabilities, selected("choice_2"))

        answer = run(ask(turn, "Which size?", Size))

        assert answer == Answer("accept", Size.LARGE)
        (asked,) = turn.asked
        assert asked["method"] == "session/request_permission"
        assert asked["sessionId"] == "session-1"
        assert asked["toolCall"] == {
            "toolCallId": "call_1",
            "kind": "other",
            "status": "in_progress",
            "title": "Which size?",
        }
        assert asked["options"] == [
            {"optionId": "choice_1", "name": "Small", "kind": "allow_once"},
            {"optionId": "choice_2", "name": "Large", "kind": "allow_once"},
            {"optionId": "decline", "name": "Decline to answer", "kind": "reject_once"},
        ]
        (call,) = turn.calls
        assert call.shown == ["Large"]

    @table(
        ("spec", "option", "value"),
        [
            (bool, "choice_1", True),
            (bool, "choice_2", False),
            (Literal[5, 6], "choice_2", 6),
            (Literal["a", "b", "c", "d", "e", "f", "g", "h"], "choice_8", "h"),
            ({"properties": {"x": {"enum": ["p", "q"]}}}, "choice_1", {"x": "p"}),
        ],
    )
    def test_it_becomes_the_value(self, capabilities, spec, option, value):
        answer = run(ask(FakeTurn(capabilities, selected(option)), "Which?", spec))

        assert answer == Answer("accept", value)

    @table(
        ("response", "expected"),
        [
            (selected("decline"), Answer("decline")),
            ({"outcome": {"outcome": "cancelled"}}, Answer("cancel")),
            (
                selected("choice_9"),
                Answer("decline", reason="the client chose something that it was not offered"),
            ),
            (selected(""), Answer("decline", reason="the client chose something that it was not offered")),
            (
                selected("allow_once"),
                Answer("decline", reason="the client chose something that it was not offered"),
            ),
            (EditorError(-32601, "what?"), Answer("decline", reason="the client could not ask: what?")),
            (EditorError(-32800, "gone"), Answer("cancel", reason="the client could not ask: gone")),
        ],
    )
    def test_anything_else_is_no_answer(self, capabilities, response, expected):
        assert run(ask(FakeTurn(capabilities, response), "Delete it?", bool)) == expected

    @table("response", [{}, {"outcome": "selected"}, {"outcome": {"outcome": "later"}}, []])
    def test_what_cannot_be_read_is_no_answer(self, capabilities, response):
        answer = run(ask(FakeTurn(capabilities, response), "Delete it?", bool))

        assert answer.action == "decline"
        assert answer.value is None

    def test_a_long_question_is_below_its_title(self, capabilities):
        turn = FakeTurn(capabilities, selected("choice_1"))

        run(ask(turn, f"\n Really {'x' * 200}?\nAll of it?", bool))

        (call,) = turn.calls
        assert re.fullmatch(r"Really x+…", call.title)
        assert len(call.title) == 120
        assert call.shown == [f"\n Really {'x' * 200}?\nAll of it?", "Yes"]


@table("capabilities", [*NEITHER, URL])
@table("spec", [str, int, Release, list[Size], Literal[1, 2, 3, 4, 5, 6, 7, 8, 9]])
def test_what_is_neither_is_said_in_the_chat_and_declined(capabilities, spec):
    turn = FakeTurn(capabilities)

    answer = run(ask(turn, "Which one?", spec))

    assert answer == Answer("decline", reason=ASKED_IN_CHAT)
    (said,) = turn.said
    assert said.startswith("Which one?\n\nPlease answer with")
    assert not turn.asked


class TestByPage:
    @pytest.mark.parametrize("capabilities", [URL, BOTH])
    def test_a_page_is_opened_by_consent(self, capabilities):
        turn = FakeTurn(capabilities, {"action": "accept"})

        answer = run(ask_url(turn, "Log in", "https://example.com/login?state=1"))

        (asked,) = turn.asked
        assert answer == Answer("accept", id=asked["elicitationId"])
        assert asked == {
            "method": "elicitation/create",
            "mode": "url",
            "message": "Log in",
            "url": "https://example.com/login?state=1",
            "elicitationId": answer.id,
            "sessionId": "session-1",
        }

    def test_no_two_pages_have_the_same_id(self):
        turn = FakeTurn(URL, *[{"action": "accept"}] * 50)

        async def open_all():
            return [(await ask_url(turn, "Log in", "https://example.com")).id for _ in range(50)]

        assert len(set(run(open_all()))) == 50

    def test_the_client_is_told_once_that_it_is_complete(self):
        turn = FakeTurn(URL, {"action": "accept"})
        answer = run(ask_url(turn, "Log in", "https://example.com"))

        assert notify_complete(turn, answer.id)
        assert not notify_complete(turn, answer.id)

        assert turn.peer.told == [("elicitation/complete", {"elicitationId": answer.id}, "session-1")]

    def test_no_connection_completes_the_page_of_another(self):
        turn, other = FakeTurn(URL, {"action": "accept"}), FakeTurn(URL)
        answer = run(ask_url(turn, "Log in", "https://example.com"))

        assert not notify_complete(other, answer.id)
        assert not notify_complete(turn, "another")
        assert not turn.peer.told
        assert not other.peer.told

    @table(
        ("response", "action"),
        [
            ({"action": "decline"}, "decline"),
            ({"action": "cancel"}, "cancel"),
            ({"action": "_later"}, "decline"),
            ({"action": 5}, "decline"),
            ([], "decline"),
            (EditorError(-32602, "no"), "decline"),
            (EditorError(-32800, "gone"), "cancel"),
        ],
    )
    def test_what_was_not_accepted_cannot_be_completed(self, response, action):
        turn = FakeTurn(URL, response)

        answer = run(ask_url(turn, "Log in", "https://example.com"))

        assert answer.action == action
        assert answer.id is None
        assert not notify_complete(turn, turn.asked[0]["elicitationId"])
        assert not turn.peer.told

    @table("capabilities", [*NEITHER, FORM])
    def test_without_pages_the_link_is_said_in_the_chat_and_never_a_form(self, capabilities):
        turn = FakeTurn(capabilities)

        answer = run(ask_url(turn, "Log in", "https://example.com"))

        assert answer == Answer("decline", reason=LINK_IN_CHAT)
        assert turn.said == ["Log in\n\nhttps://example.com"]
        assert not turn.asked

    @table(
        "url",
        [
            "https://example.com",
            "HTTPS://example.com:8443/a/b?c=d%20e&token_access_type=offline&response_type=token#top",
            "https://xn--bcher-kva.example/",
            "https://[2001:db8::1]/",
            "http://localhost:8000/callback",
            "http://127.0.0.1",
            "http://[::1]:80/",
        ],
    )
    def test_these_addresses_can_be_given_to_a_user(self, url):
        assert run(ask_url(FakeTurn(URL, {"action": "accept"}), "Open", url)).accepted

    @table(
        ("url", "problem"),
        [
            ("", "names no host"),
            ("example.com", "names no host"),
            ("https:", "names no host"),
            ("https:example.com", "names no host"),
            ("https:///path", "names no host"),
            ("https://:443", "names no host"),
            ("http://example.com", "must begin with https"),
            ("http://localhost.example.com", "must begin with https"),
            ("http://127.0.0.1.example.com", "must begin with https"),
            ("http://0x7f.1", "must begin with https"),
            ("ftp://localhost", "must begin with https"),
            ("javascript://localhost/%0aalert(1)", "must begin with https"),
            ("file://localhost/etc/passwd", "must begin with https"),
            ("javascript:alert(1)", "names no host"),
            ("data:text/html,a", "names no host"),
            ("https://user@example.com", "user name or password"),
            ("https://user:pw@example.com", "user name or password"),
            ("https://example.com@evil.example", "user name or password"),
            ("http://localhost@evil.example", "must begin with https"),
            ("https://@example.com", "user name or password"),
            ("https://ex%61mple.com", "host is not written plainly"),
            ("https://example.com/?access_token=abc", "parameter 'access_token' looks like a secret"),
            ("https://example.com/?a=b&api_key=abc", "parameter 'api_key' looks like a secret"),
            ("https://example.com/#id_token=abc", "parameter 'id_token' looks like a secret"),
            ("https://example.com/?X-Amz-Credential=abc", "looks like a secret"),
            ("https://example.com:99999", "Port out of range"),
            ("https://[::1", "Invalid IPv6"),
            ("https://example.com/ a", "percent-encoded"),
            ("https://example.com/\n", "percent-encoded"),
            ("\thttps://example.com/", "percent-encoded"),
            ("https://example.com\\@evil.example", "percent-encoded"),
            ("https://bücher.example", "percent-encoded"),
            ("https://example.com/\u202ecod.exe", "percent-encoded"),
            ("https://example.com/\ud83d", "percent-encoded"),
            (f"https://example.com/{'a' * 2_048}", "more than 2048"),
        ],
    )
    @table("capabilities", [URL, {}])
    def test_these_cannot(self, capabilities, url, problem):
        turn = FakeTurn(capabilities)

        with pytest.raises(ValueError, match=problem):
            run(ask_url(turn, "Open", url))
        assert not turn.asked
        assert not turn.said


@pytest.mark.parametrize("answer", [Answer("accept", True), Answer("accept", False), Answer("decline")])
def test_an_answer_is_not_mistaken_for_a_yes(answer):
    with pytest.raises(TypeError, match="look at its `accepted` or its `value`"):
        bool(answer)


# The same with a real turn.

AGENT = """
from typing import Literal
from coupler.agent.elicitation import ask, ask_url, notify_complete

async def agent(turn):
    match turn.text:
        case "form":
            answer = await ask(turn, "How many?", int)
        case "inside":
            async with turn.tool("Count") as call:
                answer = await ask(turn, "How many?", int)
        case "choice":
            answer = await ask(turn, "Which?", Literal["a", "b"])
        case "page":
            answer = await ask_url(turn, "Log in", "https://example.com")
            if answer.accepted:
                notify_complete(turn, answer.id)
    await turn.say(f"{answer.action} {answer.value}")
"""


def begin_asking(client, session, text, method="elicitation/create"):
    request = client.prompt_request(session, text)
    client.send(request)
    *_, question = client.read_until(asks(method))
    return request, question


class TestInATurn:
    def test_a_form_is_answered(self, share):
        client, session = share(AGENT, **FORM)
        request, question = begin_asking(client, session, "form")

        assert question["params"]["sessionId"] == session
        assert "toolCallId" not in question["params"]
        client.send({"id": question["id"], "result": accept(value=3)})

        updates, _ = end_of(client, request)
        assert texts(updates) == "accept 3"

    def test_a_question_belongs_to_the_call_that_it_is_asked_in(self, share):
        client, session = share(AGENT, **FORM)
        request, question = begin_asking(client, session, "inside")
        client.send({"id": question["id"], "result": {"action": "cancel"}})

        updates, answer = end_of(client, request)

        assert question["params"]["toolCallId"].startswith("call_")
        assert texts(updates) == "cancel None"
        assert answer["result"]["stopReason"] == "end_turn"

    def test_nonsense_is_asked_again(self, share):
        client, session = share(AGENT, **FORM)
        request, question = begin_asking(client, session, "form")
        client.send({"id": question["id"], "result": {"action": "accept", "content": {"value": {"a": 1}}}})
        *_, again = client.read_until(asks("elicitation/create"))
        client.send({"id": again["id"], "error": {"code": -32603, "message": "no more"}})

        updates, _ = end_of(client, request)

        assert "That did not fit" in again["params"]["message"]
        assert texts(updates) == "decline None"

    def test_a_choice_is_a_dialog_and_its_call_shows_the_answer(self, share):
        client, session = share(AGENT)
        request, question = begin_asking(client, session, "choice", "session/request_permission")
        before = question["params"]["toolCall"]
        client.send({"id": question["id"], "result": selected("choice_2")})

        updates, _ = end_of(client, request)

        assert before["title"] == "Which?"
        assert texts(updates) == "accept b"
        assert final_call(updates)["status"] == "completed"
        assert text_of(final_call(updates)) == "b"

    @pytest.mark.parametrize(
        ("text", "method", "capabilities"),
        [
            ("form", "elicitation/create", FORM),
            ("page", "elicitation/create", URL),
            ("choice", "session/request_permission", {}),
        ],
    )
    def test_a_cancel_wins_over_an_open_question(self, share, text, method, capabilities):
        client, session = share(AGENT, **capabilities)
        request, _ = begin_asking(client, session, text, method)

        client.send(cancel(session))

        updates, answer = end_of(client, request)
        assert answer["result"]["stopReason"] == "cancelled"
        assert texts(updates) == ""

    def test_the_end_of_a_page_is_told_before_the_turn_ends(self, share):
        client, session = share(AGENT, **URL)
        request, question = begin_asking(client, session, "page")
        client.send({"id": question["id"], "result": {"action": "accept"}})

        frames = client.read_until(lambda frame: frame.get("id") == request["id"])

        assert [frame["params"] for frame in frames if frame.get("method") == "elicitation/complete"] == [
            {"elicitationId": question["params"]["elicitationId"]}
        ]
