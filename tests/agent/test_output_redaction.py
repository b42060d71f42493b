"""Nothing that an agent can send gets past the veil with a secret in it, and nothing else is changed."""

from __future__ import annotations

import collections.abc
import itertools
import os
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw, Struct, UnsetType

from coupler.agent.content import MAX_TEXT, json_value
from coupler.agent.errors import LONGEST_MESSAGE, describe
from coupler.agent.output import (
    DEEPEST,
    TOO_DEEP,
    UNREDACTED_FIELDS,
    UNREDACTED_REQUESTS,
    SessionRedactor,
    redact_error,
)
from coupler.agent.session import SessionEnvironment
from coupler.events import (
    Compaction,
    CompactionSummary,
    Content,
    Plan,
    Text,
    Thought,
    ToolOutput,
    ToolUpdate,
    Usage,
)
from coupler.events.records import RecordedEvent
from coupler.events.v1_codec import EmittedEvent
from coupler.redaction import known_secrets
from coupler.redaction.masker import Masker
from coupler.redaction.sources import declared_secrets
from coupler.schema import v1
from coupler.schema.base import Unknown
from coupler.schema.methods import METHODS, UNSTABLE_METHODS
from coupler.wire.messages import RpcError
from redaction.payloads import NEVER_MASKED
from tables import table

SECRET = "Zq7Xk9Vw3Jy5Qz8Wx2Kv"
MARK = "[secret:TOKEN]"

PAYLOADS = {
    "ids": "id message_id session_id tool_call_id request_id terminal_id option_id elicitation_id "
    "current_mode_id current_value value group next_cursor",
    "paths": "path cwd additional_directories",
    "words of the protocol": "kind status role severity priority reason audience last_modified updated_at "
    "mime_type name currency category type format pattern stop_reason",
    "binary data": "data blob",
    "keys": "required",
}
"""Which row of the table of what is never masked a field belongs to."""


@pytest.fixture
def veil() -> SessionRedactor:
    veil = SessionRedactor()
    veil.add({"TOKEN": SECRET})
    return veil


def members(union: Any) -> list[Any]:
    return [*typing.get_args(union)]


def filled(kind: Any, seen: tuple[Any, ...] = ()) -> Iterator[Any]:
    """Values of a type that together have the secret in every text that the type can hold."""
    origin = typing.get_origin(kind)
    if kind in (str, Any):
        yield f"before {SECRET} after"
        if kind is Any:
            yield {"key": [f"{SECRET}", {"deeper": SECRET}]}
    elif kind in (int, float, bool):
        yield kind(1)
    elif origin is typing.Literal:
        yield members(kind)[0]
    elif origin in (typing.Union, types.UnionType):
        for member in members(kind):
            if member not in (type(None), UnsetType):
                yield from filled(member, seen)
    elif origin is typing.Annotated:
        yield from filled(members(kind)[0], seen)
    elif origin in (tuple, collections.abc.Sequence):
        # Some lists are of one type only.
        for _, values in itertools.groupby(filled(members(kind)[0], seen), type):
            yield tuple(values)
    elif origin in (dict, collections.abc.Mapping):
        yield {f"key{number}": value for number, value in enumerate(filled(members(kind)[1], seen))}
    elif isinstance(kind, type) and issubclass(kind, Struct):
        yield from () if kind in seen else structs(kind, (*seen, kind))
    elif isinstance(kind, type) and issubclass(kind, Unknown):
        yield kind("new", {"type": "new", "text": SECRET})
    elif isinstance(kind, type) and kind.__subclasses__():
        for variant in kind.__subclasses__():
            yield from filled(variant, seen)
    else:
        raise AssertionError(f"the test cannot make a {kind}")


def structs(kind: type[Struct], seen: tuple[Any, ...]) -> Iterator[Struct]:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = {name: [*filled(hints[name], seen)] or [UNSET] for name in kind.__struct_fields__}
    for number in range(max(map(len, fields.values()), default=1)):
        yield kind(**{name: values[min(number, len(values) - 1)] for name, values in fields.items()})


def texts_in(value: Any, place: tuple[Any, str] = (None, "")) -> Iterator[tuple[tuple[Any, str], str]]:
    match value:
        case str():
            yield place, value
        case Struct():
            for name in value.__struct_fields__:
                yield from texts_in(getattr(value, name), (type(value), name))
        case dict():
            for item in value.values():
                yield from texts_in(item, place)
        case list() | tuple():
            for item in value:
                yield from texts_in(item, place)


