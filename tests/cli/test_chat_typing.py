"""What is typed: commands, their completion, files that are mentioned, answers to forms, and the history."""

import base64
import os
import stat

import pytest
from msgspec import UNSET

from coupler.cli.chat.dialogs import answer, chosen, hint, question
from coupler.cli.chat.input_line import (
    LARGEST_TEXT,
    Message,
    Mistake,
    Order,
    Scene,
    attached,
    commands,
    models,
    modes,
    newest_first,
    options,
    sessions,
    suggestions,
    understood,
)
from coupler.cli.chat.line_editor import MOST_ENTRIES, History
from coupler.cli.chat.rendering import Choice, Listing
from coupler.client.elicitation import fields_of
from coupler.client.session import Settings
from coupler.runtime.directories import NoHomeError
from coupler.schema.decoding import decode
from coupler.schema.v1 import (
    AvailableCommand,
    ElicitationSchema,
    EmbeddedResource,
    ImageContent,
    PermissionOption,
    PromptCapabilities,
    ResourceLink,
    SessionConfigBoolean,
    SessionConfigSelect,
    SessionConfigSelectOption,
    SessionInfo,
    SessionMode,
    TextContent,
    UnstructuredCommandInput,
)

ALL = PromptCapabilities(image=True, embedded_context=True)
NONE = PromptCapabilities()


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("hello", Message("hello")),
        ("  /mode  auto ", Order("mode", "auto")),
        ("/quit", Order("quit")),
        ("/plan the\nrest", Message("/plan the\nrest")),
        ("//mode auto", Message("/mode auto")),
        ("/etc/hosts has what in it?", Message("/etc/hosts has what in it?")),
        ("1 / 2", Message("1 / 2")),
        ("", Message("")),
    ],
)
def test_a_line_is_for_chat_or_for_the_agent(line, meant):
    assert understood(line, ["plan"]) == meant


@pytest.mark.parametrize(("line", "near"), [("/qiut", "/quit"), ("/plam x", "/plan"), ("/xyzzy", "/help")])
def test_a_command_that_nobody_knows_is_not_sent(line, near):
    mistake = understood(line, ["plan"])
    assert isinstance(mistake, Mistake)
    assert near in mistake.sentence
    assert f"/{line.split()[0]} is sent" in mistake.sentence


def settings():
    made = Settings()
    made.modes = (SessionMode("ask", "Ask"), SessionMode("auto", "Auto", "By itself"))
    made.mode = "ask"
    small, large = SessionConfigSelectOption("small", "S"), SessionConfigSelectOption("large", "L")
    made.options = (
        SessionConfigSelect("model", "Model", "small", (small, large), category="model"),
        SessionConfigBoolean("loud", "Loud", True),
    )
    return made


def completed(before, cwd=".", ids=()):
    theirs = (
        AvailableCommand("plan", "Plan \x1b[31mit", UnstructuredCommandInput("what")),
        AvailableCommand("model", "Theirs"),
    )
    return [*suggestions(before, Scene(settings(), theirs, ids, str(cwd)))]


def words(before, **scene):
    return [suggestion.text for suggestion in completed(before, **scene)]


def test_commands_are_completed_the_agents_first():
    assert words("/")[:2] == ["/plan", "//model"]
    assert words("/pl") == ["/plan"]
    assert words("/mo") == ["/mode", "/model"]
    assert words("hello /pl") == []


def test_a_command_is_explained_without_what_a_terminal_obeys():
    assert [(it.text, it.replaces, it.meaning) for it in completed("/pl")] == [("/plan", 3, "Plan it [what]")]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("/mode a", ["ask", "auto"]),
        ("/model l", ["large"]),
        ("/option ", ["model", "loud"]),
        ("/option model s", ["small"]),
        ("/option loud o", ["on", "off"]),
        ("/option nothing ", []),
        ("/load s", ["s1"]),
    ],
)
def test_what_a_command_takes_is_completed(before, after):
    assert words(before, ids=["s1"]) == after


