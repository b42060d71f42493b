"""What is typed: commands, their completion, files that are mentioned, answers to forms, and the history."""

import base64
import os
import stat

import pytest
from msgspec import UNSET, structs

from coupler.cli.chat.dialogs import (
    field_hint,
    field_menu,
    field_question,
    field_value,
    menu_value,
    permission_menu,
)
from coupler.cli.chat.input_line import (
    LARGEST_TEXT,
    CompletionContext,
    OwnCommandCall,
    PromptLine,
    UnknownCommand,
    UserCommandLine,
    attach_files,
    commands_listing,
    efforts_listing,
    models_listing,
    modes_listing,
    newest_first,
    options_listing,
    parse_line,
    sessions_listing,
    sessions_menu,
    suggestions,
    unknown_command_part,
)
from coupler.cli.chat.line_editor import MOST_ENTRIES, InputHistory
from coupler.cli.chat.menu import Menu, MenuState
from coupler.cli.chat.transcript import Listing, ListingItem, Remark
from coupler.client.elicitation import fields_of
from coupler.client.session import RemoteSettings
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
from tables import table

ALL = PromptCapabilities(image=True, embedded_context=True)
NONE = PromptCapabilities()


@table(
    ("line", "meant"),
    [
        ("hello", PromptLine("hello")),
        ("  /mode  auto ", OwnCommandCall("mode", "auto")),
        ("/quit", OwnCommandCall("quit")),
        ("/plan the\nrest", PromptLine("/plan the\nrest")),
        ("//mode auto", PromptLine("/mode auto")),
        ("/etc/hosts has what in it?", PromptLine("/etc/hosts has what in it?")),
        ("/Users is wrong", PromptLine("/Users is wrong")),
        ("/1", PromptLine("/1")),
        ("/clear", OwnCommandCall("clear")),
        ("//clear", PromptLine("/clear")),
        ("1 / 2", PromptLine("1 / 2")),
        ("", PromptLine("")),
    ],
)
def test_a_line_is_for_chat_or_for_the_agent(line, meant):
    assert parse_line(line, ["plan"]) == meant


@pytest.mark.parametrize(("line", "near"), [("/qiut", "/quit"), ("/plam x", "/plan")])
def test_a_command_that_nobody_knows_is_not_sent_and_the_nearest_is_named(line, near):
    mistake = parse_line(line, ["plan"])
    assert isinstance(mistake, UnknownCommand)
    said = unknown_command_part(mistake, ())
    assert isinstance(said, Remark)
    assert f"did you mean {near}?" in said.title
    assert f"/{line.split()[0]} is sent" in said.title


def test_a_command_that_is_like_no_other_is_answered_with_all_of_them():
    mistake = parse_line("/xyzzy now", ["plan"])
    listed = unknown_command_part(mistake, (AvailableCommand("plan", "Plan it"),))
    assert isinstance(listed, Listing)
    assert {"/plan", "/quit"} <= {choice.word for choice in listed.choices}
    assert listed.hint.startswith("//xyzzy is sent")


def test_a_menu_of_sessions_preselects_the_latest_that_is_not_open():
    found = [
        SessionInfo("s2", "/", title="T\x1b[1m" + "t" * 60, updated_at="2031-02-03T04:05:06Z"),
        SessionInfo("s1", "/"),
    ]
    assert sessions_menu(found, "s2") == Menu((f"T{'t' * 48}…  2031-02-03 04:05", "(no title)"), 1)
    assert sessions_menu(found, "s3").preselected == 0


@table(
    ("line", "meant"),
    [
        ("!git status", UserCommandLine("git status")),
        (" ! git status ", UserCommandLine("git status")),
        ("!! env", UserCommandLine("env", is_shared=False)),
        ("!", UserCommandLine("")),
        ("!cat <<x\ny\nx", UserCommandLine("cat <<x\ny\nx")),
        ("![image](x.png)", PromptLine("![image](x.png)")),
        ("Oh! ls", PromptLine("Oh! ls")),
    ],
)
def test_a_line_with_a_mark_is_for_the_shell_where_there_is_one(line, meant):
    assert parse_line(line, []) == meant
    assert parse_line(line, [], has_shell=False) == PromptLine(line.strip())