def shown_by(veil: SessionRedactor, event: Any) -> list[Any]:
    sent: list[Any] = []
    veil.pass_on(event, sent.append)
    veil.end_message()
    return sent


def check(before: Any, after: list[Any]) -> None:
    """Every secret was masked but in the fields that the table lists, and those are unchanged."""
    unmasked = {place for place, text in texts_in(after) if SECRET in text}
    listed = {(kind, name) for kind, names in UNREDACTED_FIELDS.items() for name in names}
    assert unmasked <= listed
    kept = [(place, text) for place, text in texts_in(before) if place in listed]
    assert kept == [(place, text) for place, text in texts_in(after) if place in listed]
    assert any(MARK in text for _, text in texts_in(after)) or unmasked == {
        place for place, text in texts_in(before) if SECRET in text
    }


@pytest.mark.parametrize("kind", members(EmittedEvent), ids=lambda kind: kind.__name__)
def test_every_event_that_an_agent_emits_is_covered(veil, kind):
    for event in filled(kind):
        check([event], shown_by(veil, event))


@pytest.mark.parametrize("kind", members(RecordedEvent), ids=lambda kind: kind.__name__)
def test_every_event_that_is_kept_is_covered(veil, kind):
    for event in filled(kind):
        check([event], [veil.covered(event)])


REQUESTS = {method.params for method in METHODS.values() if method.direction in ("client", "both")}
ANSWERS = {
    method.result
    for method in [*METHODS.values(), *UNSTABLE_METHODS.values()]
    if method.direction == "agent" and method.result is not None and method.name != "initialize"
}


@pytest.mark.parametrize(
    "kind", sorted(REQUESTS - {v1.SessionNotification}, key=str), ids=lambda k: k.__name__
)
def test_every_request_to_a_client_is_covered_or_functional(veil, kind):
    for request in filled(kind):
        covered = veil.covered_request(request)
        if kind in UNREDACTED_REQUESTS:
            assert msgspec.structs.replace(covered, meta=request.meta) == request
            assert SECRET not in str(covered.meta)
        else:
            check([request], [covered])


def test_only_files_and_terminals_are_functional():
    methods = {method.name for method in METHODS.values() if method.params in UNREDACTED_REQUESTS}
    assert {name.split("/")[0] for name in methods} == {"fs", "terminal"}


@pytest.mark.parametrize("kind", sorted(ANSWERS, key=str), ids=lambda kind: kind.__name__)
def test_every_answer_is_covered(veil, kind):
    for answer in filled(kind):
        check([answer], [veil.covered(answer)])


def test_every_field_that_is_not_masked_belongs_to_a_row_of_the_table():
    assert {*PAYLOADS} <= {payload.name for payload in NEVER_MASKED}
    explained = {name for names in PAYLOADS.values() for name in names.split()}
    assert {name for names in UNREDACTED_FIELDS.values() for name in names} <= explained
    for kind, names in UNREDACTED_FIELDS.items():
        assert names <= {*kind.__struct_fields__}, kind


def test_the_table_of_the_docs_is_that_of_the_code():
    page = Path(__file__).parents[2].joinpath("docs/secrets.md").read_text()
    rows = [f"| {name} | {'; '.join(places)} | {reason} |" for name, places, reason in NEVER_MASKED]
    assert page.rstrip().endswith("\n".join(rows))


def test_errors_are_covered_with_their_data_but_for_its_words():
    masker = Masker(declared_secrets({"TOKEN": SECRET}))
    data = {"path": SECRET, "sessionId": SECRET, "method": SECRET, "more": [SECRET]}

    error = redact_error(RpcError(-1, f"no {SECRET}", data), masker)

    assert (error.code, error.message) == (-1, f"no {MARK}")
    assert error.data == {**data, "more": [MARK]}
    assert redact_error(RpcError(-1, "no", [SECRET]), masker).data == [MARK]


def test_the_reason_of_an_error_stays_if_it_is_one_of_ours_and_is_covered_if_an_agent_made_it_up():
    masker = Masker(declared_secrets({"TOKEN": SECRET, "WORD": "session"}))
    assert redact_error(RpcError(-1, "no", {"reason": "unknown_session"}), masker).data == {
        "reason": "unknown_session"
    }
    made_up = {"reason": f"login with {SECRET} failed", "kind": SECRET}
    assert redact_error(RpcError(-1, "no", made_up), masker).data == {
        "reason": f"login with {MARK} failed",
        "kind": MARK,
    }