def test_mentioned_files_are_completed(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "app.py").touch()
    (tmp_path / "setup.py").touch()
    (tmp_path / ".hidden").touch()
    (tmp_path / "s\x1b[31mly").touch()

    assert words("look at @s", cwd=tmp_path) == ["setup.py", "src/"]
    assert words("@src/a", cwd=tmp_path) == ["src/app.py"]
    assert words("@.h", cwd=tmp_path) == [".hidden"]
    assert words(f"@{tmp_path}/se", cwd="/") == [f"{tmp_path}/setup.py"]
    assert words("@nowhere/x", cwd=tmp_path) == []
    assert words("someone@s", cwd=tmp_path) == []


def test_a_mentioned_file_goes_along_as_the_agent_accepts_it(tmp_path):
    file = tmp_path / "app.py"
    file.write_text("print('hé')")

    blocks, told = attached("Fix @app.py, please", str(tmp_path), ALL)
    assert blocks[0] == TextContent("Fix @app.py, please")
    assert isinstance(blocks[1], EmbeddedResource)
    assert (blocks[1].resource.text, blocks[1].resource.uri) == ("print('hé')", file.as_uri())
    assert told == ["app.py goes along (12 bytes)."]

    blocks, told = attached("Fix @app.py", str(tmp_path), NONE)
    assert isinstance(blocks[1], ResourceLink)
    assert (blocks[1].name, blocks[1].uri, blocks[1].size) == ("app.py", file.as_uri(), 12)
    assert told == ["app.py goes along as a link."]


def test_an_image_goes_along_where_images_are_accepted(tmp_path):
    (tmp_path / "a shot.png").write_bytes(b"\x89PNG")

    blocks, _ = attached('See @"a shot.png"', str(tmp_path), ALL)
    assert isinstance(blocks[1], ImageContent)
    assert (base64.b64decode(blocks[1].data), blocks[1].mime_type) == (b"\x89PNG", "image/png")
    assert isinstance(attached('See @"a shot.png"', str(tmp_path), NONE)[0][1], ResourceLink)


def test_what_is_large_no_text_or_a_directory_is_linked(tmp_path):
    (tmp_path / "large.txt").write_text("x" * (LARGEST_TEXT + 1))
    (tmp_path / "binary.dat").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "src").mkdir()

    blocks, _ = attached("@large.txt @binary.dat @src/ @src", str(tmp_path), ALL)
    assert [type(block) for block in blocks[1:]] == [ResourceLink] * 3
    assert blocks[3].size is UNSET


