"""How the parts of a conversation look, and that nothing in them is obeyed by a terminal."""

import io
import re

from hypothesis import given
from hypothesis import strategies as some

from coupler.cli.chat.plain import plain_full_text, plain_text
from coupler.cli.chat.rendering import (
    TailView,
    TrimmedLines,
    render_expanded,
    render_part,
    render_parts,
    render_tail,
)
from coupler.cli.chat.transcript import (
    AgentMarkdown,
    AgentText,
    ContentNote,
    Listing,
    ListingItem,
    PermissionPart,
    PlanPart,
    Remark,
    Tail,
    ThoughtPart,
    ToolCallPart,
    UserText,
)
from coupler.cli.output import Output
from coupler.events import ToolCall
from coupler.runtime.terminal_text import clean
from coupler.schema.v1 import (
    Content,
    Diff,
    PlanEntry,
    TextContent,
    ToolCallLocation,
)
from tables import table

LONG = "\n".join(f"line {number}" for number in range(1, 31))
EDIT = ToolCall(
    id="c1",
    title="Edit app.py",
    kind="edit",
    status="completed",
    locations=(ToolCallLocation("/project/app.py", 3), ToolCallLocation("/project/app.py")),
    content=(Diff("/project/app.py", "a\nB\n", "a\nb\n"),),
)
RUN = ToolCall(
    id="c2",
    title="Run the tests",
    kind="execute",
    status="failed",
    content=(Content(TextContent(LONG)),),
    raw_input={"command": ["pytest", "-k", "a b"]},
)


def look(renderable, width=60, height=24, **options):
    """The lines that a terminal would show."""
    out = io.StringIO()
    console = Output(out).console(width=width, height=height, **options)
    console.print(TrimmedLines(renderable))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_a_tool_call_tells_its_state_kind_places_and_number():
    assert look(render_part(ToolCallPart(3, EDIT), "/project"))[0] == "✓ Edit app.py  edit app.py:3  #3"


def test_a_diff_is_shown_with_what_was_taken_and_added():
    assert look(render_part(ToolCallPart(3, EDIT), "/project"))[1:] == [
        "  @@ -1,2 +1,2 @@",
        "   a",
        "  -b",
        "  +B",
    ]


def test_a_diff_of_another_file_than_the_call_names_is_named():
    assert look(render_part(ToolCallPart(3, EDIT), "/elsewhere"))[1] == "  @@ -1,2 +1,2 @@"
    moved = ToolCall(id="c", content=(Diff("/project/other.py", "x", None),))
    assert look(render_part(ToolCallPart(1, moved), "/project"))[1] == "  other.py"


def test_of_long_output_the_beginning_is_shown_and_of_a_commands_the_end():
    lines = look(render_part(ToolCallPart(7, RUN)))
    assert lines[0] == "✗ Run the tests  execute  #7"
    assert lines[1:] == ["  … 25 more lines: /show 7", *(f"  line {number}" for number in range(26, 31))]
    read = ToolCall(id="c3", title="Read", kind="read", status="completed", content=RUN.content)
    lines = look(render_part(ToolCallPart(8, read)))
    assert lines[1:] == [*(f"  line {number}" for number in range(1, 6)), "  … 25 more lines: /show 8"]


def test_a_failed_call_says_how_its_command_ended_or_what_the_agent_tells_of_it():
    said = (Content(TextContent("oops")), Content(TextContent("exit code 3")))
    failed = ToolCall(id="c", title="Run", kind="execute", status="completed", content=said)
    assert look(render_part(ToolCallPart(1, failed, "exit code 3"))) == [
        "✗ Run  execute  exit code 3  #1",
        "  oops",
    ]
    told = ToolCall(id="c", title="Read", kind="read", status="failed", raw_output={"error": "no such file"})
    assert look(render_part(ToolCallPart(1, told))) == ["✗ Read  read  #1", "  no such file"]


def test_the_tail_shows_the_last_that_running_calls_put_out():
    running = ToolCall(id="c", title="Run", kind="execute", status="in_progress")
    lines = "\n".join(f"line {number}" for number in range(9))
    alone, beside = ToolCallPart(1, running, live=f"{lines}\n\n"), ToolCallPart(2, running, live="x" * 99)
    assert look(render_tail(Tail(calls=(alone,))))[1:] == [f"  line {number}" for number in range(4, 9)]
    shown = look(render_tail(Tail(calls=(alone, beside))))
    assert shown[1:3] == ["  line 7", "  line 8"]
    assert shown[4] == f"  {'x' * 57}…"


def test_in_full_a_call_shows_its_command_and_all_output():
    lines = look(render_expanded(ToolCallPart(7, RUN)))
    assert lines[1] == "  $ pytest -k 'a b'"
    assert lines[-1] == "  line 30"