def settings():
    made = RemoteSettings()
    made.modes = (SessionMode("ask", "Ask"), SessionMode("auto", "Auto", "By itself"))
    made.mode = "ask"
    small, large = SessionConfigSelectOption("small", "S"), SessionConfigSelectOption("large", "L")
    low, high = SessionConfigSelectOption("low", "Low"), SessionConfigSelectOption("high", "High")
    made.options = (
        SessionConfigSelect("model", "Model", "small", (small, large), category="model"),
        SessionConfigBoolean("loud", "Loud", True),
        SessionConfigSelect("depth", "Depth", "low", (low, high), category="thought_level"),
    )
    return made


def completed(before, cwd=".", ids=()):
    theirs = (
        AvailableCommand("plan", "Plan \x1b[31mit", UnstructuredCommandInput("what")),
        AvailableCommand("model", "Theirs"),
    )
    return [*suggestions(before, CompletionContext(settings(), theirs, ids, str(cwd)))]


def words(before, **scene):
    return [suggestion.text for suggestion in completed(before, **scene)]


def test_commands_are_completed_the_agents_first():
    assert words("/")[:2] == ["/plan", "//model"]
    assert words("/pl") == ["/plan"]
    assert words("/mo") == ["/mode", "/model"]
    assert words("hello /pl") == []


def test_a_command_is_explained_without_what_a_terminal_obeys():
    assert [(it.text, it.replaces, it.meaning) for it in completed("/pl")] == [("/plan", 3, "Plan it [what]")]