def test_keys_and_numbers_are_not_covered_and_bytes_are(veil):
    veil.add({"PIN": "12345678"})
    value = {SECRET: [12345678, 1.5, None, True], "bytes": SECRET.encode(), "text": "12345678"}
    assert veil.covered(value) == {**value, "bytes": MARK.encode(), "text": "[secret:PIN]"}


def test_what_has_no_secret_is_the_same_object_down_to_its_parts(veil):
    inner = ["a", {"b": float("nan")}]
    value = {"clean": inner, "other": ("text", 1)}
    assert veil.covered(value) is value
    assert veil.covered({"clean": inner, "dirty": SECRET})["clean"] is inner


def test_what_is_nested_too_deeply_is_left_out_and_not_let_through(veil):
    value: Any = SECRET
    for _ in range(100_000):
        value = [value]
    covered = veil.covered(value)
    for _ in range(DEEPEST):
        [covered] = covered
    assert covered == TOO_DEEP


@pytest.mark.parametrize("levels", [DEEPEST + 1, 100_000])
def test_a_user_block_that_is_nested_too_deeply_is_not_kept_and_breaks_nothing(veil, levels):
    block = b'{"type":"x","deep":' + b"[" * levels + b'"%s"' % SECRET.encode() + b"]" * levels + b"}"
    kept = veil.prompt_redactor({}).covered_blocks(b"[%s]" % block)
    assert SECRET.encode() not in kept
    assert TOO_DEEP.encode() in kept


def test_what_is_no_json_in_a_journal_is_covered_as_text(veil):
    assert veil.covered(Raw(b'{"text": %s' % SECRET.encode())) == Raw(b'{"text": %s' % MARK.encode())


def test_a_user_block_is_kept_byte_for_byte_unless_there_is_a_secret_in_it(veil):
    block = b'[ {"type":"text", "text" :"a\\u00e9", "later": 1.50, "data": "%s"}]' % SECRET.encode()
    assert veil.prompt_redactor({}).covered_blocks(block) == block

    embedded = [
        {"type": "resource", "resource": {"uri": f"file:///{SECRET}", "text": f"KEY={SECRET}", "x": 1}}
    ]
    kept = msgspec.json.decode(veil.prompt_redactor({}).covered_blocks(msgspec.json.encode(embedded)))
    assert kept == [
        {"type": "resource", "resource": {"uri": f"file:///{SECRET}", "text": f"KEY={MARK}", "x": 1}}
    ]


def test_a_block_of_an_old_journal_is_covered_when_it_is_shown(veil):
    old = Content(Raw(msgspec.json.encode({"type": "text", "text": SECRET})), "user", "m")  # type: ignore[arg-type]
    (shown,) = shown_by(veil, old)
    assert msgspec.json.decode(shown.block) == {"type": "text", "text": MARK}


def test_a_link_to_a_file_is_a_path_and_any_other_may_have_a_password_in_it(veil):
    for uri, expected in {
        f"file:///{SECRET}": f"file:///{SECRET}",
        f"https://u:{SECRET}@h": f"https://u:{MARK}@h",
    }.items():
        (shown,) = shown_by(veil, Content(v1.ResourceLink("name", uri)))
        assert shown.block.uri == expected