@table(
    ("given", "lines"),
    [
        ({"command": "rm -r build"}, ["$ rm -r build"]),
        ({"cmd": ["rm", "a b"]}, ["$ rm 'a b'"]),
        ({"command": "rm", "args": ["-r", "a b"]}, ["$ rm -r 'a b'"]),
        ({"command": "make", "cwd": "/x"}, ["$ make", '{"cwd":"/x"}']),
        ({"command": "rm", "args": 1}, ['{"command":"rm","args":1}']),
        ({"command": 5}, ['{"command":5}']),
        ("as text", ['"as text"']),
        (None, []),
    ],
)
def test_all_that_a_tool_is_given_can_be_seen(given, lines):
    shown = look(render_part(PermissionPart(ToolCall(id="c", title="T", raw_input=given))))
    assert shown[1:] == [f"  {line}" for line in lines]


def test_input_that_is_no_command_is_shown_in_full_as_json():
    reading = ToolCall(id="c", title="Read", raw_input={"path": "/x"})
    assert look(render_expanded(ToolCallPart(1, reading)))[1] == '  {"path":"/x"}'


def test_a_thought_is_collapsed_too():
    thought = ThoughtPart(2, "one\ntwo\nthree")
    assert look(render_part(thought)) == ["∴ one", "two", "… 1 more line: /show 2"]
    assert look(render_expanded(thought)) == ["∴ one", "two", "three"]


def test_a_permission_shows_the_command():
    lines = look(render_part(PermissionPart(ToolCall(id="c", kind="execute", raw_input=RUN.raw_input))))
    assert lines == ["? The agent wants to: (no title)  execute", "  $ pytest -k 'a b'"]


def test_a_permission_shows_all_of_a_change_when_asked():
    change = ToolCall(id="c", title="Edit", content=(Diff("/x", LONG),))
    assert "… 15 more lines" in "\n".join(look(render_part(PermissionPart(change))))
    assert "  +line 30" in look(render_part(PermissionPart(change, is_whole=True)))


def test_a_plan_tells_how_far_each_entry_is():
    states = ("completed", "in_progress", "pending")
    plan = PlanPart(tuple(PlanEntry(f"step {state}", "low", state) for state in states))
    assert look(render_part(plan)) == [
        "Plan",
        "  ✓ step completed",
        "  ◐ step in_progress",
        "  ○ step pending",
    ]


def test_a_link_tells_where_it_leads():
    assert look(render_part(AgentMarkdown("[good](https://evil.example/)"))) == [
        "good (https://evil.example/)"
    ]


def test_markdown_has_no_empty_lines_around_it_and_headings_stand_left():
    assert look(render_part(AgentMarkdown("# Title\n"))) == ["Title"]
    assert look(render_part(AgentMarkdown("\n- one\n- two\n\n"))) == [" • one", " • two"]


def test_parts_have_air_between_them_but_calls_stand_together():
    parts = [
        AgentMarkdown("Hi."),
        ToolCallPart(1, ToolCall(id="a")),
        ToolCallPart(2, ToolCall(id="b")),
        ContentNote("image"),
    ]
    lines = look(render_parts(parts, UserText("x")))
    assert lines == ["", "Hi.", "", "○ (no title)  other  #1", "○ (no title)  other  #2", "", "[image]"]


def test_lines_end_with_their_text():
    out = io.StringIO()
    console = Output(out).console(width=60)
    parts = [
        AgentMarkdown("One.\n\n```\ncode\n```"),
        ToolCallPart(1, RUN),
        Remark("A", "b"),
        Listing("T", (ListingItem("a", "b"),)),
    ]
    console.print(TrimmedLines(render_parts(parts, None)))
    assert not [line for line in out.getvalue().split("\n") if line != line.rstrip()]


def test_of_very_many_plain_lines_at_once_the_first_are_shown_and_the_others_counted():
    shown = look(render_part(AgentText("*x*\n" * 5000)))
    assert shown[:1999] == ["*x*"] * 1999
    assert shown[2000:] == ["… 3,000 more lines: too many at once to show"]


def test_a_plain_line_without_an_end_is_shown_in_parts():
    shown = look(render_part(AgentText("x" * 5_000_000)), width=100)
    assert shown[:10] == ["x" * 100] * 10


def test_wide_characters_are_wrapped_by_the_columns_they_take():
    assert look(render_part(AgentMarkdown("日本語のテキスト")), width=10) == ["日本語のテ", "キスト"]


def test_a_narrow_terminal_gets_narrow_lines():
    listing = Listing("Modes", (ListingItem("careful", "asks before it changes anything at all", True),))
    for part in (
        listing,
        ToolCallPart(1, RUN),
        PermissionPart(EDIT),
        Remark("A remark", "with a detail"),
    ):
        assert all(len(line) <= 20 for line in look(render_part(part), width=20))