@table(
    ("before", "after"),
    [
        ("/mode a", ["ask", "auto"]),
        ("/model l", ["large"]),
        ("/option ", ["model", "loud", "depth"]),
        ("/option model s", ["small"]),
        ("/option loud o", ["on", "off"]),
        ("/option nothing ", []),
        ("/load s", ["s1"]),
        ("/effort h", ["high"]),
        ("/thinking o", ["on", "off"]),
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

    blocks, told = attach_files("Fix @app.py, please", str(tmp_path), ALL)
    assert blocks[0] == TextContent("Fix @app.py, please")
    assert isinstance(blocks[1], EmbeddedResource)
    assert (blocks[1].resource.text, blocks[1].resource.uri) == ("print('hé')", file.as_uri())
    assert told == ["app.py is attached (12 bytes)."]

    blocks, told = attach_files("Fix @app.py", str(tmp_path), NONE)
    assert isinstance(blocks[1], ResourceLink)
    assert (blocks[1].name, blocks[1].uri, blocks[1].size) == ("app.py", file.as_uri(), 12)
    assert told == ["app.py is attached as a link."]


def test_an_image_goes_along_where_images_are_accepted(tmp_path):
    (tmp_path / "a shot.png").write_bytes(b"\x89PNG")

    blocks, _ = attach_files('See @"a shot.png"', str(tmp_path), ALL)
    assert isinstance(blocks[1], ImageContent)
    assert (base64.b64decode(blocks[1].data), blocks[1].mime_type) == (b"\x89PNG", "image/png")
    assert isinstance(attach_files('See @"a shot.png"', str(tmp_path), NONE)[0][1], ResourceLink)


def test_what_is_large_no_text_or_a_directory_is_linked(tmp_path):
    (tmp_path / "large.txt").write_text("x" * (LARGEST_TEXT + 1))
    (tmp_path / "binary.dat").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "src").mkdir()

    blocks, _ = attach_files("@large.txt @binary.dat @src/ @src", str(tmp_path), ALL)
    assert [type(block) for block in blocks[1:]] == [ResourceLink] * 3
    assert blocks[3].size is UNSET


def test_what_is_no_file_stays_text(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    text = "@nobody @fifo someone@example.com @ @\x00"
    assert attach_files(text, str(tmp_path), ALL) == ([TextContent(text)], [])


def test_the_history_of_a_directory_is_kept_for_this_user_alone(tmp_path, coupler_home):
    here = tmp_path / "here"
    InputHistory.of(str(here)).add("first\nof two lines")
    InputHistory.of(str(here)).add("second")
    InputHistory.of(str(here)).add("  ")
    InputHistory.of(str(here)).add(" not kept")
    InputHistory.of(str(tmp_path)).add("elsewhere")

    assert InputHistory.of(str(here)).entries() == ["first\nof two lines", "second"]
    files = [*(coupler_home / "chat").iterdir()]
    assert len(files) == 2
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE((coupler_home / "chat").stat().st_mode) == 0o700


def test_a_history_that_is_broken_or_long_costs_nothing(tmp_path):
    file = tmp_path / "history.jsonl"
    file.write_text('{"no": "text"}\nnot json\n"fine"\n')
    assert InputHistory(file).entries() == ["fine"]
    file.write_text('"x"\n' * (MOST_ENTRIES + 10))
    assert len(InputHistory(file).entries()) == MOST_ENTRIES
    assert InputHistory(tmp_path / "none").entries() == []


def test_a_user_without_a_home_has_no_history(monkeypatch):
    monkeypatch.setattr("coupler.cli.chat.line_editor.data_directory", no_home)
    history = InputHistory.of("/")
    history.add("typed")
    assert history.entries() == []


def no_home():
    raise NoHomeError


def test_a_history_that_grew_too_large_is_cut(tmp_path):
    history = InputHistory(tmp_path / "history.jsonl")
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


@table(
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
    assert field_value(FIELDS[field], typed) == value


@table(
    ("field", "typed", "sentence"),
    [
        ("tone", "3", "choose from 1-2"),
        ("tone", "", "this one is required"),
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
        field_value(FIELDS[field], typed)


def test_a_field_tells_what_to_type():
    assert field_question(FIELDS["tone"]) == Listing(
        "Tone", (ListingItem("1", "Plain"), ListingItem("2", "Warm: friendly"))
    )
    assert field_question(FIELDS["mail"]) == Listing("mail (optional)", (), "Where to write")
    assert [field_hint(FIELDS[name]) for name in ("tone", "age", "share", "sure")] == [
        "1-2",
        "a whole number",
        "a number [0.5]",
        "y/n [y]",
    ]
    assert field_hint(FIELDS["days"]) == "numbers of 1-3, with commas between"


def test_a_permission_menu_says_what_each_option_does_and_preselects_none_for_always():
    offered = [
        PermissionOption("a", "Reject", "allow_always"),
        PermissionOption("b", "No", "reject_once"),
        PermissionOption("c", "Allow once", "allow_once"),
    ]
    labels = ("Allow always: Reject", "Reject once: No", "Allow once")
    assert permission_menu(offered) == Menu(labels, 2, has_details=True)
    assert permission_menu(offered[:2]).preselected == 1
    assert permission_menu(offered[:1]).preselected is None


def chosen(menu, keys):
    """What Enter chooses after these keys."""
    state = MenuState(menu)
    for key in keys:
        match key:
            case "<" | ">":
                state.move(1 if key == ">" else -1)
            case " ":
                state.toggle()
            case _:
                state.type(key)
    return state.chosen


@table(
    ("menu", "keys", "choice"),
    [
        (Menu(("a", "b", "c"), 1), "", (1,)),
        (Menu(("a", "b", "c"), 1), ">", (2,)),
        (Menu(("a", "b", "c"), 1), ">>", (0,)),
        (Menu(("a", "b", "c"), 1), "3", (2,)),
        (Menu(("a", "b", "c"), 1), "0", (1,)),
        (Menu(("a", "b", "c"), 1), "²", (1,)),
        (Menu(("a", "b", "c")), "", None),
        (Menu(("a", "b", "c")), "<", (2,)),
        (Menu(("a", "b", "c")), ">", (0,)),
        (Menu(("warm", "wet", "cold"), 0), "we", (1,)),
        (Menu(("warm", "wet", "cold"), 0), "wec", (2,)),
        (Menu(("always", "never"), 1, has_details=True), "a", (1,)),
        (Menu(tuple("abcdefghijkl"), 0), "12", (11,)),
        (Menu(tuple("abcdefghijkl"), 0), "19", (8,)),
        (Menu(("a", "b", "c"), 0, ()), "", ()),
        (Menu(("a", "b", "c"), 0, (2,)), " 2 ", (0, 1, 2)),
        (Menu(("a", "b", "c"), 0, (2,)), "3 ", ()),
    ],
)
def test_enter_chooses_what_arrows_numbers_and_beginnings_have_moved_to(menu, keys, choice):
    assert chosen(menu, keys) == choice


def test_choices_of_forms_are_menus_with_their_defaults():
    assert field_menu(FIELDS["tone"]) == Menu(("Plain", "Warm: friendly"), 0)
    assert field_menu(FIELDS["sure"]) == Menu(("Yes", "No"), 0)
    assert field_menu(FIELDS["days"]) == Menu(("mon", "tue", "wed"), 0, ())
    assert field_menu(FIELDS["age"]) is None
    optional = structs.replace(FIELDS["tone"], required=False)
    assert field_menu(optional) == Menu(("Plain", "Warm: friendly", "Leave it out"), 2)
    assert field_menu(structs.replace(optional, default="w")) == Menu(("Plain", "Warm: friendly"), 1)


@table(
    ("field", "choice", "value"),
    [
        ("tone", (1,), "w"),
        ("tone", (2,), None),
        ("sure", (0,), True),
        ("sure", (1,), False),
        ("sure", (2,), None),
        ("days", (0, 2), ["mon", "wed"]),
        ("days", (), None),
    ],
)
def test_what_is_chosen_in_a_menu_is_what_its_field_wants(field, choice, value):
    assert menu_value(FIELDS[field], choice) == value


def test_too_much_that_is_chosen_says_what_would_fit():
    with pytest.raises(ValueError, match="expected at most 2"):
        menu_value(FIELDS["days"], (0, 1, 2))


def test_listings_mark_what_holds_now():
    assert modes_listing(settings()).choices == (
        ListingItem("ask", "Ask", True),
        ListingItem("auto", "Auto: By itself"),
    )
    assert models_listing(settings()).choices == (ListingItem("small", "", True), ListingItem("large"))
    assert [choice.meaning for choice in options_listing(settings()).choices] == [
        "small (of small, large)",
        "on (of on, off)",
        "low (of low, high)",
    ]
    assert efforts_listing(settings()).choices == (ListingItem("low", "", True), ListingItem("high"))


def test_an_agent_that_offers_nothing_is_said_to():
    assert modes_listing(RemoteSettings()) == Listing("The agent offers no modes.", ())
    assert models_listing(RemoteSettings()) == Listing("The agent offers no models.", ())
    assert efforts_listing(RemoteSettings()) == Listing("The agent offers no levels of effort.", ())
    assert options_listing(RemoteSettings()) == Listing("The agent offers no options.", ())


def test_sessions_are_listed_by_number_the_latest_first():
    old, new = (
        SessionInfo("s1", "/", updated_at="2030-01-01"),
        SessionInfo("s2", "/", title="T\x1b[1m", updated_at="2031"),
    )
    assert newest_first([SessionInfo("s0", "/"), old, new])[:2] == [new, old]
    assert sessions_listing([new, old], "s1").choices == (
        ListingItem("1", "T  s2  2031"),
        ListingItem("2", "(no title)  s1  2030-01-01", True),
    )


def test_the_help_lists_the_agents_commands_and_our_own():
    listed = [choice.word for choice in commands_listing((AvailableCommand("plan", "Plan it"),)).choices]
    assert listed[0] == "/plan"
    assert {"/mode [MODE]", "/show [N|plan]", "/quit", "Ctrl-C"} <= {*listed}