class TestTextInPieces:
    CUTS = range(1, len(SECRET))

    @pytest.mark.parametrize("kind", [Text, Thought])
    @pytest.mark.parametrize("cut", CUTS)
    def test_of_a_message_no_more_than_three_characters_are_shown(self, veil, kind, cut):
        sent: list[Any] = []
        for piece in ("see ", SECRET[:cut], SECRET[cut:], " there"):
            veil.pass_on(kind(piece, "m"), sent.append)

        said = "".join(event.text for event in sent)
        assert said == f"see {SECRET[: cut if cut < 4 else 0]}{MARK} there"
        assert {(type(event), event.message_id) for event in sent} == {(kind, "m")}

    @pytest.mark.parametrize("cut", CUTS)
    def test_nor_when_a_piece_comes_as_a_block(self, veil, cut):
        sent: list[Any] = []
        block = v1.TextContent(SECRET[cut:], meta={"x": SECRET})
        veil.pass_on(Text(SECRET[:cut], "m"), sent.append)
        veil.pass_on(Content(block, "agent", "m"), sent.append)

        assert sent[-1] == Content(v1.TextContent(MARK, meta={"x": MARK}), "agent", "m")
        assert SECRET[:4] not in str(sent[:-1])

    @pytest.mark.parametrize("cut", CUTS)
    def test_nor_of_a_tools_output(self, veil, cut):
        pieces = [*output(veil, SECRET[:cut]), *output(veil, SECRET[cut:]), *veil.end_output("call")]
        assert "".join(piece.text or "" for piece in pieces) == f"{SECRET[: cut if cut < 4 else 0]}{MARK}"

    @pytest.mark.parametrize("cut", CUTS)
    def test_nor_of_a_summary(self, veil, cut):
        sent: list[Any] = []
        for piece in (SECRET[:cut], SECRET[cut:]):
            veil.pass_on(CompactionSummary("c", v1.TextContent(piece)), sent.append)
        veil.pass_on(Compaction("c", "completed"), sent.append)

        *summary, end = sent
        assert "".join(event.block.text for event in summary) == f"{SECRET[: cut if cut < 4 else 0]}{MARK}"
        assert end == Compaction("c", "completed")

    @pytest.mark.parametrize("between", [Usage(1, 2), Plan(()), ToolUpdate(id="call", status="completed")])
    @pytest.mark.parametrize("cut", CUTS)
    def test_what_comes_between_two_pieces_does_not_wait_and_does_not_give_the_secret_away(
        self, veil, cut, between
    ):
        sent: list[Any] = []
        veil.pass_on(Text(SECRET[:cut], "m"), sent.append)
        veil.pass_on(between, sent.append)
        assert sent[-1] == between
        veil.pass_on(Text(SECRET[cut:], "m"), sent.append)

        assert sent[-1] == Text(MARK, "m")

    @given(
        st.lists(
            st.sampled_from(["a", " ", *(SECRET[a:b] for a, b in itertools.combinations(range(0, 21, 2), 2))])
        )
    )
    def test_whatever_the_pieces_are_nothing_else_is_lost(self, pieces):
        veil = SessionRedactor()
        veil.add({"TOKEN": SECRET})
        sent: list[Any] = []
        for piece in (*pieces, "."):
            veil.pass_on(Text(piece, "m"), sent.append)
        veil.end_message()

        said, whole = "".join(event.text for event in sent), "".join((*pieces, "."))
        assert SECRET not in said
        # Characters that were shown before the secret could be recognized stand before its mark.
        assert said.count(MARK) == whole.count(SECRET)
        if SECRET not in whole:
            assert said == whole


class TestTextWithSomethingInIt:
    """A secret in two parts of one text or of two, with something else between them."""

    CUTS = range(1, len(SECRET))

    @staticmethod
    def check(shown: str, cut: int) -> None:
        """No more than the first half is there, and a mark after it."""
        before = SECRET[:cut] if cut <= len(SECRET) // 2 else MARK
        assert shown in {f"{before}{SECRET[cut:more]}{MARK} there" for more in range(4)}

    @pytest.mark.parametrize("between", [Thought("hm", "m2"), Content(v1.ImageContent("", "image/png"))])
    @pytest.mark.parametrize("cut", CUTS)
    def test_a_message_that_a_thought_or_an_image_interrupts(self, veil, cut, between):
        sent: list[Any] = []
        for event in (Text(SECRET[:cut], "m1"), between, Text(f"{SECRET[cut:]} there", "m3")):
            veil.pass_on(event, sent.append)
        veil.end_message()

        self.check("".join(event.text for event in sent if type(event) is Text), cut)

    @pytest.mark.parametrize("cut", CUTS)
    def test_messages_and_thoughts_in_turns(self, veil, cut):
        sent: list[Any] = []
        for piece in (SECRET[:cut], SECRET[cut:], " there"):
            veil.pass_on(Text(piece, f"m{piece}"), sent.append)
            veil.pass_on(Thought(piece, f"t{piece}"), sent.append)
        veil.end_message()

        for kind in (Text, Thought):
            self.check("".join(event.text for event in sent if type(event) is kind), cut)

    @pytest.mark.parametrize("cut", CUTS)
    def test_a_message_that_ends_in_the_middle(self, veil, cut):
        sent: list[Any] = []
        veil.pass_on(Text(SECRET[:cut], "m1"), sent.append)
        veil.end_message()
        veil.pass_on(Text(f"{SECRET[cut:]} there", "m2"), sent.append)

        self.check("".join(event.text for event in sent), cut)

    @pytest.mark.parametrize("cut", CUTS)
    def test_a_tools_output_with_a_diff_in_it(self, veil, cut):
        diff = ToolOutput("call", v1.Diff("/x", "new"))
        pieces = [
            *output(veil, SECRET[:cut]),
            *veil.covered_output(diff),
            *output(veil, f"{SECRET[cut:]} there"),
            *veil.end_output("call"),
        ]
        assert diff in pieces
        self.check("".join(piece.text or "" for piece in pieces), cut)