def test_without_colours_nothing_but_text_is_written():
    out = io.StringIO()
    console = Output(out).console(width=60, force_terminal=True, no_color=True)
    console.print(TrimmedLines(render_part(ToolCallPart(1, EDIT))))
    colours = re.findall(r"\x1b\[([0-9;]*)m", out.getvalue())
    assert not any(code in ("31", "32", "36", "1;31", "1;32") for code in colours)


def test_the_tail_is_never_higher_than_the_screen_and_shows_its_end():
    tail = Tail(answer=LONG.replace("\n", "\n\n"), calls=(ToolCallPart(1, RUN),))
    lines = look(TailView(lambda: tail, lambda: "typed", "", 0.0), height=12)
    assert len(lines) <= 12
    assert lines[-3].startswith("✗ Run the tests")
    assert "Ctrl-C cancels" in lines[-2]
    assert lines[-1] == "> typed"
    assert "line 30" in lines
    assert "line 1" not in lines


def test_the_tail_shows_the_plan_around_the_step_that_is_worked_on():
    entries = tuple(PlanEntry(f"step {n}", "low", "completed" if n < 9 else "pending") for n in range(12))
    lines = look(TailView(lambda: Tail(plan=entries), lambda: "", "", 0.0))
    assert "  ○ step 9" in lines
    assert "  ✓ step 0" not in lines


hostile = some.text(
    alphabet=some.one_of(
        some.sampled_from("\x1b\x07\x08\r\x9b\x9d\u202e\u2066[]0;3mAJ\n`*_#|>-&x"),
        some.characters(codec="utf-8"),
    ),
    max_size=40,
)
ENTITIES = "&#27;[2J &#x9b;2J &#x202e;abc &#13;over &#8;&#7;"


def parts_of(text):
    """Parts of every kind with this in every place; what comes from an agent as it is, the rest cleaned."""
    called = ToolCall(
        id=text,
        title=text,
        kind=text,
        status=text,
        name=text,
        raw_input={"command": text, text: text},
        locations=(ToolCallLocation(text, 1),),
        content=(Content(TextContent(text)), Diff(text, text, text[::-1])),
    )
    yield ToolCallPart(1, called)
    yield PermissionPart(called, is_whole=True)
    yield PlanPart((PlanEntry(text, "low", text),))
    for kind in (UserText, AgentMarkdown, AgentText, ContentNote, Remark):
        yield kind(clean(text))
    yield Listing(clean(text), (ListingItem(clean(text), clean(text)),), clean(text))


@given(hostile)
def test_nothing_that_an_agent_writes_is_obeyed_by_a_terminal(text):
    for part in parts_of(text):
        views = [render_part(part), *([render_expanded(part)] if isinstance(part, ToolCallPart) else [])]
        for view in views:
            out = io.StringIO()
            Output(out).console(width=40, color_system=None).print(TrimmedLines(view))
            assert out.getvalue() == clean(out.getvalue())


@given(hostile)
def test_nothing_that_an_agent_writes_is_obeyed_behind_a_pipe(text):
    for part in parts_of(text):
        assert plain_text(part) == clean(plain_text(part))
        if isinstance(part, ToolCallPart):
            assert plain_full_text(part) == clean(plain_full_text(part))


def test_what_markdown_spells_with_entities_is_not_obeyed_either():
    written = "\n".join(look(render_part(AgentMarkdown(ENTITIES))))
    assert written == clean(written)
    assert "abc over" in written


@table(
    ("part", "text"),
    [
        (UserText("hi"), "> hi"),
        (AgentMarkdown("*hi*\n\n"), "*hi*"),
        (AgentText("*hi*\n\n"), "*hi*\n"),
        (ThoughtPart(1, "hm"), "[thought #1]"),
        (ToolCallPart(2, EDIT), "[completed] Edit app.py (edit) #2"),
        (PlanPart((PlanEntry("a", "low", "completed"), PlanEntry("b", "low", "pending"))), "[x] a\n[ ] b"),
        (ContentNote("image"), "[image]"),
        (Remark("One.", "Two."), "[One. Two.]"),
        (PermissionPart(EDIT), "[wanted] Edit app.py (edit)"),
        (Listing("T", (ListingItem("a", "b", True), ListingItem("c")), "h"), "T\n* a  b\n  c\nh"),
    ],
)
def test_behind_a_pipe_each_part_is_bare_text(part, text):
    assert plain_text(part) == text


def test_behind_a_pipe_a_call_can_be_seen_in_full():
    assert plain_full_text(ToolCallPart(2, RUN)).startswith("[failed] Run the tests (execute) #2\n")
    assert plain_full_text(ToolCallPart(2, RUN)).endswith("line 30")