def test_what_is_no_file_stays_text(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    text = "@nobody @fifo someone@example.com @ @\x00"
    assert attached(text, str(tmp_path), ALL) == ([TextContent(text)], [])


def test_the_history_of_a_directory_is_kept_for_this_user_alone(tmp_path, coupler_home):
    here = tmp_path / "here"
    History.of(str(here)).add("first\nof two lines")
    History.of(str(here)).add("second")
    History.of(str(here)).add("  ")
    History.of(str(here)).add(" not kept")
    History.of(str(tmp_path)).add("elsewhere")

    assert History.of(str(here)).entries() == ["first\nof two lines", "second"]
    files = [*(coupler_home / "chat").iterdir()]
    assert len(files) == 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE((coupler_home / "chat").stat().st_mode) == 0o700


def test_a_history_that_is_broken_or_long_costs_nothing(tmp_path):
    file = tmp_path / "history.jsonl"
    file.write_text('{"no": "text"}\nnot json\n"fine"\n')
    assert History(file).entries() == ["fine"]
    file.write_text('"x"\n' * (MOST_ENTRIES + 10))
    assert len(History(file).entries()) == MOST_ENTRIES
    assert History(tmp_path / "none").entries() == []


def test_a_user_without_a_home_has_no_history(monkeypatch):
    monkeypatch.setattr("coupler.cli.chat.line_editor.data_directory", no_home)
    history = History.of("/")
    history.add("typed")
    assert history.entries() == []


def no_home():
    raise NoHomeError


def test_a_history_that_grew_too_large_is_cut(tmp_path):
    history = History(tmp_path / "history.jsonl")
    for number in range(6):
        history.add(f"{number}" * 1_000_000)
    assert (tmp_path / "history.jsonl").stat().st_size < 7_000_000
    assert history.entries()[-1] == "5" * 1_000_000


FORM = b"""{"type": "object", "required": ["tone", "age"], "properties": {
    "tone": {"type": "string", "title": "Tone", "oneOf": [
        {"const": "p", "title": "Plain"}, {"const": "w", "title": "Warm", "description": "friendly"}]},
    "age": {"type": "integer", "minimum": 18},
    "share": {"type": "number", "default": 0.5},
    "sure": {"type": "boolean", "default": true},
    "days": {"type": "array", "items": {"type": "string", "enum": ["mon", "tue", "wed"]}, "maxItems": 2},
    "mail": {"type": "string", "format": "email", "description": "Where to \\u001b[31mwrite"}}}"""
FIELDS = {field.name: field for field in fields_of(decode(ElicitationSchema, FORM, "client"))}


@pytest.mark.parametrize(
    ("field", "typed", "value"),
    [
        ("tone", "2", "w"),
        ("tone", "Plain", "p"),
        ("tone", "p", "p"),
        ("age", " 20 ", 20),
        ("share", "", 0.5),
        ("share", "2", 2.0),
        ("sure", "", True),
        ("sure", "no", False),
        ("days", "1, 3", ["mon", "wed"]),
        ("days", "", None),
        ("mail", "a@b.org", "a@b.org"),
    ],
)
def test_an_answer_is_what_its_field_wants(field, typed, value):
    assert answer(FIELDS[field], typed) == value


@pytest.mark.parametrize(
    ("field", "typed", "sentence"),
    [
        ("tone", "3", "choose from 1-2"),
        ("tone", "", "this one is needed"),
        ("age", "young", "that is no whole number"),
        ("age", "17", "expected at least 18"),
        ("share", "nan", "expected a number"),
        ("sure", "maybe", "answer y or n"),
        ("days", "1,2,3", "expected at most 2"),
        ("mail", "nowhere", "expected an email address"),
    ],
)
def test_an_answer_that_does_not_fit_says_what_would(field, typed, sentence):
    with pytest.raises(ValueError, match=sentence):
        answer(FIELDS[field], typed)


def test_a_field_tells_what_to_type():
    assert question(FIELDS["tone"]) == Listing("Tone", (Choice("1", "Plain"), Choice("2", "Warm: friendly")))
    assert question(FIELDS["mail"]) == Listing("mail (may be left out)", (), "Where to write")
    assert [hint(FIELDS[name]) for name in ("tone", "age", "share", "sure")] == [
        "1-2",
        "a whole number",
        "a number [0.5]",
        "y/n [y]",
    ]
    assert hint(FIELDS["days"]) == "numbers of 1-3, with commas between"


@pytest.mark.parametrize(
    ("typed", "id"),
    [("1", "a"), (" 2 ", "b"), ("0", None), ("3", None), ("", None), ("²", None), ("-1", None)],
)
def test_an_option_is_chosen_by_its_number_and_nothing_else(typed, id):
    offered = (PermissionOption("a", "2", "allow_once"), PermissionOption("b", "1", "reject_once"))
    option = chosen(typed, offered)
    assert (None if option is None else option.option_id) == id


def test_listings_mark_what_holds_now():
    assert modes(settings()).choices == (Choice("ask", "Ask", True), Choice("auto", "Auto: By itself"))
    assert models(settings()).choices == (Choice("small", "", True), Choice("large"))
    assert [choice.meaning for choice in options(settings()).choices] == [
        "small (of small, large)",
        "on (of on, off)",
    ]


def test_an_agent_that_offers_nothing_is_said_to():
    assert modes(Settings()) == Listing("The agent offers no modes.", ())
    assert models(Settings()) == Listing("The agent offers no models.", ())
    assert options(Settings()) == Listing("The agent offers no options.", ())


def test_sessions_are_listed_by_number_the_latest_first():
    old, new = (
        SessionInfo("s1", "/", updated_at="2030-01-01"),
        SessionInfo("s2", "/", title="T\x1b[1m", updated_at="2031"),
    )
    assert newest_first([SessionInfo("s0", "/"), old, new])[:2] == [new, old]
    assert sessions([new, old], "s1").choices == (
        Choice("1", "T  s2  2031"),
        Choice("2", "(no title)  s1  2030-01-01", True),
    )


def test_the_help_lists_the_agents_commands_and_our_own():
    listed = [choice.word for choice in commands((AvailableCommand("plan", "Plan it"),)).choices]
    assert listed[0] == "/plan"
    assert {"/mode [MODE]", "/show [N|plan]", "/quit", "Ctrl-C"} <= {*listed}