class TestWhatIsHeldBack:
    HELD = SECRET[:8]

    @pytest.mark.parametrize(
        "next_event",
        [Text("next", "m2"), Thought("next", "m"), Content(v1.ImageContent("", "image/png"), "agent", "m")],
    )
    def test_comes_before_the_next_message_or_block(self, veil, next_event):
        sent: list[Any] = []
        veil.pass_on(Text(self.HELD, "m"), sent.append)
        assert sent == []
        veil.pass_on(next_event, sent.append)

        assert sent == [Text(self.HELD, "m"), next_event]

    def test_comes_when_the_message_ends_and_only_once(self, veil):
        sent: list[Any] = []
        veil.pass_on(Text(self.HELD, "m"), sent.append)
        veil.end_message()
        veil.end_message()

        assert sent == [Text(self.HELD, "m")]

    def test_is_sent_in_the_way_in_which_it_was_said(self, veil):
        kept: list[Any] = []
        veil.pass_on(Text(self.HELD, "m"), kept.append)
        veil.pass_on(Text("next", "m2"), [].append)

        assert kept == [Text(self.HELD, "m")]

    def test_comes_before_what_stands_apart_in_a_tools_output(self, veil):
        assert output(veil, self.HELD) == ()
        apart = ToolOutput("call", v1.Content(v1.TextContent(f"failed: {SECRET}")), apart=True)

        first, second = veil.covered_output(apart)

        assert (first.text, first.apart) == (self.HELD, False)
        assert second == ToolOutput("call", v1.Content(v1.TextContent(f"failed: {MARK}")), apart=True)

    def test_of_one_call_is_not_mixed_with_another(self, veil):
        assert output(veil, SECRET[:8], "one") == ()
        assert output(veil, SECRET[8:], "two")[0].text == SECRET[8:]
        assert veil.end_output("one")[0].text == SECRET[:8]

    def test_is_masked_if_it_turns_out_to_be_a_secret_that_was_learned_meanwhile(self, veil):
        sent: list[Any] = []
        veil.pass_on(Text(self.HELD, "m"), sent.append)
        veil.add({"SHORT": SECRET[:12]})
        veil.pass_on(Text(SECRET[8:12], "m"), sent.append)
        veil.end_message()

        assert [event.text for event in sent] == ["[secret:SHORT]"]


class TestWhatIsSecret:
    @pytest.fixture(autouse=True)
    def own_process(self, monkeypatch):
        """As if nothing had been learned in this process."""
        for name in ("_seen", "_of_environment", "_of_process"):
            monkeypatch.setattr(known_secrets, name, None)
        monkeypatch.setattr(known_secrets, "_learned", {})
        monkeypatch.setattr(known_secrets, "_at_start", {})
        for name in [*os.environ]:
            if name != "PATH":
                monkeypatch.delenv(name)

    def test_without_any_there_is_no_masker(self):
        assert SessionRedactor().masker is None

    def test_the_environment_holds_some(self, monkeypatch):
        monkeypatch.setenv("A_TOKEN", SECRET)
        assert SessionRedactor().mask(SECRET) == "[secret:A_TOKEN]"

    @table("cut", range(1, len(SECRET)))
    @table("kind", [Text, Thought])
    def test_of_the_first_one_that_is_learned_when_it_has_begun_the_rest_is_hidden(self, kind, cut):
        veil = SessionRedactor()
        sent: list[Any] = []
        for character in f"see {SECRET[:cut]}":
            veil.pass_on(kind(character, "m"), sent.append)
        veil.add({"TOKEN": SECRET})
        for character in f"{SECRET[cut:]} there":
            veil.pass_on(kind(character, "m"), sent.append)

        said = "".join(event.text for event in sent)
        assert said in {f"see {SECRET[: max(cut, more)]}{MARK} there" for more in range(4)}

    @table("cut", range(1, len(SECRET)))
    def test_so_it_is_in_a_tools_output(self, cut):
        veil = SessionRedactor()
        pieces = [*output(veil, f"see {SECRET[:cut]}")]
        veil.add({"TOKEN": SECRET})
        pieces += [*output(veil, f"{SECRET[cut:]} there"), *veil.end_output("call")]

        assert "".join(piece.text or "" for piece in pieces) == f"see {SECRET[:cut]}{MARK} there"

    def test_what_was_said_before_the_first_one_is_not_said_twice(self):
        veil = SessionRedactor()
        sent: list[Any] = []
        veil.pass_on(Text(f"see {SECRET[:8]}", "m"), sent.append)
        output(veil, SECRET[:8], "over")
        assert veil.end_output("over") == ()
        veil.add({"TOKEN": SECRET})
        veil.pass_on(Text(" or not", "m"), sent.append)
        veil.end_message()

        assert [event.text for event in sent] == [f"see {SECRET[:8]}", " or not"]

    def test_a_variable_that_is_set_late_counts_from_the_next_turn_on(self, monkeypatch):
        veil = SessionRedactor()
        monkeypatch.setenv("A_TOKEN", SECRET)
        veil.look_again()
        assert veil.mask(SECRET) == "[secret:A_TOKEN]"

    def test_a_variable_that_was_removed_still_counts(self, monkeypatch):
        monkeypatch.setenv("A_TOKEN", SECRET)
        veil = SessionRedactor()
        monkeypatch.delenv("A_TOKEN")
        veil.look_again()
        assert veil.mask(SECRET) == SessionRedactor().mask(SECRET) == "[secret:A_TOKEN]"

    def test_a_variable_that_the_target_removes_while_it_is_imported_counts(self, monkeypatch):
        monkeypatch.setattr(known_secrets, "_at_start", {"A_TOKEN": SECRET})
        assert SessionRedactor().mask(SECRET) == "[secret:A_TOKEN]"

    def test_names_count_whatever_they_say_now_and_later(self):
        veil = SessionRedactor()
        env = SessionEnvironment({"CODE": SECRET}, veil.notice)
        veil.add_names(["CODE", "LATER"], env)
        env["LATER"] = "abcd"
        assert veil.mask(f"{SECRET} abcd") == "[secret:CODE] [secret:LATER]"

    @table(
        "change",
        [
            lambda env: env.__setitem__("A_TOKEN", SECRET),
            lambda env: env.update({"A_TOKEN": SECRET}),
            lambda env: env.update([("A_TOKEN", SECRET)]),
            lambda env: env.update(A_TOKEN=SECRET),
            lambda env: env.setdefault("A_TOKEN", SECRET),
            lambda env: env.__ior__({"A_TOKEN": SECRET}),
        ],
    )
    def test_what_is_put_into_a_sessions_environment_counts(self, change):
        veil = SessionRedactor()
        env = SessionEnvironment({"PATH": "/bin"}, veil.notice)
        change(env)
        assert env == {"PATH": "/bin", "A_TOKEN": SECRET}
        assert veil.mask(SECRET) == "[secret:A_TOKEN]"

    @pytest.mark.parametrize(
        "server",
        [
            v1.McpServerStdio("s", "s", (), (v1.EnvVariable("A_TOKEN", SECRET),)),
            v1.McpServerHttp("s", "https://s", (v1.HttpHeader("A-Token", SECRET),)),
            v1.McpServerSse("s", "https://s", (v1.HttpHeader("Authorization", f"Bearer {SECRET}"),)),
        ],
    )
    def test_what_an_mcp_server_logs_in_with_counts(self, server):
        assert SECRET not in SessionRedactor((server,)).mask(f"with {SECRET}!")

    def test_what_one_session_learned_is_not_masked_in_another_but_in_logs(self):
        veil, other = SessionRedactor(), SessionRedactor()
        veil.add({"TOKEN": SECRET})
        assert other.mask(SECRET) == SECRET
        assert known_secrets.process_masker().mask(SECRET) == MARK


def output(veil: SessionRedactor, text: str, id: str = "call") -> tuple[ToolOutput, ...]:
    return veil.covered_output(ToolOutput(id, v1.Content(v1.TextContent(text))))


@pytest.mark.parametrize("size", range(1, len(SECRET)))
def test_a_text_that_is_cut_is_masked_before(veil, size):
    text = "x" * (LONGEST_MESSAGE - size) + SECRET + "y" * 99
    assert SECRET[:4] not in describe(ValueError(text))
    assert SECRET[:4] not in json_value("x" * (MAX_TEXT - size) + SECRET)
